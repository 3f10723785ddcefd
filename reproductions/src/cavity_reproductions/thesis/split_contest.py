"""EP, billiard and SVM on random splits of a data set: test errors, wins and paired tests.

All share one kernel matrix and no slack. "SVM" has no bias beyond that of the kernel, as the other two; "SVM with bias"
is the usual one.
"""

import math
from typing import Any

import numpy as np
from scipy import stats

import cavity
from cavity.baselines import billiard, svm
from cavity.factors import Step
from cavity.kernels import Kernel
from cavity.reports import Figure, Table, figure
from cavity.reports.figures import BLUE, label
from cavity_reproductions.base import Config, Outcome, Results, Unit, array, check_table, grade, make_unit
from cavity_reproductions.relaxed.contest import standard_error
from cavity_reproductions.workbench import infer

RIVALS = ("SVM", "billiard", "SVM with bias", "SVM, normalised")
NAMES = ("EP", *RIVALS)
#: splits in a unit
PORTION = 5


def units(config: Config, sets: tuple[str, ...]) -> list[Unit]:
    splits = config.pick(40, 2, 1)
    portions = [
        (name, list(range(first, min(first + PORTION, splits)))) for name in sets for first in range(0, splits, PORTION)
    ]
    return [make_unit(config, k, f"{name} {own[0]}", data=name, splits=own) for k, (name, own) in enumerate(portions)]


def errors(
    X: np.ndarray, y: np.ndarray, test_X: np.ndarray, test_y: np.ndarray, kernel: Kernel, bounces: int, seed: int
) -> dict[str, Any]:
    """Test errors of all methods on one split, and whether EP converged."""
    K, cross = np.asarray(kernel(X)), np.asarray(kernel(test_X, X))
    solution = infer(cavity.models.latent_gaussian(y, Step(), kernel_matrix=K))
    machine = svm(K, y)
    # One ball from the SVM's solution, as in the thesis.
    play = billiard(y=y, kernel_matrix=K, bounces=bounces, trajectories=1, start=machine.alpha, seed=seed, written=1)
    values = {
        "EP": cross @ solution.q.weights,
        "SVM": machine.decide(cross),
        "billiard": cross @ np.asarray(play.alpha),
        "SVM with bias": svm(K, y, bias=True).decide(cross),
        "SVM, normalised": svm(K, y, normalise=True).decide(cross),
    }
    wrong = {name: float(np.mean(np.sign(f) != test_y)) for name, f in values.items()}
    return wrong | {
        "converged": bool(solution.converged),
        "agree": float(np.mean(np.sign(values["EP"]) == np.sign(values["billiard"]))),
    }


def of(results: Results, data: str, key: str) -> np.ndarray:
    """One number a split."""
    return np.concatenate([array(own[key]) for name, own in results.items() if name.rsplit(" ", 1)[0] == data])


def gathered(found: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """One list a key, over the splits."""
    return {key: [own[key] for own in found] for key in found[0]}


def wins(ep: np.ndarray, rival: np.ndarray) -> dict[str, float]:
    """How often EP is better, equal, worse; mean difference with its error; p of a paired t-test and of the signs."""
    gap = rival - ep
    better, worse = int(np.sum(gap > 0)), int(np.sum(gap < 0))
    t = stats.ttest_rel(rival, ep).pvalue if gap.size > 1 and np.ptp(gap) > 1e-12 else math.nan
    sign = stats.binomtest(better, better + worse).pvalue if better + worse else math.nan
    error = float(np.std(gap, ddof=1) / math.sqrt(gap.size)) if gap.size > 1 else math.nan
    return {
        "better": better,
        "equal": gap.size - better - worse,
        "worse": worse,
        "difference": 100 * float(gap.mean()),
        "error": 100 * error,
        "t": float(t),
        "sign": float(sign),
    }


def outcome(results: Results, sets: dict[str, dict[str, Any]], note: str) -> Outcome:
    """Tables of errors and wins; sets: what the thesis says of each, by rival: True where EP wins most splits."""
    error_rows, win_rows, checks, numbers = [], [], {}, {}
    for data, printed in sets.items():
        found = {name: of(results, data, name) for name in NAMES}
        settled = of(results, data, "converged").mean()
        spread = [f"{100 * own.mean():.2f} ± {100 * standard_error(own):.2f}" for own in found.values()]
        error_rows.append((data, len(found["EP"]), *spread, 100 * of(results, data, "agree").mean(), 100 * settled))
        for rival in RIVALS:
            own = wins(found["EP"], found[rival])
            numbers[f"{data}, EP against {rival}"] = own
            win_rows.append((f"{data}: {rival}", *own.values()))
        for rival, most in printed.items():
            own = numbers[f"{data}, EP against {rival}"]
            ahead = own["better"] > own["worse"]
            if most == "similar":
                checks[f"{data}: EP and {rival} are within two standard errors"] = (
                    abs(own["difference"]) <= 2 * own["error"]
                )
            else:
                checks[f"{data}: EP beats the {rival} {'more' if most else 'less'} often than it loses"] = ahead == most
        numbers[f"{data}, errors"] = {name: float(own.mean()) for name, own in found.items()}
    tables = (
        Table(
            "Test error, %, mean and standard error over splits",
            ("data", "splits", *NAMES, "EP and billiard agree, %", "EP settled, %"),
            error_rows,
            note,
        ),
        Table(
            "Splits on which EP is better, equal, worse",
            ("against", "better", "equal", "worse", "mean gain, %", "its error", "p, t-test", "p, signs"),
            win_rows,
        ),
        check_table(checks),
    )
    parts = [
        f"{data}: " + ", ".join(f"{rival} {tally(numbers, data, rival)}" for rival in ("SVM", "billiard"))
        for data in sets
    ]
    return Outcome(tables, numbers, grade(checks), "EP better : equal : worse. " + "; ".join(parts) + ".")


def tally(numbers: dict[str, Any], data: str, rival: str) -> str:
    """better : equal : worse."""
    own = numbers[f"{data}, EP against {rival}"]
    return f"{own['better']}:{own['equal']}:{own['worse']}"


def draw(results: Results, sets: tuple[str, ...]) -> Figure:
    """EP's error against a rival's, one dot a split."""
    sheet, axes = figure(len(sets), 2, width=8.0, height=3.8 * len(sets))
    for row, data in zip(axes, sets, strict=True):
        ep = 100 * of(results, data, "EP")
        for ax, rival in zip(row, ("SVM", "billiard"), strict=True):
            other = 100 * of(results, data, rival)
            ends = [min(ep.min(), other.min()) - 1, max(ep.max(), other.max()) + 1]
            ax.plot(ends, ends, color="black", linewidth=0.8)
            ax.plot(other, ep, "o", color=BLUE, alpha=0.5, markersize=5)
            ax.set_aspect("equal")
            label(ax, data, f"error of {rival}, %", "error of EP, %")
    return sheet
