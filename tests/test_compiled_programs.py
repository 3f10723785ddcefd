"""How many programs a first answer compiles, counted in a fresh process, and that another size compiles none.

Seconds depend on the machine; the number of programs does not. The bounds are what was reached.
"""

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import json
import jax
import numpy as np
import cavity as cv

programs = []

def listen(event, seconds, **about):
    if event.endswith("backend_compile_duration"):
        programs.append(about.get("fun_name"))

jax.monitoring.register_event_duration_secs_listener(listen)
rng = np.random.default_rng(0)
{definitions}
counts = []
for n in {sizes}:
    go(n)
    counts.append(len(programs))
    programs.clear()
print(json.dumps(counts))
"""
DATA = """
def data(n):
    X = rng.normal(size=(n, 3))
    return X, X[:, 0] + np.sin(2 * X[:, 1]) + 0.3 * rng.normal(size=n) > 0
"""
#: what is done, with how many rows and then again with how many, and the programs that may be compiled each time
CASES = {
    "clutter": (
        """
def go(n):
    assert cv.infer(cv.models.clutter(rng.normal(2, 1, n), w=0.5)).converged""",
        (20, 20),
        (10, 0),
    ),
    "network": (
        """
def go(n):
    g = cv.DiscreteGraph([2] * n)
    for i in range(n):
        g.add_factor([i], rng.random(2) + 0.1)
        g.add_factor([i, (i + 1) % n], rng.random((2, 2)) + 0.1)
        g.add_factor([i, (i + 3) % n], rng.random((2, 2)) + 0.1)
    assert cv.infer(g, cv.EP()).converged""",
        (10, 10),
        (10, 0),
    ),
    "mean and precision": (
        """
def go(n):
    g = cv.FactorGraph()
    g.normal(g.gaussian(0.0, 10.0), g.gamma(1.0, 1.0), out=rng.normal(2.0, 0.7, n))
    assert cv.infer(g, cv.EP()).converged""",
        (30, 30),
        (11, 0),
    ),
    "latent Gaussian": (
        DATA
        + """
def go(n):
    X, y = data(n)
    model = cv.models.latent_gaussian(np.where(y, 1, -1), cv.factors.Probit(), X=X, kernel=cv.kernels.RBF(1.0))
    assert cv.infer(model, cv.EP(tol=1e-6)).converged""",
        (100, 98),
        (10, 0),
    ),
    "classifier": (
        DATA
        + """
def go(n):
    X, y = data(n)
    cv.GPClassifier(label_noise=0.1, likelihood="probit").fit(X, y).predict_proba(X[:5])""",
        (100, 98),
        (22, 0),
    ),
    "linear classifier": (
        DATA
        + """
def go(n):
    X, y = data(n)
    cv.BayesPointMachine(label_noise=0.1, likelihood="probit").fit(X, y).predict_proba(X[:5])""",
        (300, 290),
        (14, 0),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_first_answer_compiles_few_programs_and_another_size_none(name):
    definitions, sizes, bounds = CASES[name]
    program = PROGRAM.format(definitions=definitions, sizes=sizes)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=os.environ, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout.splitlines()[-1])
    assert all(count <= bound for count, bound in zip(counts, bounds, strict=True)), counts
