"""How far EP and Laplace's method are from the truth, on ten latent Gaussian models small enough to sample.

The truth is Monte Carlo with error bars (`cavity.baselines.latent_sampling`), which shares nothing with EP. The
problems were fixed before any of them was run. Prints a Markdown table; `--write` puts it into docs/accuracy-table.md.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from scipy.special import expit, ndtr

import cavity as cv
from cavity.baselines._latent_laplace import latent_laplace
from cavity.baselines._latent_sampling import latent_sampling

PAGE = Path(__file__).parents[1] / "docs" / "accuracy-table.md"
NOISE = 0.1

INTRODUCTION = """# Accuracy on latent Gaussian models

Ten problems f ~ N(0, K), with x ~ N(0, I), K an RBF kernel and y drawn from the model; written by
`benchmarks/bench_accuracy.py --write`.

*Mean error*: the largest |mean − truth| / posterior standard deviation over the n latents; *± sampling* is the largest
standard error of the truth in the same unit, below which nothing is resolved. *Log evidence error*: estimate − truth,
and the truth's standard error. The truth is annealed importance sampling and elliptical slice sampling. Laplace's
method does not exist for the step, which has no slope.
"""


class Case(NamedTuple):
    """One problem: everything it is drawn from."""

    seed: int
    n: int
    dimension: int
    length_scale: float
    variance: float
    likelihood: str


CASES = (
    Case(1, 20, 1, 0.5, 1.0, "probit"),
    Case(2, 40, 2, 1.0, 4.0, "probit"),
    Case(3, 60, 2, 1.0, 1.0, "probit"),
    Case(4, 60, 5, 2.0, 16.0, "probit"),
    Case(5, 30, 1, 1.0, 4.0, "logistic"),
    Case(6, 50, 2, 0.5, 9.0, "logistic"),
    Case(7, 60, 3, 2.0, 25.0, "logistic"),
    Case(8, 20, 1, 1.0, 1.0, "step"),
    Case(9, 40, 2, 1.0, 1.0, "step"),
    Case(10, 60, 5, 2.0, 1.0, "step"),
)

#: P(y = +1 | f)
PROBABILITY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "probit": ndtr,
    "logistic": expit,
    "step": lambda f: np.where(f > 0, 1 - NOISE, NOISE),
}


def factor_of(likelihood: str) -> cv.factors.Factor:
    if likelihood == "probit":
        return cv.factors.Probit()
    return cv.factors.Logistic() if likelihood == "logistic" else cv.factors.Step(NOISE)


def draw(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Kernel matrix and labels."""
    rng = np.random.default_rng(case.seed)
    x = rng.standard_normal((case.n, case.dimension))
    K = case.variance * np.exp(-0.5 * np.sum((x[:, None] - x[None]) ** 2, axis=2) / case.length_scale**2)
    eigenvalues, basis = np.linalg.eigh(K)
    f = basis @ (np.sqrt(np.maximum(eigenvalues, 0.0)) * rng.standard_normal(case.n))
    return K, np.where(rng.random(case.n) < PROBABILITY[case.likelihood](f), 1.0, -1.0)


def measure(case: Case, chains: int, steps: int, moves: int) -> str:
    """One row of the table."""
    K, y = draw(case)
    factor = factor_of(case.likelihood)
    truth = latent_sampling(K, y, factor, jax.random.key(case.seed), chains=chains, steps=steps, moves=moves)
    sd = np.sqrt(truth.variance)

    def errors(mean: np.ndarray, log_evidence: float) -> tuple[str, str]:
        return f"{np.max(np.abs(mean - truth.mean) / sd):.3f}", f"{log_evidence - truth.log_evidence:+.3f}"

    solution = cv.infer(cv.models.latent_gaussian(y=y, likelihood=factor, kernel_matrix=K))
    ep = errors(solution.mean, solution.log_evidence)
    laplace = ("–", "–")
    if case.likelihood != "step":
        estimate = latent_laplace(K, y, factor)
        laplace = errors(estimate.mean, estimate.log_evidence)
    cells = [
        f"{case.likelihood}, n = {case.n}, d = {case.dimension}, ℓ = {case.length_scale:g}, σ² = {case.variance:g}",
        ep[0],
        laplace[0],
        f"{np.max(truth.mean_error / sd):.3f}",
        f"{truth.log_evidence:.3f}",
        ep[1],
        laplace[1],
        f"{truth.log_evidence_error:.3f}",
        # Whatever a run says of itself belongs beside its numbers.
        " ".join(filter(None, ["" if solution.converged else f"EP: {solution.status.sentence}", truth.note])),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write docs/accuracy-table.md")
    parser.add_argument("--chains", type=int, default=256)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--moves", type=int, default=1000)
    options = parser.parse_args()
    table = [
        "| problem | mean error: EP | Laplace | ± sampling | log evidence | error: EP | Laplace | ± sampling | note |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(table), flush=True)
    for case in CASES:
        table.append(measure(case, options.chains, options.steps, options.moves))
        print(table[-1], flush=True)
    if options.write:
        PAGE.write_text(INTRODUCTION + "\n" + "\n".join(table) + "\n")


if __name__ == "__main__":
    main()
