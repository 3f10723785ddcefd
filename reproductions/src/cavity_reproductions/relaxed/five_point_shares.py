"""Accuracy on five points, put together: which methods beat which, on how many sets, over c."""

from typing import Any

import numpy as np

from cavity.reports import Table
from cavity_reproductions.base import Config, Results, array, median, share

#: readings of the penalty and of the relaxation factor; the first is the library's
VARIANTS: dict[str, dict[str, Any]] = {
    "REP": {},
    "REP, c|b|, not scale-free": {"penalty": "strength", "scale_free": False},
    "REP, c|b|": {"penalty": "strength"},
    "REP, not scale-free": {"scale_free": False},
    "REP, old message": {"form": "message"},
    "REP, old message, c|η|": {"form": "message", "penalty": "strength"},
    "REP, one after the other": {"sequential": True},
}
#: the paper's own: c|b| with b in the units of the data
PAPER = "REP, c|b|, not scale-free"
POWER, PAPER_C = 0.8, 20.0


def levels(config: Config) -> tuple[float, ...]:
    """ε; the figure's is the first."""
    return (0.2, 0.1, 0.25) if config.size == "full" else (0.2,)


def weights(config: Config) -> tuple[float, ...]:
    """The c of REP."""
    fine = (0.0003, 0.003, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.1, 0.3, 1.0, 3.0, PAPER_C)
    return fine if config.size == "full" else (0.01, 0.04, PAPER_C)


def powers(config: Config) -> tuple[float, ...]:
    """The powers of PEP."""
    return {"full": (0.2, 0.5, POWER), "quick": (0.5, POWER), "tiny": (POWER,)}[config.size]


def both_better(one: Any, other: Any) -> np.ndarray:
    """On which random sets both errors are smaller, at a fixed point; the figure's set is left out."""
    better = [array(one[kind]) < array(other[kind]) for kind in ("mean", "covariance")]
    return (better[0] & better[1] & (array(one["converged"]) > 0))[1:]


def moved(one: Any, ep: Any) -> np.ndarray:
    """On which random sets the answer is not EP's."""
    return np.max(np.abs(array(one["all means"]) - array(ep["all means"])), axis=1)[1:] > 1e-6


def compared(results: Results, config: Config) -> list[dict]:
    """Shares over the random sets, one record for every method, ε and c."""
    found = []
    for epsilon in levels(config):
        ep, pep = (results[name][f"{epsilon}"][0] for name in ("EP", f"PEP {POWER}"))
        for name, result in results.items():
            if name == "printed":
                continue
            for c, one in zip(weights(config) if name in VARIANTS else [None], result[f"{epsilon}"], strict=True):
                record: dict[str, Any] = {"method": name, "epsilon": epsilon, "c": c}
                record["converged"] = share(array(one["converged"])[1:] > 0)
                record["differs from EP"] = share(moved(one, ep))
                for kind in ("mean", "covariance"):
                    record[f"{kind} better than EP"] = share((array(one[kind]) < array(ep[kind]))[1:] & moved(one, ep))
                    record[f"median {kind} error"] = median(array(one[kind])[1:])
                record["both better than EP"] = share(both_better(one, ep) & moved(one, ep))
                record["both better than PEP"] = share(both_better(one, pep))
                found.append(record)
    return found


def best_records(records: list[dict], against: str) -> list[dict]:
    """For every method and ε the c with the largest share of sets on which both errors are smaller."""
    groups: dict[tuple, list[dict]] = {}
    for record in records:
        groups.setdefault((record["epsilon"], record["method"]), []).append(record)
    return [max(group, key=lambda record: record[against]) for group in groups.values()]


def better_range(results: Results, name: str, config: Config) -> float:
    """The widest run of c, as a ratio, over which both errors on the figure's points are below EP's."""
    key = f"{levels(config)[0]}"
    ep, widest, start = results["EP"][key][0], 0.0, None
    for c, one in zip(weights(config), results[name][key], strict=True):
        good = bool(one["converged"][0]) and all(one[kind][0] < ep[kind][0] for kind in ("mean", "covariance"))
        good = good and abs(one["mean"][0] - ep["mean"][0]) > 1e-9
        start = (c if start is None else start) if good else None
        widest = max(widest, c / start) if start is not None else widest
    return widest


def figure_table(results: Results, config: Config) -> Table:
    """The figure's own points: errors of every method at its best c, and at the paper's."""
    key = f"{levels(config)[0]}"
    rows = []
    for name, result in results.items():
        if name == "printed":
            continue
        runs = result[key]
        best = int(np.argmin([one["mean"][0] for one in runs]))
        for place in sorted({best, len(runs) - 1}):
            c = weights(config)[place] if name in VARIANTS else None
            one = runs[place]
            rows.append((name, c, bool(one["converged"][0]), one["mean"][0], one["covariance"][0]))
    columns = ("method", "c", "settled", "mean error", "covariance error")
    return Table(
        f"The figure's points, ε = {key}", columns, rows, "Mean square distances; the best c, and the largest."
    )


def family_table(best: list[dict], count: int) -> Table:
    """Shares at the best c."""
    shown = ("converged", "differs from EP", "mean better than EP", "covariance better than EP", "both better than EP")
    keys = (*shown, "both better than PEP")
    return Table(
        f"{count} random sets of five points with one wrong label: shares of all sets, at the best c",
        ("method", "ε", "c", *keys),
        [(record["method"], record["epsilon"], record["c"], *(record[key] for key in keys)) for record in best],
        f"Best: most sets with both errors below EP's. PEP: power {POWER}. What is within 1e-6 of EP's is not better.",
    )


def curve_table(records: list[dict]) -> Table:
    """REP over c."""
    keys = ("converged", "differs from EP", "both better than EP", "median mean error", "median covariance error")
    return Table(
        "REP over c on the random sets",
        ("ε", "c", *keys),
        [(record["epsilon"], record["c"], *(record[key] for key in keys)) for record in records],
    )
