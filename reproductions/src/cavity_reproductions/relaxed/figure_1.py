"""Relaxed EP, figure 1: accuracy of mean and covariance on five points with one wrong label.

The figure's own configuration is not printed; ours looks like it (`five_points`). The claim is about accuracy in the
presence of an outlier, so it is also put to random sets of the same kind, drawn beforehand.
"""

import numpy as np

import cavity
from cavity.reports import Figure, figure
from cavity.reports.figures import STYLES, label, shared_legend
from cavity_reproductions.base import Config, Experiment, Outcome, Results, Unit, array, check_table, grade, make_unit
from cavity_reproductions.relaxed import DOCUMENT, five_points, printed_check
from cavity_reproductions.relaxed.five_point_shares import (
    PAPER,
    PAPER_C,
    POWER,
    VARIANTS,
    best_records,
    better_range,
    compared,
    curve_table,
    family_table,
    figure_table,
    levels,
    powers,
    weights,
)
from cavity_reproductions.relaxed.five_points import LABELS, POINTS


def units(config: Config) -> list[Unit]:
    variants = list(VARIANTS)[: config.pick(len(VARIANTS), 2, 1)]
    found = [make_unit(config, 0, "EP", count=config.pick(200, 8, 3))]
    for power in powers(config):
        found.append(Unit(f"PEP {power}", found[0].seed, found[0].options))
    for name in variants:
        found.append(Unit(name, found[0].seed, found[0].options))
    return [*found, make_unit(config, 1, "printed")]


def run_unit(unit: Unit, config: Config) -> dict:
    if unit.name == "printed":
        return printed_check.examine()
    # The first set is the figure's.
    sets = np.concatenate([(POINTS * LABELS[:, None])[None], five_points.random_sets(unit.seed, unit.options["count"])])
    grid = weights(config) if unit.name in VARIANTS else (0.0,)
    return {f"{epsilon}": [errors(sets, epsilon, method(unit.name), c) for c in grid] for epsilon in levels(config)}


def method(name: str) -> cavity.Method:
    """The method behind a name; a relaxed one for any c."""
    if name == "EP":
        return cavity.EP(max_sweeps=1000)
    if name.startswith("PEP"):
        return cavity.PowerEP(float(name.split()[1]))
    return cavity.RelaxedEP(0.0, max_sweeps=200, **VARIANTS[name])


def errors(sets: np.ndarray, epsilon: float, how: cavity.Method, c: float) -> dict:
    """Squared errors on every set, whether a fixed point was reached, and the means of w."""
    found = five_points.solve(sets, epsilon, how, c)
    mean, covariance = five_points.squared_errors(found, five_points.exact_posteriors(sets, epsilon))
    return {"mean": mean, "covariance": covariance, "converged": found.converged, "all means": found.mean}


def summarise(results: Results, config: Config) -> Outcome:
    key = f"{levels(config)[0]}"
    variants = [name for name in VARIANTS if name in results]
    records = compared(results, config)
    ep, pep = results["EP"][key][0], results[f"PEP {POWER}"][key][0]
    largest = results["REP"][key][-1]
    both = (array(ep["converged"]) > 0) & (array(largest["converged"]) > 0)
    gap = float(np.max(np.abs(array(largest["all means"]) - array(ep["all means"]))[both]))
    at_paper = results[PAPER if PAPER in results else "REP"][key][-1]
    ranges = {name: better_range(results, name, config) for name in variants}
    against_ep, against_pep = (
        {record["epsilon"]: record for record in best_records(records, against) if record["method"] == "REP"}
        for against in ("both better than EP", "both better than PEP")
    )
    always = all(record["converged"] == 1.0 for record in records if record["method"] == "REP")
    checks = {
        "large c gives EP": gap < 1e-5,
        f"figure: at c = {PAPER_C:g}, penalty c|b|, REP's mean is closer than EP's and PEP's": bool(
            at_paper["mean"][0] < min(ep["mean"][0], pep["mean"][0]) - 1e-9
        ),
        "figure: REP's mean and covariance are closer than EP's over a factor of 10 in c, in some variant": max(
            ranges.values()
        )
        >= 10.0,
        "figure: PEP's mean and covariance are worse than EP's at every power": all(
            results[f"PEP {power}"][key][0][kind][0] > ep[kind][0]
            for power in powers(config)
            for kind in ("mean", "covariance")
        ),
        "random sets: at some c REP beats EP's mean and covariance on most, for every ε": all(
            record["both better than EP"] > 0.5 for record in against_ep.values()
        ),
        "random sets: at some c REP beats PEP's mean and covariance on most, for every ε": all(
            record["both better than PEP"] > 0.5 for record in against_pep.values()
        ),
        "random sets: REP converges on all, at every c and ε": always,
    }
    shares = ", ".join(f"{100 * record['both better than EP']:.0f} %" for record in against_ep.values())
    pep_shares = ", ".join(
        f"{100 * record['both better than EP']:.0f} %" for record in records if record["method"] == f"PEP {POWER}"
    )
    noise = ", ".join(f"{epsilon:g}" for epsilon in levels(config))
    sentence = (
        f"At its best c REP beats EP's mean and covariance on {shares} of {both.size - 1} random sets (ε = {noise}); "
        f"PEP at power {POWER} on {pep_shares}."
    )
    numbers = {"random sets": both.size - 1, "gap to EP at the largest c": gap, "range of c": ranges, "shares": records}
    power_means = {power: array(results[f"PEP {power}"][key][0]["all means"])[0] for power in powers(config)}
    return Outcome(
        (
            figure_table(results, config),
            family_table(best_records(records, "both better than EP"), both.size - 1),
            curve_table([record for record in records if record["method"] == "REP"]),
            *printed_check.tables(results["printed"], power_means),
            check_table(checks),
        ),
        numbers,
        grade(checks),
        sentence,
    )


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    sheet, axes = figure(1, 3, width=14, height=4.6)
    key = f"{levels(config)[0]}"
    truth = five_points.exact_posterior(POINTS * LABELS[:, None], levels(config)[0])
    rep = results["REP"][key]
    best = int(np.argmin([one["mean"][0] for one in rep]))
    boundaries = {
        "exact": truth.mean,
        "EP": array(results["EP"][key][0]["all means"])[0],
        "Power EP": array(results[f"PEP {POWER}"][key][0]["all means"])[0],
        "Relaxed EP": array(rep[best]["all means"])[0],
    }
    ax = axes[0, 0]
    for side, marker in ((-1, "x"), (1, "o")):
        mine = POINTS[side == LABELS]
        ax.plot(mine[:, 0], mine[:, 1], linestyle="none", marker=marker, color="black", fillstyle="none")
    for name, w in boundaries.items():
        along = np.array([-w[1], w[0]]) / np.hypot(*w) * 2.5
        ax.plot([-along[0], along[0]], [-along[1], along[1]], **STYLES[name].curve(), label=name)
    label(ax, f"(a) boundaries, REP at c = {weights(config)[best]:g}", "x₁", "x₂")
    for place, kind in enumerate(("mean", "covariance"), start=1):
        ax = axes[0, place]
        ax.axhline(results["EP"][key][0][kind][0], **STYLES["EP"].curve(), label="EP")
        ax.axhline(results[f"PEP {POWER}"][key][0][kind][0], **STYLES["Power EP"].curve(), label="Power EP")
        ax.loglog(weights(config), [one[kind][0] for one in rep], **STYLES["Relaxed EP"].plot(), label="Relaxed EP")
        label(ax, f"({'abc'[place]}) error of the {kind}", "c", "mean square distance")
    shared_legend(sheet, axes.flat)
    return sheet


EXPERIMENT = Experiment(
    name="rep-1",
    document=f"{DOCUMENT}, figure 1",
    title="Accuracy on five points with one wrong label",
    claim="Relaxed EP gives a more accurate posterior mean and covariance than EP and Power EP for a wide range of c, "
    "and is EP when c is large; Power EP is always worse than EP.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
