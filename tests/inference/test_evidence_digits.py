"""The log evidence keeps its digits whatever the scale, the place and the weight of the data: 60 digits beside it."""

import numpy as np
import pytest
from evidence_cases import KINDS, verdict


@pytest.mark.parametrize("kind", KINDS)
def test_the_log_evidence_has_eight_digits_per_factor_or_the_status_says_not(kind):
    found = []
    for seed in range(6):
        name, run, exact, factors = kind(np.random.default_rng([seed, KINDS.index(kind)]))
        solution = run()
        found.append((verdict(solution, exact, factors), name, seed, float(solution.log_evidence), exact))
    assert [case for case in found if case[0] != "right"] == []
