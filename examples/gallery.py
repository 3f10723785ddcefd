# %% [markdown]
# # A gallery of failures
#
# Five problems on which plain EP finds no fixed point, and what every method makes of them: the tables and pictures of
# the page of that name. `python examples/gallery.py [FOLDER]` takes some minutes, most of them compilation.

# %%
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import cavity as cv
from cavity.baselines import latent_sampling
from cavity.exact_inference import exact, posterior_density
from cavity.posteriors.shared import Shared
from cavity.reports import figures
from cavity.reports.figures import BLUE, GREEN, GREY, SKY, STYLES, Style

METHODS = {
    "EP": cv.EP(),
    "EP, damping 0.5": cv.EP(damping=0.5),
    "PowerEP(0.5)": cv.PowerEP(0.5),
    "RestrictedEP": cv.RestrictedEP(),
    "RelaxedEP(1)": cv.RelaxedEP(1.0),
    "RelaxedEP(0.1)": cv.RelaxedEP(0.1),
    "ConvergentEP": cv.ConvergentEP(),
    "Auto": cv.Auto(),
}
DRAWN = {
    "EP": STYLES["EP"],
    "EP, damping 0.5": STYLES["damped EP"],
    "PowerEP(0.5)": STYLES["Power EP"],
    "RestrictedEP": Style(GREY, "-.", "s"),
    "RelaxedEP(1)": STYLES["Relaxed EP"],
    "RelaxedEP(0.1)": Style(BLUE, ":", "v"),
    "ConvergentEP": Style(SKY, "-", "D"),
    "Auto": Style(GREEN, "-", "^"),
}
#: methods whose answers are drawn; more would hide each other
ANSWERS = ("EP", "PowerEP(0.5)", "RestrictedEP", "Auto")
#: sweeps drawn, and the range of their residuals; what is infinite, for an improper cavity, is drawn above it
SWEEPS, LOWEST, HIGHEST, INFINITE = 60, 1e-10, 1e2, 1e4

Solutions = dict[str, cv.Solution]


class Case(NamedTuple):
    """A problem, its log evidence with the words for where that comes from, and how to draw the answers."""

    title: str
    problem: cv.Problem
    log_evidence: float
    source: str
    draw: Callable[[Any, Solutions], None]


# %% [markdown]
# ## The problems


# %%
def three_modes() -> Case:
    """Clutter whose posterior has three modes."""
    x = np.append(
        [5.09, -0.94, 2.78, -6.96, -1.5, 4.91, 1.74, 1.68, -3.39, -1.13],
        [0.09, -4.17, -4.36, 3.11, -0.3, 2.66, 1.95, -1.14, -6.92, -2.15],
    )
    problem = cv.models.clutter(x)
    truth = exact(problem)

    def draw(ax: Any, solutions: Solutions) -> None:
        grid = np.linspace(-10.0, 8.0, 400)
        density = posterior_density(problem, grid) / np.exp(truth.log_evidence)
        ax.fill_between(grid, density, color="#dddddd")
        ax.plot(grid, density, **STYLES["exact"].curve(), label="exact or sampled")
        for name, solution in solutions.items():
            ax.plot(grid, np.exp(solution.log_density(grid)), **DRAWN[name].curve(), label=name)
        ax.set_ylim(0.0, 0.8)
        figures.label(ax, "posterior density", "θ", "")

    return Case("Three modes", problem, float(truth.log_evidence), "exact", draw)


def rbf(x: np.ndarray, length_scale: float) -> np.ndarray:
    return np.exp(-0.5 * ((x[:, None] - x) / length_scale) ** 2)


def curve(K: np.ndarray, y: np.ndarray, factor: cv.factors.Factor, x: np.ndarray, title: str, limits: Any) -> Case:
    """A Gaussian process over a line, beside annealed chains."""
    sampled = latent_sampling(K, y, factor, jax.random.key(0), steps=2000)

    def draw(ax: Any, solutions: Solutions) -> None:
        ax.plot(x, np.clip(y, *limits), "o", color=GREY, markersize=3.5, label="data")
        ax.plot(x, sampled.mean, **STYLES["exact"].curve(), label="exact or sampled")
        for name, solution in solutions.items():
            ax.plot(x, solution.mean, **DRAWN[name].curve(), label=name)
        figures.label(ax, "posterior mean of the latent function", "input", "")

    source = f"sampled, ± {sampled.log_evidence_error:.2f}"
    return Case(title, cv.models.latent_gaussian(y, factor, kernel_matrix=K), sampled.log_evidence, source, draw)


def flipped_labels() -> Case:
    """Two classes along a line, a fifth of the labels wrong, under a kernel that can follow every one of them."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0.0, 10.0, 40))
    y = np.where(np.sin(x) > 0, 1.0, -1.0) * np.where(rng.random(40) < 0.2, -1.0, 1.0)
    return curve(rbf(x, 0.6), y, cv.factors.Step(0.05), x, "Flipped labels", (-1.0, 1.0))


def far_outliers() -> Case:
    """A sine with small noise, and a fifth of the points far above it, all in one place."""
    rng = np.random.default_rng(10)
    x = np.sort(rng.uniform(0.0, 10.0, 40))
    y = np.sin(x) + 0.1 * rng.standard_normal(40)
    far = rng.random(40) < 0.2
    y[far] += rng.choice([3.0, 5.0]) + 0.3 * rng.standard_normal(far.sum())
    return curve(rbf(x, 0.5), y, cv.factors.StudentT(0.1, 4.0), x, "Far outliers", (-np.inf, np.inf))


def frustrated_network() -> Case:
    """Four spins, each pair wanting to differ, which no state can grant: EP on pairs is loopy belief propagation."""
    pairs, fields = np.array(list(itertools.combinations(range(4), 2))), np.array([0.3, -0.1, 0.05, 0.2])
    family = cv.families.Product((cv.families.Categorical(2),) * 4)

    def log_pair(x: Any, data: Any) -> jax.Array:
        pair, field = data
        spins = (2.0 * jnp.stack(x) - 1.0)[pair]
        return -spins[0] * spins[1] + field @ spins

    # Every spin is in three pairs, each of which holds a third of its field.
    group = cv.SiteGroup(cv.factors.from_log_density(log_pair), (pairs, fields[pairs] / 3.0), family, cv.Enumeration())
    problem = cv.Problem(np.zeros(family.size), (group,), Shared(family))
    states = np.array(list(itertools.product((-1.0, 1.0), repeat=4)))
    weights = np.exp(-np.sum(states[:, pairs[:, 0]] * states[:, pairs[:, 1]], axis=1) + states @ fields)
    truth = weights @ states / weights.sum()

    def draw(ax: Any, solutions: Solutions) -> None:
        ax.plot(range(1, 5), truth, **STYLES["exact"].plot() | {"marker": "_", "markersize": 24, "linestyle": ""})
        ax.plot([], [], **STYLES["exact"].curve(), label="exact or sampled")
        for name, solution in solutions.items():
            ax.plot(
                range(1, 5), 2.0 * np.array(solution.mean) - 1.0, **DRAWN[name].plot() | {"linestyle": ""}, label=name
            )
        ax.set_xticks(range(1, 5))
        figures.label(ax, "mean of each spin", "spin", "")

    # The prior is uniform over the 16 states.
    return Case("Strong couplings", problem, float(np.log(weights.mean())), "exact", draw)


def contradictory_duplicates() -> Case:
    """Three inputs, each with six labels of one kind and five of the other."""
    majority, counts, noise = np.array([1.0, -1.0, 1.0]), (6, 5), 0.2
    places = np.arange(3.0)
    y = np.concatenate([sign * np.repeat([1.0, -1.0], counts) for sign in majority])
    K = rbf(np.repeat(places, sum(counts)), 1.0)
    problem = cv.models.latent_gaussian(y, cv.factors.Step(noise), kernel_matrix=K)
    # The step sees signs only, and the probability of an octant is a sum of arcs.
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=3)))
    first, second = np.triu_indices(3, 1)
    octants = 1 / 8 + signs[:, first] * signs[:, second] @ np.arcsin(rbf(places, 1.0)[first, second]) / (4.0 * np.pi)
    right = np.where(signs == majority, *counts).sum(axis=1)
    weights = octants * (1.0 - noise) ** right * noise ** (len(y) - right)
    truth = weights @ (signs > 0) / weights.sum()

    def draw(ax: Any, solutions: Solutions) -> None:
        ax.plot(places, truth, **STYLES["exact"].plot() | {"marker": "_", "markersize": 24, "linestyle": ""})
        ax.plot([], [], **STYLES["exact"].curve(), label="exact or sampled")
        for name, solution in solutions.items():
            above = jax.scipy.stats.norm.cdf(solution.mean / np.sqrt(solution.variance))
            ax.plot(places, above[:: sum(counts)], **DRAWN[name].plot() | {"linestyle": ""}, label=name)
        ax.set_xticks(places)
        ax.set_ylim(-0.02, 1.02)
        figures.label(ax, "probability that the latent is positive", "input", "")

    return Case("Contradictory duplicates", problem, float(np.log(weights.sum())), "exact", draw)


CASES = {
    "three-modes": three_modes,
    "flipped-labels": flipped_labels,
    "far-outliers": far_outliers,
    "strong-couplings": frustrated_network,
    "duplicates": contradictory_duplicates,
}

# %% [markdown]
# ## Tables and pictures


# %%
def solve(problem: cv.Problem, names: Any = tuple(METHODS)) -> Solutions:
    """What every method finds that is defined for this problem."""
    found: Solutions = {}
    for name in names:
        try:
            found[name] = cv.infer(problem, METHODS[name])
        except TypeError as reason:
            print(f"{name}: {reason}")
    return found


def table(case: Case, solutions: Solutions) -> list[str]:
    """The rows of a Markdown table."""
    rows = ["| method | status | sweeps | mismatch | log evidence | check |", "|---|---|---|---|---|---|"]
    for name, solution in solutions.items():
        evidence = f"{float(solution.log_evidence):.2f}" if np.isfinite(solution.log_evidence) else "–"
        mismatch = f"{float(solution.mismatch):.0e}" if np.isfinite(solution.mismatch) else "∞"
        verdict = solution.check().verdict
        rows.append(f"| {name} | `{solution.status}` | {solution.sweeps} | {mismatch} | {evidence} | {verdict} |")
    return [*rows, f"| {case.source} | | | | {case.log_evidence:.2f} | |"]


def picture(case: Case, solutions: Solutions) -> Any:
    """Residuals sweep by sweep, beside the answers."""
    sheet, ((left, right),) = figures.figure(1, 2, width=11.0, height=4.4)
    for place, (name, solution) in enumerate(solutions.items()):
        if name == "Auto":  # its attempts have residuals of their own
            continue
        residuals = np.clip(solution.residuals[:SWEEPS], LOWEST, HIGHEST)
        residuals[np.isinf(solution.residuals[:SWEEPS])] = INFINITE
        ended = solution.converged and len(residuals) == solution.sweeps
        style = DRAWN[name].plot() | {"markevery": [-1] if ended else [], "zorder": 10 - place}
        left.semilogy(np.arange(1, len(residuals) + 1), residuals, **style, label=name)
    left.set_ylim(0.3 * LOWEST, 3.0 * INFINITE)
    left.set_yticks([*10.0 ** np.arange(-10, 3, 2), INFINITE], [*(f"1e{k}" for k in range(-10, 3, 2)), "∞"])
    left.minorticks_off()
    figures.label(left, f"{case.title}: largest mismatch in a sweep (mark: converged)", "sweep", "")
    shown = {name: solutions[name] for name in ANSWERS if name in solutions}
    case.draw(right, {name: s for name, s in shown.items() if s.status != cv.Status.IMPROPER_POSTERIOR})
    figures.shared_legend(sheet, (left, right), columns=6)
    return sheet


def main(folder: Path) -> None:
    for name, make in CASES.items():
        case = make()
        solutions = solve(case.problem)
        print(f"\n{case.title}", *table(case, solutions), sep="\n")
        for attempt in solutions["Auto"].attempts:
            print(f"  {attempt.method}: {attempt.reason or attempt.status}")
        figures.save(picture(case, solutions), folder / f"{name}.png", dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "gallery")
