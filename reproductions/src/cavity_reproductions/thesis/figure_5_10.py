"""Thesis figure 5-10: cost against test error on a typical split of each data set."""

from typing import Any

import numpy as np

import cavity
from cavity.baselines import billiard, svm
from cavity.baselines.billiards import walls
from cavity.factors import Step
from cavity.kernels import RBF
from cavity.reports import STYLES, Figure, Table, figure
from cavity.reports.figures import label, shared_legend
from cavity_reproductions.base import Config, Experiment, Outcome, Results, Unit, array, check_table, grade, make_unit
from cavity_reproductions.thesis import DOCUMENT
from cavity_reproductions.thesis.benchmark_sets import BOUNCES, WIDTH, split_of
from cavity_reproductions.workbench import infer

SETS = ("heart", "thyroid", "ionosphere", "sonar")
METHODS = ("EP", "billiard inside", "SVM")


def units(config: Config) -> list[Unit]:
    return [make_unit(config, k, name) for k, name in enumerate(SETS[: config.pick(4, 2, 1)])]


def run_unit(unit: Unit, config: Config) -> dict[str, Any]:
    data = split_of(unit.name, 0, config)
    kernel, n = RBF(WIDTH), len(data.y)
    K, cross = np.asarray(kernel(data.X)), np.asarray(kernel(data.test_X, data.X))

    def wrong(f: Any) -> float:
        return float(np.mean(np.sign(f) != data.test_y))

    sweeps: list[float] = []
    infer(
        cavity.models.latent_gaussian(data.y, Step(), kernel_matrix=K),
        cavity.EP(tol=1e-4),
        callback=lambda s: sweeps.append(wrong(cross @ s.q.weights)),
    )
    machine = svm(K, data.y)
    bounces = config.pick(10 * BOUNCES, 10 * BOUNCES, 50)
    play = billiard(y=data.y, kernel_matrix=K, bounces=bounces, trajectories=1, start=machine.alpha, seed=unit.seed)
    pool = walls(None, data.y, K)
    one = 2 * pool.normals.size + 6 * pool.normals.shape[1]
    solver = n**2 + 4 * n * machine.iterations
    return {
        "EP": {"cost": [2 * n**3 * (k + 1) for k in range(len(sweeps))], "error": sweeps},
        "cost of 500": solver + one * BOUNCES,
        "SVM": {"cost": [solver], "error": [wrong(machine.decide(cross))]},
        "billiard inside": {
            "cost": solver + one * play.bounces,
            "error": [wrong(cross @ np.asarray(pool.alpha(w))) for w in play.trace[:, 0]],
        },
    }


def summarise(results: Results, config: Config) -> Outcome:
    rows = []
    for data, found in results.items():
        for name in METHODS:
            rows.append((f"{data}: {name}", int(found[name]["cost"][-1]), 100 * found[name]["error"][-1]))
    ratio = {data: found["cost of 500"] / found["EP"]["cost"][-1] for data, found in results.items()}
    last = [abs(found["EP"]["error"][-1] - found["billiard inside"]["error"][-1]) for found in results.values()]
    checks = {
        f"the billiard's {BOUNCES} bounces, start included, cost more than EP, on every set": min(ratio.values()) > 1,
        "EP and the billiard end within 3 points of test error of each other": max(last) <= 0.03,
    }
    table = Table(
        "Cost and test error at the end of a split",
        ("method", "multiplications", "test error, %"),
        rows,
        f"EP: 2n³ a sweep, as by rank-one updates, until the moments agree to 1e-4. Billiard: {10 * BOUNCES} bounces "
        "after the SVM's solution. SVM: 4n for every step of its solver.",
    )
    sentence = (
        f"The {BOUNCES} bounces of the thesis cost {min(ratio.values()):.2g} to {max(ratio.values()):.2g} times "
        "what EP does; the SVM less than either."
    )
    numbers = {"rows": rows, f"cost of {BOUNCES} bounces over EP's": ratio}
    return Outcome((table, check_table(checks)), numbers, grade(checks), sentence)


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    sheet, axes = figure(1, len(results), width=3.6 * len(results) + 0.8, height=3.9)
    for ax, (data, found) in zip(axes.flat, results.items(), strict=True):
        for name in METHODS:
            ax.semilogx(found[name]["cost"], 100 * array(found[name]["error"]), **STYLES[name].plot(), label=name)
        label(ax, data, "multiplications", "test error, %")
    shared_legend(sheet, axes.flat)
    return sheet


EXPERIMENT = Experiment(
    name="thesis-5-10",
    document=f"{DOCUMENT}, figure 5-10",
    title="Cost against test error",
    claim="EP and the billiard reach similar test errors, but the running time of the billiard is significantly "
    "higher, as it must be started from the SVM's solution.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
