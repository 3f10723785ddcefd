"""Thesis figure 3-4: the site that stands for a term depends on the cavity it is made in."""

import numpy as np

import cavity
from cavity.reports import STYLES, Figure, Table, figure
from cavity.reports.figures import BLUE, label, shared_legend
from cavity_reproductions.base import Config, Experiment, Outcome, Results, Unit, array, make_unit
from cavity_reproductions.thesis import DOCUMENT
from cavity_reproductions.workbench import CLUTTER_SHARE, infer, normal_density

X = 3.0
CLUTTER_VARIANCE = 10.0
CAVITIES = {"narrow": (1.5, 0.3), "wide": (1.5, 6.0)}
WINDOW = 6.0


def units(config: Config) -> list[Unit]:
    return [make_unit(config, k, name) for k, name in enumerate(CAVITIES)]


def run_unit(unit: Unit, config: Config) -> dict:
    """Term, site and cavity on a grid: t̃ = Z q_new / cavity (3.28), whatever the sign of its precision."""
    mean, variance = CAVITIES[unit.name]
    term = cavity.factors.Clutter(CLUTTER_SHARE, CLUTTER_VARIANCE)
    found = infer(cavity.models.posterior(term, np.array([X]), mean, variance), cavity.ADF())
    grid = np.linspace(mean - WINDOW, mean + WINDOW, 601)
    exact = CLUTTER_SHARE * (normal_density(grid, X, 1.0) + normal_density(0.0 * grid, X, CLUTTER_VARIANCE))
    base = normal_density(grid, mean, variance)
    nu, tau = np.asarray(found.sites[0])[0]
    peak = np.log(normal_density(np.array([mean]), float(found.mean), float(found.covariance)))[0]
    at_mean = float(found.log_evidence) + peak - np.log(normal_density(np.array([mean]), mean, variance))[0]
    log_site = at_mean + nu * (grid - mean) - 0.5 * tau * (grid**2 - mean**2)
    return {"grid": grid, "term": exact, "site": np.exp(log_site), "cavity": base, "precision": tau, "mean": mean}


def distance(result: dict, reach: float) -> float:
    """Root mean square of t̃ − t within `reach` of the cavity mean, relative to the largest t."""
    grid, term, site = (array(result[key]) for key in ("grid", "term", "site"))
    near = np.abs(grid - result["mean"]) <= reach
    return float(np.sqrt(np.mean((site - term)[near] ** 2)) / term.max())


def summarise(results: Results, config: Config) -> Outcome:
    near, far = np.sqrt(CAVITIES["narrow"][1]), 2.0 * np.sqrt(CAVITIES["wide"][1])
    numbers = {
        name: {
            "within one sd of the narrow cavity": distance(dict(result), near),
            "within two sd of the wide cavity": distance(dict(result), far),
            "site precision": result["precision"],
        }
        for name, result in results.items()
    }
    rows = [(name, CAVITIES[name][1], *numbers[name].values()) for name in results]
    table = Table(
        f"Distance of site and term, x = {X:g}, relative to the largest t",
        ("cavity", "its variance", f"rms, |θ − m| < {near:.2f}", f"rms, |θ − m| < {far:.2f}", "site precision"),
        rows,
    )
    sentence = (
        f"Near the cavity mean the site made in the narrow cavity is off by "
        f"{numbers['narrow']['within one sd of the narrow cavity']:.1%} of the term's height, the other by "
        f"{numbers['wide']['within one sd of the narrow cavity']:.1%}; over the width of the wide cavity it is "
        f"{numbers['narrow']['within two sd of the wide cavity']:.0%} against "
        f"{numbers['wide']['within two sd of the wide cavity']:.0%}."
    )
    return Outcome((table,), numbers, "illustration", sentence)


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    sheet, axes = figure(1, len(results), width=10, height=4.4)
    for ax, (name, result), letter in zip(axes.flat, results.items(), "ab", strict=True):
        grid, term, site, base = (array(result[key]) for key in ("grid", "term", "site", "cavity"))
        ax.plot(grid, term, **STYLES["exact"].curve(), label="exact term t(θ)")
        ax.plot(grid, site, **STYLES["EP"].curve(), label="site t̃(θ)")
        ax.fill_between(grid, base * term.max() / base.max(), color=BLUE, alpha=0.18, label="cavity q(θ), rescaled")
        ax.set_ylim(0, 1.6 * term.max())
        label(ax, f"({letter}) {name} cavity, variance {CAVITIES[name][1]:g}", "θ", "t(θ)")
    shared_legend(sheet, axes.flat)
    return sheet


EXPERIMENT = Experiment(
    name="thesis-3-4",
    document=f"{DOCUMENT}, figure 3-4",
    title="A term of the clutter problem and its site in a narrow and in a wide cavity",
    claim="The cavity decides where a site is accurate: a narrow one makes it accurate in a narrow range, a wide one "
    "more broadly.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
