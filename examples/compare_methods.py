# %% [markdown]
# # Which method, measured on the clutter problem
#
# Every method runs on the same random data sets. The exact answer is known by quadrature. For each method the script
# prints the share of runs that converged, the median number of sweeps, and the median absolute error of the posterior
# mean and of the log evidence. Medians of errors are over all sets, converged or not.
#
# `python compare_methods.py` runs 200 sets for each cell, with n = 20 and n = 200, and takes some minutes.
# `python compare_methods.py 10 20` runs 10 sets with n = 20 only.

# %%
import sys
from collections.abc import Iterator
from functools import partial

import jax
import numpy as np

import cavity
from cavity.baselines import laplace, variational_bayes
from cavity.exact_inference import exact

METHODS = {
    "ADF": cavity.ADF(),
    "EP": cavity.EP(),
    "EP, damping 0.5": cavity.EP(damping=0.5),
    "EP, shuffled": cavity.EP(schedule=cavity.Shuffled()),
    "EP, largest mismatch first": cavity.EP(schedule=cavity.LargestMismatchFirst()),
    "EP, parallel": cavity.EP(schedule=cavity.Parallel()),
    "EP, parallel, damping 0.5": cavity.EP(schedule=cavity.Parallel(), damping=0.5),
    "RestrictedEP": cavity.RestrictedEP(),
    "PowerEP(0.5)": cavity.PowerEP(0.5),
}
BASELINES = {"laplace": laplace, "variational_bayes": variational_bayes}


# %%
def clutter_sets(sets: int, n: int, w: float, seed: int = 0) -> np.ndarray:
    """Points around θ = 2 with unit noise, each replaced by clutter N(0, 10) with probability w."""
    rng = np.random.default_rng([seed, n, int(100 * w)])
    signal, noise = rng.normal(2.0, 1.0, (sets, n)), rng.normal(0.0, 10.0**0.5, (sets, n))
    return np.where(rng.random((sets, n)) < w, noise, signal)


@partial(jax.jit, static_argnames="method")
def mapped(x, w, method):
    """One compiled program for all sets and all clutter ratios."""
    return jax.vmap(lambda row: cavity.infer(cavity.models.clutter(row, w=w), method))(x)


def run_stack(x: np.ndarray, w: float, method: cavity.Method) -> cavity.Solution:
    """All sets at once; the scope keeps data and results in double precision."""
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, mapped(x, w, method))


def compare(sets: int, n: int, w: float) -> Iterator[tuple[str, float, float, float, float]]:
    """(method, share converged, median sweeps, median error of the mean, median error of the log evidence)."""
    x = clutter_sets(sets, n, w)
    problems = [cavity.models.clutter(row, w=w) for row in x]
    truth = [exact(problem) for problem in problems]
    mean, evidence = np.array([t.mean for t in truth]), np.array([t.log_evidence for t in truth])

    def errors(found_mean, found_evidence):
        return float(np.median(np.abs(found_mean - mean))), float(np.median(np.abs(found_evidence - evidence)))

    for name, baseline in BASELINES.items():
        answers = [baseline(problem) for problem in problems]
        yield name, np.nan, np.nan, *errors([a.mean for a in answers], [a.log_evidence for a in answers])
    for name, method in METHODS.items():
        found = run_stack(x, w, method)
        share = np.nan if method.single_pass else float(np.mean(found.converged))
        yield name, share, float(np.median(found.sweeps)), *errors(found.mean, found.log_evidence)


# %%
def main(sets: int = 200, sizes: tuple[int, ...] = (20, 200), ratios: tuple[float, ...] = (0.3, 0.5, 0.7)) -> None:
    for n in sizes:
        for w in ratios:
            print(f"n = {n}, w = {w}, {sets} sets")
            print(f"{'method':28}{'converged':>10}{'sweeps':>8}{'mean error':>12}{'log p(D) error':>16}")
            for name, share, sweeps, mean_error, evidence_error in compare(sets, n, w):
                print(f"{name:28}{share:10.3f}{sweeps:8.0f}{mean_error:12.1e}{evidence_error:16.1e}", flush=True)


if __name__ == "__main__":
    numbers = [int(text) for text in sys.argv[1:]]
    main(numbers[0], tuple(numbers[1:]) or (20, 200)) if numbers else main()
