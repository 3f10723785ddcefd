"""What a sweep of relaxed EP costs beside one of EP, for likelihoods of a Gaussian process: process time, in turn."""

import argparse
import time
from typing import Any

import numpy as np

import cavity as cv

SWEEPS, TURNS = 6, 3


def problems(n: int) -> dict[str, cv.Problem]:
    """The same inputs and function seen through different likelihoods."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, 2))
    kernel = np.exp(-0.5 * np.sum((x[:, None] - x[None]) ** 2, axis=2))
    f = np.sin(2 * x[:, 0])
    labels, factors = np.where(f > 0, 1.0, -1.0), cv.factors
    seen: dict[str, tuple[Any, np.ndarray]] = {
        "step": (factors.Step(0.1), labels),
        "probit": (factors.Probit(0.1), labels),
        "logistic": (factors.Logistic(), labels),
        "student-t": (factors.StudentT(0.1, 4.0), f + 0.1 * rng.standard_t(4, n)),
        "ordinal": (factors.OrdinalProbit([-0.5, 0.0, 0.6], 0.3), np.digitize(f, [-0.5, 0.0, 0.6]).astype(float)),
        "poisson": (factors.Poisson(), rng.poisson(np.exp(f)).astype(float)),
    }
    return {name: cv.models.latent_gaussian(y, t, kernel_matrix=kernel) for name, (t, y) in seen.items()}


def seconds_a_sweep(problem: cv.Problem, method: cv.Method) -> float:
    """Process time; a tolerance out of reach keeps the number of sweeps the same."""
    began = time.process_time()
    found = cv.infer(problem, method)
    return (time.process_time() - began) / int(found.sweeps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=500)
    size = parser.parse_args().size
    methods = (cv.EP(max_sweeps=SWEEPS, tol=1e-300), cv.RelaxedEP(10.0, max_sweeps=SWEEPS, tol=1e-300))
    print(f"| likelihood, n = {size} | EP, ms a sweep | relaxed EP | ratio |\n|---|---|---|---|")
    for name, problem in problems(size).items():
        for method in methods:
            cv.infer(problem, method)  # compiled
        best = np.min([[seconds_a_sweep(problem, method) for method in methods] for _ in range(TURNS)], axis=0)
        print(f"| {name} | {1e3 * best[0]:.1f} | {1e3 * best[1]:.1f} | {best[1] / best[0]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
