"""Expectation propagation on a CUDA device: the same answers as on the processor, and how long they take.

    python benchmarks/gpu.py             # answers, then times at 10,240, 20,480 and 40,960 latents
    python benchmarks/gpu.py --answers   # answers only
    python benchmarks/gpu.py 5120 10240  # answers, then these sizes
    python benchmarks/gpu.py --first     # seconds until the first answer, compiling included, in processes of their own

Times are of a second, warm run: RBF kernel on points in a square, lengthscale 0.3 of its side, amplitude 1, probit, to
a moment mismatch of 1e-6. Beside them: one matrix product and one Cholesky factor of that size, in float64.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from first_answer import CASES, run

import cavity as cv
from cavity._numerics.blocked import cholesky
from cavity.kernels import RBF
from cavity.learned import just_in_time

SIZES = (10_240, 20_480, 40_960)
LENGTHSCALE, TOLERANCE = 0.3, 1e-6
#: first answers: what the user does, as in `first_answer.py`
FIRST = {
    "exact EP, 10,240 rows": f"""
X = rng.uniform(size=(10_240, 2))
y = np.where(np.sin(6 * X[:, 0]) + np.cos(9 * X[:, 1] * X[:, 0]) > 0, 1.0, -1.0)
def go():
    kernel = cv.kernels.RBF({LENGTHSCALE})
    model = cv.models.latent_gaussian(y, cv.factors.Probit(), X=X, kernel=kernel)
    return cv.infer(model, cv.EP(tol={TOLERANCE})).log_evidence""",
    "GPClassifier with search, 1,000": CASES["classifier-1000"],
}
#: largest difference between the answers of the two devices, beside the size of the answer
AGREEMENT = 1e-8


def points(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Points of a square of side 1, labelled by a wavy line, one in twenty wrongly."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 2))
    y = np.where(np.sin(6 * X[:, 0]) + np.cos(9 * X[:, 1] * X[:, 0]) + 0.3 * rng.normal(size=n) > 0, 1.0, -1.0)
    return X, np.where(rng.random(n) < 0.05, -y, y)


def kernel_form(likelihood: cv.factors.Factor) -> dict[str, np.ndarray]:
    """Kernel form, 1,000 points."""
    X, y = points(1000)
    data = {"Poisson": np.round(np.exp(y + 1)), "StudentT": y + 0.1 * X[:, 0]}.get(type(likelihood).__name__, y)
    problem = cv.models.latent_gaussian(data, likelihood, X=X, kernel=RBF(LENGTHSCALE))
    solution = cv.infer(problem, cv.EP(tol=1e-10, max_sweeps=300))
    return {"mean": solution.mean, "variance": solution.variance, "log evidence": solution.log_evidence}


def weight_form() -> dict[str, np.ndarray]:
    """Weight form, 5,000 rows of 20 features."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(5000, 20))
    y = np.where(X @ rng.normal(size=20) + rng.normal(size=5000) > 0, 1.0, -1.0)
    solution = cv.infer(cv.models.latent_gaussian(y, cv.factors.Probit(), X=X), cv.EP(tol=1e-10))
    return {"mean": solution.mean, "covariance": solution.covariance, "log evidence": solution.log_evidence}


def classifier(approximation: str | None) -> dict[str, np.ndarray]:
    """A classifier with its search for hyperparameters."""
    X, y = points(300)
    model = cv.GPClassifier(approximation=approximation, rank=64).fit(X, y)
    return {"probabilities": model.predict_proba(points(50, seed=1)[0]), "log evidence": model.log_evidence_}


def grid(approximation: str) -> dict[str, np.ndarray]:
    """A discrete graph: 12 × 12 variables with random couplings."""
    rng = np.random.default_rng(2)
    size = 12
    graph = cv.DiscreteGraph([2] * size**2)
    for place in range(size**2):
        graph.add_factor([place], np.exp(0.3 * rng.normal(size=2)))
        for other in ([place + 1] if (place + 1) % size else []) + ([place + size] if place + size < size**2 else []):
            graph.add_factor([place, other], np.exp(0.5 * rng.normal(size=(2, 2))))
    chosen = graph if approximation == "disconnected" else graph.approximate(approximation)
    solution = cv.infer(chosen, cv.EP(tol=1e-10, max_sweeps=500))
    return {"marginals": np.concatenate(list(solution.marginals)), "log evidence": solution.log_evidence}


def learned() -> dict[str, np.ndarray]:
    """A factor learned just in time: the logistic factor of a regression, its oracle by quadrature."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(100, 3))
    y = np.where(X @ np.ones(3) + rng.logistic(size=100) > 0, 1.0, -1.0)
    factor = just_in_time(cv.factors.Logistic(), oracle=cv.Quadrature())
    problem = cv.models.latent_gaussian(y, factor, X=X)
    solution = cv.infer(problem, cv.EP(schedule=cv.Parallel(), tol=1e-10, max_sweeps=300))
    return {"mean": solution.mean, "questions": np.asarray(factor.report().queries)}


ANSWERS: dict[str, Callable[[], dict[str, np.ndarray]]] = {
    "kernel form, probit": lambda: kernel_form(cv.factors.Probit()),
    "kernel form, label noise": lambda: kernel_form(cv.factors.Probit(label_noise=0.05)),
    "kernel form, Poisson": lambda: kernel_form(cv.factors.Poisson()),
    "weight form": weight_form,
    "classifier": lambda: classifier(None),
    "classifier, inducing inputs": lambda: classifier("inducing"),
    "classifier, random features": lambda: classifier("features"),
    "grid, loopy belief propagation": lambda: grid("disconnected"),
    "grid, tree": lambda: grid("tree"),
    "learned operator": learned,
}


def compare_answers() -> bool:
    """Every answer on both devices, and the largest difference."""
    fine = True
    print(f"{'answer':34s} {'difference':>10s} {'processor':>10s} {'device':>8s}")
    for name, answer in ANSWERS.items():
        began = time.perf_counter()
        with jax.default_device(jax.devices("cpu")[0]):
            expected = answer()
        middle = time.perf_counter()
        found = answer()
        ended = time.perf_counter()
        gaps = [
            np.max(np.abs(np.asarray(found[part]) - np.asarray(expected[part])))
            / max(1.0, np.max(np.abs(np.asarray(expected[part]))))
            for part in expected
        ]
        fine &= max(gaps) <= AGREEMENT
        print(f"{name:34s} {max(gaps):10.1e} {middle - began:9.1f}s {ended - middle:7.1f}s", flush=True)
    return fine


def timed(work: Callable[..., jax.Array], *arrays: jax.Array) -> float:
    """The shortest of three warm runs, compiled; arrays as arguments, so that none is a constant of the program."""
    compiled = jax.jit(work)
    jax.block_until_ready(compiled(*arrays))
    spent = []
    for _ in range(3):
        began = time.perf_counter()
        jax.block_until_ready(compiled(*arrays))
        spent.append(time.perf_counter() - began)
    return min(spent)


def time_size(n: int) -> None:
    """One line of the table."""
    X, y = points(n)
    problem = cv.models.latent_gaussian(y, cv.factors.Probit(), X=X, kernel=RBF(LENGTHSCALE))
    method = cv.EP(tol=TOLERANCE)
    began = time.perf_counter()
    solution = cv.infer(problem, method)
    cold = time.perf_counter() - began
    began = time.perf_counter()
    solution = cv.infer(problem, method)
    warm = time.perf_counter() - began
    peak = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0)
    with jax.enable_x64(True):
        k = jnp.asarray(problem.problem().prior.covariance)
        moved = k + jnp.eye(n)
        product = timed(jnp.matmul, moved, k)
        factor = timed(cholesky, moved)
    sweeps = int(solution.sweeps)
    print(
        f"{n:8,d} {solution.status:>10s} {solution.mismatch:9.1e} {sweeps:6d} {warm:8.2f} {warm / sweeps:8.3f} "
        f"{product:8.3f} {factor:9.3f} {cold:7.1f} {peak / 8 / n**2:7.2f}",
        flush=True,
    )


def first_answers() -> None:
    """Seconds until a first answer, measured as by `first_answer.py`: with nothing compiled, then with kept code."""
    print(f"{'first answer':32s} {'empty':>7s} {'cached':>7s} {'warm':>7s}   seconds")
    for name, body in FIRST.items():
        with tempfile.TemporaryDirectory() as cache:
            empty, _ = run(body, cache)
            cached, warm = run(body, cache)
        print(f"{name:32s} {empty:7.2f} {cached:7.2f} {warm:7.2f}", flush=True)


def main() -> None:
    """Answers, then times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", type=int, help="numbers of latents")
    parser.add_argument("--answers", action="store_true", help="compare answers only")
    parser.add_argument("--first", action="store_true", help="first answers only")
    parser.add_argument("--times", action="store_true", help="times only")
    given = parser.parse_args()
    if given.first:  # before this process takes the device's memory
        return first_answers()
    print(f"{jax.devices()[0].device_kind}, JAX {jax.__version__}")
    fine = given.times or compare_answers()
    if not given.answers:
        print(f"\n{'n':>8s} {'status':>10s} {'mismatch':>9s} {'sweeps':>6s} {'seconds':>8s} {'a sweep':>8s} ", end="")
        print(f"{'product':>8s} {'Cholesky':>9s} {'cold':>7s} {'n² held':>7s}")
        for n in given.sizes or SIZES:
            time_size(n)
    if not fine:
        sys.exit(f"Answers differ by more than {AGREEMENT:g}.")


if __name__ == "__main__":
    main()
