"""TrueSkill as a graph: ratings against the package `trueskill`, probabilities of outcomes against simulation."""

import json
import runpy
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

ROOT = Path(__file__).parents[1]
MATCHES = json.loads((ROOT / "tables" / "true_skill.json").read_text(encoding="utf-8"))["matches"]


@pytest.fixture(scope="module")
def rate():
    return runpy.run_path(str(ROOT.parent / "examples" / "true_skill.py"))["rate"]


def margins(match):
    """The package's: the noise of all players of both teams within which the given share of equal matches are drawn."""
    sizes = [len(team) for team in match["teams"]]
    share = stats.norm.ppf((match["draw"] + 1) / 2)
    return [share * np.sqrt(a + b) * match["beta"] for a, b in pairwise(sizes)]


@pytest.mark.parametrize("match", MATCHES)
def test_ratings_are_those_of_the_package(rate, match):
    found = rate(match["skills"], match["teams"], match["ranks"], margins(match), match["beta"], match["tau"])
    mean, sd = np.array(match["after"]).T
    assert found.status == "converged"
    skill = found.marginals["skill"]
    np.testing.assert_allclose(skill.mean, mean, rtol=1e-6)
    np.testing.assert_allclose(np.sqrt(skill.variance), sd, rtol=1e-6)


def test_the_evidence_is_the_probability_of_the_outcome(rate):
    """A million matches of three teams. EP is not exact here: within 3 % of the share that ended so."""
    match, rng = MATCHES[2], np.random.default_rng(0)
    mean, sd = np.array(match["skills"], float).T
    shown = rng.normal(mean, np.sqrt(sd**2 + match["tau"] ** 2 + match["beta"] ** 2), (1_000_000, len(mean)))
    first, second, third = (shown[:, team].sum(axis=1) for team in match["teams"])
    limits = margins(match)
    share = np.mean((first - second > limits[0]) & (np.abs(second - third) < limits[1]))
    found = rate(match["skills"], match["teams"], match["ranks"], limits, match["beta"], match["tau"])
    assert np.exp(found.log_evidence) == pytest.approx(share, rel=0.03)
