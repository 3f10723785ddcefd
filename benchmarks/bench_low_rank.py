"""Gaussian process classifiers carried by a basis: accuracy lost against the exact machine, time and CPU seconds.

Labels are draws of a known process seen through probit noise, so the kernel is right and what is lost is the
approximation's. `python benchmarks/bench_low_rank.py [accuracy] [large] [search] [default] [2-D] [8-D]`: these parts on
these problems, all by default.
"""

import resource
import sys
import time
import warnings

import jax
import numpy as np

import cavity as cv
from cavity.kernels import RBF, Constant

#: name: columns, length scale
PROBLEMS = {"2-D": (2, 0.5), "8-D": (8, 3.0)}
VARIANCE, TEST = 4.0, 10_000
SMALL, LARGE = 4_000, 20_000


def problem(name, n):
    """(X, y, X_test, y_test): the same process and test rows whatever n, the first n rows of one list."""
    columns, scale = PROBLEMS[name]
    rng = np.random.default_rng(columns)
    w, phase = rng.normal(size=(columns, 4000)) / scale, rng.uniform(0, 2 * np.pi, 4000)
    amplitude = np.sqrt(2 * VARIANCE / 4000) * rng.normal(size=4000)
    X = rng.normal(size=(LARGE + TEST, columns))
    f = np.concatenate([np.cos(part @ w + phase) @ amplitude for part in np.array_split(X, 20)])
    y = np.where(f + rng.normal(size=len(f)) > 0, 1, 0)
    return X[:n], y[:n], X[LARGE:], y[LARGE:]


def kernel(name):
    return Constant(VARIANCE) * RBF(PROBLEMS[name][1])


def fitted(name, n, **changes):
    """(estimator, test log loss, test error, wall seconds, CPU seconds of the fit)."""
    X, y, X_test, y_test = problem(name, n)
    known = {"kernel": kernel(name), "likelihood": "probit", "label_noise": 0.0, "optimize": False}
    model = cv.GPClassifier(**{**known, **changes})
    wall, used = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    wall, used = time.perf_counter() - wall, time.process_time() - used
    said = model.predict_proba(X_test)
    loss = -np.mean(np.log(said[np.arange(TEST), y_test]))
    return model, loss, np.mean(said.argmax(axis=1) != y_test), wall, used


def line(label, model, loss, error, wall, used, exact=None):
    lost = "" if exact is None else f"  loss {loss - exact:+.4f}"
    print(
        f"{label:32s} log loss {loss:.4f}{lost}  error {error:.4f}  log evidence {model.log_evidence_:10.1f}  "
        f"{model.status_}, {model.n_sweeps_} sweeps, {wall:6.1f} s, CPU {used:6.1f} s",
        flush=True,
    )


def accuracy(names):
    """What is lost on the smaller set, for a fixed kernel."""
    for name in names:
        found = fitted(name, SMALL, approximation=None)
        exact = found[1]
        line(f"{name}, {SMALL} rows, exact", *found)
        for kind, ranks in (("inducing", (50, 100, 200, 500, 1000)), ("features", (100, 200, 500, 1000, 2000))):
            for rank in ranks:
                line(f"{name}, {SMALL} rows, {kind} {rank}", *fitted(name, SMALL, approximation=kind, rank=rank), exact)
        for power in (0.5, 0.1):
            rule = cv.PowerEP(power, damping=min(1.0, 2 * power), tol=1e-6)
            found = fitted(name, SMALL, approximation="inducing", rank=100, method=rule)
            line(f"{name}, {SMALL} rows, inducing 100, power {power}", *found, exact)


def large(names):
    """The larger set with a fixed kernel, twice: without compilation, as folds and further classes have it."""
    for name in names:
        for kind, rank in (("inducing", 500), ("features", 1000)):
            for again in ("", ", again"):
                line(f"{name}, {LARGE} rows, {kind} {rank}{again}", *fitted(name, LARGE, approximation=kind, rank=rank))


def search(names):
    """Hyperparameters learned, from the kernel made for None; exact on the smaller set."""
    for name in names:
        known = {"kernel": None, "optimize": True}
        for n, kind, rank in (
            (SMALL, None, None),
            (SMALL, "inducing", 500),
            (SMALL, "inducing", 50),
            (SMALL, "learned", 50),
            (SMALL, "features", 1000),
            (LARGE, "inducing", 500),
            (LARGE, "features", 1000),
        ):
            found = fitted(name, n, approximation=kind, rank=rank, **known)
            points = len(found[0].models_[0].history)
            line(f"{name}, {n} rows, {kind or 'exact'} {rank or ''}, {points} points", *found)


def default(names):
    """What a user gets who asks for nothing: step likelihood with label noise 0.1, kernel learned, inducing inputs."""
    for name in names:
        X, y, X_test, y_test = problem(name, LARGE)
        wall, used = time.perf_counter(), time.process_time()
        model = cv.GPClassifier().fit(X, y)
        wall, used = time.perf_counter() - wall, time.process_time() - used
        said = model.predict_proba(X_test, noisy=True)
        loss, error = -np.mean(np.log(said[np.arange(TEST), y_test])), np.mean(said.argmax(axis=1) != y_test)
        line(f"{name}, {LARGE} rows, default", model, loss, error, wall, used)


if __name__ == "__main__":
    parts = {"accuracy": accuracy, "large": large, "search": search, "default": default}
    print(f"jax {jax.__version__}, {jax.devices()[0].platform}")
    names = [name for name in PROBLEMS if name in sys.argv] or [*PROBLEMS]
    for part in [part for part in parts if part in sys.argv] or parts:
        print(f"\n{part}")
        parts[part](names)
    print(f"\npeak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GB")
