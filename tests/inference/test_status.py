"""What statuses claim, recomputed outside the library on hard problems; `benchmarks/fuzz_status.py` has many more."""

import numpy as np
import pytest
from hard_cases import KINDS
from status_verdict import METHODS, verdict_on

import cavity as cv

#: kinds of every family and form, each with the methods that share most programs with others
RUNS = {
    "kernel, student_t": ("Auto", "RestrictedEP"),
    "weights, step": ("Auto", "PowerEP"),
    "inducing, logistic": ("EP",),
    "one number, clutter": ("Auto", "ConvergentEP"),
    "vector, diagonal": ("Auto", "RestrictedEP"),
    "Dirichlet": ("EP",),
    "Gamma": ("EP",),
    "network, spins": ("EP",),
}


@pytest.mark.parametrize("kind", RUNS)
def test_what_a_status_says_is_true(kind):
    found, converged = [], 0
    for name in RUNS[kind]:
        for seed in range(3):
            case = KINDS[kind](np.random.default_rng([seed, list(KINDS).index(kind)]), seed % 2 == 0)
            solution = cv.infer(case.problem, METHODS[name])
            converged += bool(solution.converged)
            found += [(name, seed, fault) for fault in verdict_on(case, solution).faults]
    assert found == [] and converged
