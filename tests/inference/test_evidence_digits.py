"""Evidence, means and variances keep their digits whatever scale, place and weight the data have: 60 digits beside."""

import pytest
from evidence_cases import KINDS, outcome
from model_cases import MODELS

CASES = 4


@pytest.mark.parametrize("kind", [*KINDS, *MODELS])
def test_there_are_eight_digits_per_factor_or_a_status_or_warning_says_not(kind):
    number = (*KINDS, *MODELS).index(kind)
    found = [outcome(kind, [seed, number]) for seed in range(CASES)]
    assert [own.note for own in found if own.verdict == "wrong"] == []
    assert sum(own.verdict == "right" for own in found) >= CASES // 2
