"""The first answer a user gets: fresh processes, with an empty and with a filled cache of compiled programs.

    python benchmarks/first_answer.py [CASE ...]     # with the project's own Python, on an otherwise idle machine

Every case runs in three fresh processes: two with an empty cache folder of their own ("empty" is the mean of their
times) and a third that finds the cache of the second. XDG_CACHE_HOME is where the library may keep what it compiled.
`warm` is the same call again in the third process.
"""

import os
import subprocess
import sys
import tempfile

CLASSES = "X[:, 0] + np.sin(2 * X[:, 1])"
CASES = {
    "import": "",
    "clutter": """
x = rng.normal(2, 1, 20)
def go(): return cv.infer(cv.models.clutter(x, w=0.5)).mean""",
    "network": """
def go():
    g = cv.DiscreteGraph([2] * 10)
    for i in range(10):
        g.add_factor([i], r(2))
        g.add_factor([i, (i + 1) % 10], r((2, 2)))
        g.add_factor([i, (i + 3) % 10], r((2, 2)))
    return cv.infer(g).status""",
    "mean-precision": """
y = rng.normal(2.0, 0.7, 30)
def go():
    g = cv.FactorGraph()
    m = g.gaussian(0.0, 10.0, name="m")
    p = g.gamma(1.0, 1.0, name="p")
    g.normal(m, p, out=y)
    return cv.infer(g, cv.EP()).status""",
    "ratings": """
P, M = 200, 2000
a = rng.integers(0, P, M)
b = (a + 1 + rng.integers(0, P - 1, M)) % P
def go():
    g = cv.FactorGraph()
    s = g.gaussian(np.full(P, 25.0), np.full(P, 69.0), name="skill")
    g.greater(g.linear(s[a], s[b], weights=(1, -1), variance=35.0), 0.0)
    return cv.infer(g, cv.EP(tol=1e-6)).status""",
    "classifier-100": f"""
X = rng.normal(size=(100, 3))
y = {CLASSES} > 0
def go(): return cv.GPClassifier().fit(X, y).predict_proba(X[:5])""",
    "classifier-1000": f"""
X = rng.normal(size=(1000, 3))
y = {CLASSES} + 0.3 * rng.normal(size=1000) > 0
def go(): return cv.GPClassifier().fit(X, y).predict_proba(X[:5])""",
    "bayes-point-1000": f"""
X = rng.normal(size=(1000, 3))
y = {CLASSES} + 0.3 * rng.normal(size=1000) > 0
def go(): return cv.BayesPointMachine().fit(X, y).predict_proba(X[:5])""",
    "latent-1000": """
X = rng.normal(size=(1000, 3))
y = np.where(X[:, 0] + 0.3 * rng.normal(size=1000) > 0, 1.0, -1.0)
def go():
    model = cv.models.latent_gaussian(y, cv.factors.Probit(), X=X, kernel=cv.kernels.RBF(1.0))
    return cv.infer(model, cv.EP(tol=1e-6)).status""",
}
PROGRAM = """
import time; t = time.perf_counter()
import numpy as np, cavity as cv
rng = np.random.default_rng(0); r = lambda s: rng.random(s) + 0.1
def go(): return None
{body}
go(); first = time.perf_counter() - t
t = time.perf_counter(); go(); print("RESULT", first, time.perf_counter() - t)
"""


def run(body: str, cache: str) -> tuple[float, float]:
    """Seconds until the first answer, import included, and of the same call again."""
    program = [sys.executable, "-c", PROGRAM.format(body=body)]
    env = os.environ | {"XDG_CACHE_HOME": cache}
    text = subprocess.run(program, env=env, capture_output=True, text=True, check=True).stdout
    first, again = map(float, text.split("RESULT")[1].split())
    return first, again


def main() -> None:
    """Print a line per case."""
    print(f"{'case':18s} {'empty':>7s} {'cached':>7s} {'warm':>7s}   seconds")
    for name in sys.argv[1:] or CASES:
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            empty = [run(CASES[name], folder)[0] for folder in (one, two)]
            cached, warm = run(CASES[name], two)
        print(f"{name:18s} {sum(empty) / 2:7.2f} {cached:7.2f} {warm:7.2f}", flush=True)


if __name__ == "__main__":
    main()
