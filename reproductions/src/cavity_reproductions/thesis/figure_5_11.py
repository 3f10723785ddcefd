"""Thesis figure 5-11: training time of EP with kernels over the number of points."""

import time
from typing import Any

import numpy as np

import cavity
from cavity.factors import Step
from cavity.kernels import RBF
from cavity.reports import STYLES, Figure, Table, figure
from cavity.reports.figures import GREY, label, legend
from cavity_reproductions.base import Config, Experiment, Outcome, Results, Unit, array, check_table, grade, make_unit
from cavity_reproductions.thesis import DOCUMENT
from cavity_reproductions.thesis.figure_5_6 import truth
from cavity_reproductions.workbench import infer

#: "an hour for 1,000 data points and 6 weeks for 10,000"
THESIS = {1000: 3600.0, 10_000: 6 * 7 * 86_400.0}
#: the power is fitted from here on: smaller problems take the time of their overhead
FITTED_FROM = 500


def sizes(config: Config) -> list[int]:
    """Numbers of points."""
    full = [50, 100, 200, 350, 500, 700, 1000, 1400, 2000, 2800, 4000]
    return {"full": full, "quick": full[:3], "tiny": [30, 60]}[config.size]


def units(config: Config) -> list[Unit]:
    return [make_unit(config, n, f"n = {n}", n=n) for n in sizes(config)]


def run_unit(unit: Unit, config: Config) -> dict[str, Any]:
    n = unit.options["n"]
    X = np.random.default_rng(unit.seed).uniform(-1, 1, (n, 2))
    y = truth(X)
    problem = cavity.models.latent_gaussian(y, Step(), kernel_matrix=np.asarray(RBF(0.5)(X)) + 1e-6 * np.eye(n))
    solution = infer(problem, cavity.EP(tol=1e-4))  # also compiles, which is not training
    times = []
    for _ in range(config.pick(3 if n <= 1000 else 1, 2, 1)):
        began = time.perf_counter()
        infer(problem, cavity.EP(tol=1e-4))
        times.append(time.perf_counter() - began)
    return {"n": n, "seconds": min(times), "sweeps": int(solution.sweeps), "converged": bool(solution.converged)}


def fitted(results: Results) -> tuple[float, float]:
    """Power and factor of seconds = factor · nᵖ, from the limit on, or of the two largest sizes."""
    n, seconds = (array([own[key] for own in results.values()]) for key in ("n", "seconds"))
    late = n >= min(FITTED_FROM, n[-2])
    power, factor = np.polyfit(np.log(n[late]), np.log(seconds[late]), 1)
    return float(power), float(np.exp(factor))


def summarise(results: Results, config: Config) -> Outcome:
    power, factor = fitted(results)
    ours = {n: factor * n**power for n in THESIS}
    rows = [(f"{own['n']}", own["seconds"], own["sweeps"], bool(own["converged"])) for own in results.values()]
    checks = {
        "time grows like n³: a fitted power of 2.5 to 3.5": 2.5 <= power <= 3.5,
        "every run converges": all(own["converged"] for own in results.values()),
    }
    tables = (
        Table(
            "Seconds to train, one core or two, compilation not counted",
            ("points", "seconds", "sweeps", "converged"),
            rows,
        ),
        Table(
            "Beside the thesis",
            ("points", "thesis, seconds", "ours by the fit, seconds", "times faster"),
            [(f"{n}", THESIS[n], ours[n], THESIS[n] / ours[n]) for n in THESIS],
            f"Fitted power {power:.2f}, from {FITTED_FROM} points on. Matlab on a machine of 2000 against ours.",
        ),
        check_table(checks),
    )
    sentence = (
        f"Time grows with the power {power:.2f} of n. 1,000 points take {ours[1000]:.2g} s where the thesis "
        f"says an hour; 10,000 would take {ours[10_000] / 60:.2g} min where it says six weeks."
    )
    return Outcome(tables, {"power": power, "seconds": ours, "runs": rows}, grade(checks), sentence)


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    sheet, axes = figure(1, 1, width=6.5, height=4.4)
    ax = axes[0, 0]
    n, seconds = (array([own[key] for own in results.values()]) for key in ("n", "seconds"))
    power, factor = fitted(results)
    ax.loglog(n, seconds, **(STYLES["EP"].plot() | {"linestyle": "none"}), label="EP, this library")
    reach = np.array([FITTED_FROM, 10_000])
    ax.loglog(reach, factor * reach**power, color=STYLES["EP"].colour, linewidth=1, label=f"power {power:.2f}")
    ax.loglog(list(THESIS), list(THESIS.values()), "o:", color=GREY, label="thesis, extrapolated")
    label(ax, "Training time", "points", "seconds")
    legend(ax)
    return sheet


EXPERIMENT = Experiment(
    name="thesis-5-11",
    document=f"{DOCUMENT}, figure 5-11",
    title="Training time",
    claim="The time of EP with kernels nearly perfectly follows n³; it would take an hour for 1,000 and six weeks for "
    "10,000 points.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
