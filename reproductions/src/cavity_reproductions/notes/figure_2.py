"""Lecture notes figure 2 and "EP for truncation": the Gaussian that stands for a truncated one.

Two questions: how much of its mass lies above the threshold (the notes: roughly 5 %), and whether the printed formulas
of the site (μ̃, σ̃², Z̃) give the moments of the truncated Gaussian. The answers they are held against come from SciPy.
"""

import itertools

import numpy as np
from scipy.stats import norm, truncnorm

import cavity
from cavity.reports import STYLES, Figure, Table, figure
from cavity.reports.figures import GREY, VERMILION, label, legend
from cavity_reproductions.base import Config, Experiment, Outcome, Results, Unit, array, check_table, grade, make_unit
from cavity_reproductions.notes import DOCUMENT
from cavity_reproductions.workbench import infer, normal_density

#: the figure's Gaussian is not named; a threshold one sd above the mean is drawn
DRAWN = 1.0
#: cavities (mean, variance) and thresholds on which the formulas are tried; a variance of 1 would hide a missing factor
TRIED = tuple(itertools.product((0.0, 0.5), (0.25, 1.0, 4.0), (-1.0, 0.5, 1.5)))
PARTS = ("sign of μ̃", "variance factor of σ̃²", "sign in Z̃")


def units(config: Config) -> list[Unit]:
    points = config.pick(61, 31, 5)
    return [
        make_unit(config, 0, "drawn"),
        make_unit(config, 1, "mass", thresholds=np.linspace(-6.0, 3.0, points).tolist()),
        make_unit(config, 2, "formulas"),
    ]


def run_unit(unit: Unit, config: Config) -> dict:
    if unit.name == "drawn":
        found = infer(cavity.models.truncation(0.0, 1.0, upper=DRAWN))
        return {"mean": found.mean, "variance": found.covariance, "log_evidence": found.log_evidence}
    if unit.name == "mass":
        runs = [infer(cavity.models.truncation(0.0, 1.0, upper=z)) for z in unit.options["thresholds"]]
        above = [
            norm.sf(z, r.mean, np.sqrt(r.covariance)) for z, r in zip(unit.options["thresholds"], runs, strict=True)
        ]
        return {"thresholds": unit.options["thresholds"], "above": above}
    return formulas()


def site(mean: float, variance: float, bound: float, repaired: tuple[bool, bool, bool]) -> tuple[float, float, float]:
    """(μ̃, σ̃², Z̃) as the notes print them, with the parts named in `repaired` put right."""
    s = np.sqrt(variance)
    z = (bound - mean) / s
    a = np.exp(norm.logpdf(z) - norm.logcdf(z))
    centre = mean + (-s if repaired[0] else s) / (a + z)
    width = (variance if repaired[1] else 1.0) / (a * (a + z)) - variance
    sign = 1.0 if repaired[2] else -1.0
    scale = norm.cdf(z) * np.sqrt(2 * np.pi * (width + variance)) * np.exp(sign * 0.5 / (1 + z / a))
    return float(centre), float(width), float(scale)


def recombined(mean: float, variance: float, part: tuple[float, float, float]) -> tuple[float, float, float]:
    """Mean, variance and log integral of cavity × Z̃ N(x; μ̃, σ̃²)."""
    centre, width, scale = part
    precision = 1.0 / variance + 1.0 / width
    new_mean = (mean / variance + centre / width) / precision
    return new_mean, 1.0 / precision, float(np.log(scale) + norm.logpdf(centre, mean, np.sqrt(variance + width)))


def formulas() -> dict:
    """Largest error of mean, variance and log Z over all cavities, for the print and its repairs; EP beside them."""
    variants = {
        "as printed": (False, False, False),
        f"{PARTS[0]} repaired": (True, False, False),
        f"{PARTS[1]} repaired": (False, True, False),
        f"{PARTS[2]} repaired": (False, False, True),
        f"all but {PARTS[0]}": (False, True, True),
        f"all but {PARTS[1]}": (True, False, True),
        f"all but {PARTS[2]}": (True, True, False),
        "all three repaired": (True, True, True),
    }
    errors: dict[str, list] = {name: [] for name in (*variants, "EP of this library")}
    for mean, variance, bound in TRIED:
        s = np.sqrt(variance)
        z = (bound - mean) / s
        first, second = truncnorm.stats(-np.inf, z, loc=mean, scale=s, moments="mv")
        truth = float(first), float(second), float(norm.logcdf(z))
        for name, repaired in variants.items():
            errors[name].append(np.subtract(recombined(mean, variance, site(mean, variance, bound, repaired)), truth))
        ep = infer(cavity.models.truncation(mean, variance, upper=bound))
        errors["EP of this library"].append(
            np.subtract([float(ep.mean), float(ep.covariance), float(ep.log_evidence)], truth)
        )
    return {"errors": {name: np.max(np.abs(rows), axis=0) for name, rows in errors.items()}}


def summarise(results: Results, config: Config) -> Outcome:
    thresholds, above = array(results["mass"]["thresholds"]), array(results["mass"]["above"])
    one = results["drawn"]
    drawn_above = float(norm.sf(DRAWN, one["mean"], one["variance"] ** 0.5))
    band = thresholds[(above >= 0.04) & (above <= 0.06)]
    errors = {name: array(row) for name, row in results["formulas"]["errors"].items()}
    exact = {name: bool(np.all(row < 1e-8)) for name, row in errors.items()}
    numbers = {
        "mass above the threshold": {f"{z:g}": float(m) for z, m in zip(thresholds, above, strict=True)},
        "mass above, threshold one sd above the mean": drawn_above,
        "thresholds with 4 to 6 % above (sd from the mean)": [float(band.min()), float(band.max())]
        if band.size
        else None,
        "largest mass above": float(above.max()),
        "formulas match": exact,
    }
    checks = {
        "about 5 % (4 to 6 %) lies above the threshold for one sd": 0.04 <= drawn_above <= 0.06,
        "about 5 % for every threshold": bool(np.all((above >= 0.04) & (above <= 0.06))),
        "the printed site formulas give the truncated moments and evidence": exact["as printed"],
    }
    rows = [(name, *(float(e) for e in row), exact[name]) for name, row in errors.items()]
    table = Table(
        f"Site formulas on {len(TRIED)} cavities and thresholds: largest errors against SciPy's truncated normal",
        ("formulas", "mean", "variance", "log Z", "match"),
        rows,
    )
    chosen = [-6.0, -3.0, 0.0, 1.0, 2.0, 3.0] if config.size != "tiny" else thresholds.tolist()
    mass_rows = [(z, float(np.interp(z, thresholds, above))) for z in chosen]
    mass = Table(
        "Mass of the EP Gaussian above the threshold", ("threshold (sd from the mean)", "mass above"), mass_rows
    )
    needed = all(not exact[f"all but {part}"] for part in PARTS)
    sentence = (
        f"{drawn_above:.1%} of the EP Gaussian lies above a threshold one sd above the mean, but {above.min():.1%} to "
        f"{above.max():.1%} over thresholds from {thresholds.min():g} to {thresholds.max():g} sd. The printed site "
        f"formulas {'match' if exact['as printed'] else 'do not match'} the truncated moments; with the sign of μ̃, "
        f"the variance factor of σ̃² and the sign in Z̃ repaired they {'do' if exact['all three repaired'] else 'do not'}"
        f"{', and each of the three repairs is needed' if needed else ''}."
    )
    return Outcome((table, mass, check_table(checks)), numbers, grade(checks), sentence)


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    one = results["drawn"]
    sheet, axes = figure(1, 2, width=10.5, height=4.3)
    grid = np.linspace(-4.0, 3.0, 561)
    q = normal_density(grid, one["mean"], one["variance"])
    ax = axes[0, 0]
    ax.plot(grid, normal_density(grid, 0.0, 1.0), color=GREY, linestyle=":", linewidth=1.6, label="before truncation")
    inside = np.append(grid[grid < DRAWN], [DRAWN, DRAWN])
    height = normal_density(inside, 0.0, 1.0) / norm.cdf(DRAWN)
    height[-1] = 0.0
    ax.plot(inside, height, **STYLES["exact"].curve(), label="truncated at a")
    ax.plot(grid, q, **STYLES["EP"].curve(), label="EP")
    mass = outcome.numbers["mass above, threshold one sd above the mean"]
    ax.fill_between(grid, q, where=grid >= DRAWN, color=VERMILION, alpha=0.3, label=f"{mass:.1%} above a")
    label(ax, "(a) a standard normal below a = 1", "x", "density")
    legend(ax, loc="upper left")
    ax = axes[0, 1]
    ax.plot(
        array(results["mass"]["thresholds"]), 100 * array(results["mass"]["above"]), **STYLES["EP"].curve(), label="EP"
    )
    ax.axhline(5.0, color=GREY, linestyle=":", label="5 %, the notes")
    ax.set_ylim(bottom=0)
    label(ax, "(b) mass of EP's Gaussian above the threshold", "threshold (sd from the mean)", "mass above (%)")
    legend(ax)
    return sheet


EXPERIMENT = Experiment(
    name="notes-2",
    document=f"{DOCUMENT}, figure 2",
    title="EP for truncation: mass above the threshold, and the printed site formulas",
    claim="The Gaussian that EP gives for a truncated one leaves roughly 5 % of its mass above the threshold; the site "
    "is given by printed formulas for μ̃, σ̃² and Z̃.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
