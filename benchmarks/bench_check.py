"""Whether `solution.check()` tells EP runs that are right from those that are wrong, where the evidence is known.

Clutter sets, step machines and probit machines in one to three dimensions; whatever state EP ended in is checked, also
where it did not converge. The references share nothing with the check: those of clutter and steps are in
`tests/exact_evidence.py`, that of probit machines is the trapezoidal rule on a grid around the mode.

Prints a Markdown table. `--first` moves the seeds: those from 0 on were used to choose the constants of the check.
"""

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from scipy.special import log_ndtr, logsumexp

import cavity as cv

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from exact_evidence import clutter_evidence, step_evidence

LOG_2PI = np.log(2 * np.pi)

#: runs that often end before they converge
UNFINISHED = {"plain EP": cv.EP(), "two sweeps": cv.EP(max_sweeps=2)}

COLUMNS = (
    "problem",
    "problems",
    "EP converged",
    "covered",
    "off by > 0.1: says off",
    "off by < 0.01: says off",
    "inconclusive",
    "off by > 0.1: says agrees",
    "median error bar",
    "largest",
    "off by > 0.1: k̂ > 0.7",
    "seconds",
)


class Case(NamedTuple):
    """A problem and its exact log evidence."""

    kind: str
    problem: cv.Problem
    exact: float


# ---------------------------------------------------------------- problems


def clutter_case(rng: np.random.Generator, w: float, d: int, n: int = 20) -> Case:
    noise = rng.standard_normal((n, d))
    x = np.where(rng.random((n, 1)) < w, np.sqrt(10.0) * noise, 2.0 + noise)
    problem = cv.models.clutter(x[:, 0] if d == 1 else x, w=w)
    return Case(f"clutter w = {w}, d = {d}", problem, clutter_evidence(x, w))


def machine_data(rng: np.random.Generator, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and true weights."""
    return rng.standard_normal((n, d)), rng.standard_normal(d)


def step_case(rng: np.random.Generator, noise: float, d: int, n: int) -> Case:
    X, w = machine_data(rng, n, d)
    y = np.where(X @ w > 0, 1.0, -1.0) * np.where(rng.random(n) < noise, -1.0, 1.0)
    problem = cv.models.latent_gaussian(y=y, likelihood=cv.factors.Step(noise), X=X)
    return Case(f"step ε = {noise}, d = {d}", problem, step_evidence(y[:, None] * X, noise))


# ---------------------------------------------------------------- probit


def probit_evidence(rows: np.ndarray, variance: float) -> float:
    """log ∫ N(w; 0, v I) ∏ Φ(rows_i · w) dw on a grid of ± 8 standard deviations around the mode.

    The integrand is smooth and vanishes at the border, so the error falls exponentially with the number of nodes.
    """
    d = rows.shape[1]
    mode = np.zeros(d)
    for _ in range(100):
        f = rows @ mode
        slope = np.exp(-0.5 * f**2 - 0.5 * LOG_2PI - log_ndtr(f))
        precision = np.eye(d) / variance + (rows.T * (slope * (slope + f))) @ rows
        mode = mode + np.linalg.solve(precision, rows.T @ slope - mode / variance)
    root = np.linalg.cholesky(np.linalg.inv(precision))
    nodes = np.linspace(-9.0, 9.0, 61)
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*[nodes] * d, indexing="ij")], axis=1)
    found = []
    for piece in np.array_split(grid, max(1, len(grid) // 20_000)):
        w = mode + piece @ root.T
        found.append(-0.5 * np.sum(w**2, axis=1) / variance + np.sum(log_ndtr(w @ rows.T), axis=1))
    cell = d * np.log(nodes[1] - nodes[0]) + np.sum(np.log(np.diagonal(root)))
    return float(logsumexp(np.concatenate(found)) + cell - 0.5 * d * np.log(2 * np.pi * variance))


def probit_case(rng: np.random.Generator, d: int, n: int, variance: float = 9.0) -> Case:
    X, w = machine_data(rng, n, d)
    y = np.where(X @ w * np.sqrt(variance) + rng.standard_normal(n) > 0, 1.0, -1.0)
    problem = cv.models.latent_gaussian(y=y, likelihood=cv.factors.Probit(), X=X, prior_variance=variance)
    return Case(f"probit, d = {d}", problem, probit_evidence(y[:, None] * X, variance))


# ---------------------------------------------------------------- the table


def cases(seed: int) -> Iterator[Case]:
    """One round of problems."""
    rng = np.random.default_rng(seed)
    for d in (1, 2, 3):
        for w in (0.3, 0.5, 0.7):
            yield clutter_case(rng, w, d)
        for n in (5, 20, 50):
            for noise in (0.0, 0.1, 0.2):
                yield step_case(rng, noise, d, n)
            yield probit_case(rng, d, n)


class Row(NamedTuple):
    """What came of one problem."""

    kind: str
    converged: bool
    error: float
    check: cv.Check
    exact: float
    seconds: float

    @property
    def covered(self) -> bool:
        low, high = self.check.interval
        return low <= self.exact <= high


def run(case: Case, seed: int, draws: int, method: cv.Method | None = None) -> Row:
    solution = cv.infer(case.problem, method)
    solution.check(draws=draws, key=jax.random.key(seed))  # compiled
    began = time.perf_counter()
    found = solution.check(draws=draws, key=jax.random.key(seed))
    seconds = time.perf_counter() - began
    return Row(case.kind, solution.converged, float(solution.log_evidence) - case.exact, found, case.exact, seconds)


def share(rows: list[Row], hit: Callable[[Row], bool]) -> str:
    """hits/all, or a dash."""
    return f"{sum(map(hit, rows))}/{len(rows)}" if rows else "–"


def line(name: str, rows: list[Row]) -> str:
    """One row of the table."""
    wrong = [row for row in rows if abs(row.error) > 0.1]
    right = [row for row in rows if abs(row.error) < 0.01]
    cells = [
        name,
        f"{len(rows)}",
        share(rows, lambda row: row.converged),
        share(rows, lambda row: row.covered),
        share(wrong, lambda row: row.check.verdict == "EP is off"),
        share(right, lambda row: row.check.verdict == "EP is off"),
        share(rows, lambda row: row.check.verdict == "inconclusive"),
        share(wrong, lambda row: row.check.verdict == "EP agrees"),
        f"{np.median([row.check.standard_error for row in rows]):.4f}",
        f"{max(row.check.standard_error for row in rows):.4f}",
        share(wrong, lambda row: row.check.k_hat > 0.7),
        f"{np.median([row.seconds for row in rows]):.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=1000, help="first seed")
    parser.add_argument("--rounds", type=int, default=8, help="rounds of 45 problems")
    parser.add_argument("--draws", type=int, default=4000)
    options = parser.parse_args()
    found: dict[str, list[Row]] = defaultdict(list)
    for seed in range(options.first, options.first + options.rounds):
        for case in cases(seed):
            row = run(case, seed, options.draws)
            found[row.kind].append(row)
            if case.kind.startswith("clutter"):
                for name, method in UNFINISHED.items():
                    found[f"clutter, {name}"].append(run(case, seed, options.draws, method))
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|")
    for kind in sorted(found):
        print(line(kind, found[kind]))
    everything = [row for rows in found.values() for row in rows]
    print(line("all", everything))
    if unfinished := [row for row in everything if not row.converged]:
        print(line("all that did not converge", unfinished))


if __name__ == "__main__":
    main()
