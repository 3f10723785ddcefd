"""Latent Gaussian models: time and memory beside matrix products, rank-one sweeps, scikit-learn and GPy.

All in one process with the same threads; ratios are what counts. Every time is the best of a few, compilation apart.
GPy is measured where it is installed.
"""

import importlib.util
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import make_classification
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF as SklearnRBF
from sklearn.gaussian_process.kernels import ConstantKernel

import cavity as cv
from cavity._core.system import one_blas_thread
from cavity.inference import _loop
from cavity.kernels import RBF, Constant

RNG = np.random.default_rng(0)


def best(function, repeats=3):
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(function())
        times.append(time.perf_counter() - began)
    return min(times)


def data(n, d=10):
    X, y = make_classification(n, d, n_informative=6, class_sep=0.8, flip_y=0.05, random_state=0)
    return (X - X.mean(axis=0)) / X.std(axis=0), np.where(y > 0, 1.0, -1.0)


def kernel_matrix(X, length_scale=3.0):
    return np.asarray(RBF(length_scale)(X))


def rank_one_sweep(K, y):
    """One sweep of probit EP as GPy does it: an n × n rank-one update after every site."""
    from scipy.special import log_ndtr

    n = len(y)
    A, h, nu, tau = K.copy(), np.zeros(n), np.zeros(n), np.zeros(n)
    for i in range(n):
        precision = 1 / A[i, i] - tau[i]
        mean = (h[i] / A[i, i] - nu[i]) / precision
        scale = np.sqrt(1 + 1 / precision)
        z = y[i] * mean / scale
        ratio = np.exp(-0.5 * z * z - 0.5 * np.log(2 * np.pi) - log_ndtr(z))
        d1, d2 = y[i] * ratio / scale, -ratio * (ratio + z) / scale**2
        new_tau = -d2 / (1 + d2 / precision)
        new_nu = d1 + new_tau * (mean + d1 / precision)
        change, move = new_tau - tau[i], new_nu - nu[i]
        nu[i], tau[i] = new_nu, new_tau
        growth = 1 + change * A[i, i]
        column = A[i].copy()
        h += column * (move - change * h[i]) / growth
        A -= (change / growth) * np.outer(column, column)
    return h


def sweeps(n=2000):
    X, y = data(n)
    with jax.enable_x64(True), one_blas_thread():
        model = cv.models.latent_gaussian(y=y, likelihood=cv.factors.Probit(), kernel_matrix=kernel_matrix(X))
        problem = model.problem()
        K, key, method = problem.prior.covariance, jax.random.key(0), cv.EP(tol=1e-30, max_sweeps=50)
        product = jax.jit(lambda a: a @ a)
        state = _loop.initial_state(problem, method, None)
        state = _loop.advance_anew(problem, method, state, jnp.asarray(2), key)[0]
        product(K).block_until_ready()
        matmul = best(lambda: product(K), 7)
        # The difference of a longer and a shorter run: what is measured once a run does not count.
        short, long = (
            best(lambda last=last: _loop.advance_anew(problem, method, state, jnp.asarray(last), key), 5)
            for last in (3, 8)
        )
        sweep = (long - short) / 5
        lowered = _loop.advance_in_place.optimised.lower(problem, method, state, jnp.asarray(5), key)
        memory = lowered.compile().memory_analysis()
        held = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
        peak = (held + memory.temp_size_in_bytes) / 8 / n**2
    rank_one = best(lambda: rank_one_sweep(np.asarray(K), y), 1)
    print(f"n = {n}: product {matmul:.3f} s, sequential sweep {sweep:.3f} s = {sweep / matmul:.2f} products, ", end="")
    print(f"rank-one sweep {rank_one:.2f} s = {rank_one / sweep:.1f} sweeps; memory of a run {peak:.2f} n² doubles")


def fits(n=1000):
    X, y = data(n)
    machine = cv.GPClassifier(kernel=RBF(3.0), likelihood="probit", label_noise=0.0, optimize=False)
    began = time.perf_counter()
    machine.fit(X, y)
    cold = time.perf_counter() - began
    warm = best(lambda: machine.fit(X, y))
    if importlib.util.find_spec("GPy"):
        gpy(X, y, warm, machine.log_evidence_)
    laplace = GaussianProcessClassifier(SklearnRBF(3.0), optimizer=None)
    rival = best(lambda: laplace.fit(X, y))
    print(f"n = {n}, fixed kernel: cold {cold:.2f} s, warm {warm:.3f} s ({machine.n_sweeps_} sweeps), ", end="")
    print(f"scikit-learn's Laplace {rival:.3f} s: ratio {warm / rival:.2f}")
    learning = cv.GPClassifier(kernel=Constant(1.0) * RBF(3.0), likelihood="probit", label_noise=0.0)
    learning.fit(X, y)
    warm = best(lambda: learning.fit(X, y), 2)
    search = GaussianProcessClassifier(ConstantKernel(1.0) * SklearnRBF(3.0))
    rival = best(lambda: search.fit(X, y), 1)
    evaluations = len(learning.models_[0].history)
    print(f"n = {n}, learned kernel: {warm:.2f} s ({evaluations} evaluations), scikit-learn {rival:.2f} s")


def gpy(X, y, own_seconds, own_evidence):
    """GPy's EP, the inference alone, to a stop as tight as ours."""
    import GPy

    for parallel in (True, False):
        method = GPy.inference.latent_function_inference.EP(epsilon=1e-16, parallel_updates=parallel)
        kernel = GPy.kern.RBF(X.shape[1], variance=1.0, lengthscale=3.0)
        target = (y > 0)[:, None] * 1.0
        began = time.perf_counter()
        model = GPy.core.GP(X, target, kernel=kernel, likelihood=GPy.likelihoods.Bernoulli(), inference_method=method)
        seconds, gap = time.perf_counter() - began, float(model.log_likelihood()) - own_evidence
        print(
            f"GPy, parallel_updates={parallel}: {seconds:.2f} s = {seconds / own_seconds:.1f} fits, evidence {gap:+.1e}"
        )


def linear(n=100_000, d=50):
    X = RNG.normal(size=(n, d))
    y = np.where(X @ RNG.normal(size=d) + RNG.normal(size=n) > 0, 1.0, -1.0)
    problem = cv.models.latent_gaussian(y=y, likelihood=cv.factors.Probit(), X=X)
    for name, schedule in (("sequential", cv.InOrder()), ("parallel", cv.Parallel())):
        method = cv.EP(schedule=schedule)
        cv.infer(problem, method)
        began = time.perf_counter()
        solution = cv.infer(problem, method)
        per_sweep = (time.perf_counter() - began) / solution.sweeps
        print(
            f"linear, n = {n}, d = {d}, {name}: {per_sweep:.2f} s a sweep, {solution.sweeps} sweeps, {solution.status}"
        )


def folds(n=1000):
    X, y = data(n)
    before = _loop.advance_in_place._cache_size()
    for fold in range(10):
        kept = np.ones(n, bool)
        kept[fold * 97 : fold * 97 + 60 + 9 * fold] = False
        cv.GPClassifier(kernel=RBF(3.0), likelihood="probit", label_noise=0.0, optimize=False).fit(X[kept], y[kept])
    compilations = _loop.advance_in_place._cache_size() - before
    print(f"ten folds of {n - 60} to {n - 141} rows: {compilations} compilations of the loop")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sweeps()
    fits()
    linear()
    folds()
