"""Every family against 80-digit values: shapes 1e-6…1e8, precisions 1e-12…1e12, means up to 1e6."""

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from support import Compiled

from cavity.families import (
    Beta,
    Categorical,
    DiagonalGaussian,
    Dirichlet,
    FullGaussian,
    Gamma,
    Gaussian,
    SphericalGaussian,
)

EPS = np.finfo(float).eps
MAKE = {
    "Beta": lambda n: Beta(),
    "Gamma": lambda n: Gamma(),
    "Dirichlet": Dirichlet,
    "Gaussian": lambda n: Gaussian(),
    "DiagonalGaussian": lambda n: DiagonalGaussian(n // 2),
    "SphericalGaussian": lambda n: SphericalGaussian(n - 1),
    "FullGaussian": lambda n: FullGaussian(3),
    "Categorical": lambda n: Categorical(n // 2),
}


def load():
    """Cases grouped by family and length of eta, so that each group is one batched call."""
    groups = defaultdict(list)
    for case in json.loads((Path(__file__).parents[1] / "tables" / "families.json").read_text()):
        groups[case["family"], len(case["eta"])].append(case)
    return groups


GROUPS = load()


@pytest.fixture(params=GROUPS, ids=lambda key: f"{key[0]}-{key[1]}")
def group(request):
    cases = GROUPS[request.param]
    name, size = request.param
    table = {key: np.array([case[key] for case in cases]) for key in cases[0] if key not in ("family", "at")}
    return Compiled(MAKE[name](size)), table, cases[0].get("at", slice(None))


def slack(family, eta):
    """Units in the last place allowed: a handful, and the condition number where a matrix must be inverted."""
    if not isinstance(family.part, FullGaussian):
        return 20 * EPS
    return 20 * EPS * np.max(np.linalg.cond(np.asarray(family.precision(eta))))


def test_log_partition(group):
    family, table, _ = group
    eta, truth = table["eta"], table["log_partition"]
    mu = np.asarray(family.moments(eta))
    # A changes by eps × Σ |eta_k mu_k| when eta is rounded; nothing computed from eta can do better.
    scale = 1 + np.abs(truth) + np.sum(np.abs(eta[:, : mu.shape[1]] * mu), axis=1)
    assert np.max(np.abs(family.log_partition(eta) - truth) / scale) < slack(family, eta)


@pytest.mark.parametrize("name", ["moments", "mean", "covariance"])
def test_relative_accuracy(group, name):
    family, table, at = group
    truth = table[name]
    if truth.size == 0:  # a million numbers a member are not tabulated; the formula is short enough to write again
        assert name == "covariance" and isinstance(family.part, Dirichlet)
        share = table["eta"] / table["eta"].sum(axis=1, keepdims=True)
        truth = np.einsum("ni,ij->nij", share, np.eye(share.shape[1])) - share[:, :, None] * share[:, None, :]
        truth = truth / (table["eta"].sum(axis=1) + 1)[:, None, None]
        off = ~np.eye(share.shape[1], dtype=bool)
        value = np.asarray(family.covariance(table["eta"]))
        np.testing.assert_allclose(value[:, off], truth[:, off], rtol=1e-12)
        return
    value = np.asarray(getattr(family, name)(table["eta"]))
    value = value[:, at] if value.ndim == 2 and name != "covariance" else value
    assert np.all(np.abs(value - truth) <= slack(family, table["eta"]) * np.abs(truth))


def test_entropy(group):
    family, table, _ = group
    gap = np.abs(family.entropy(table["eta"]) - table["entropy"]) / (1 + np.abs(table["entropy"]))
    assert np.max(gap) < slack(family, table["eta"])


def test_kl_has_relative_accuracy_even_between_close_members(group):
    family, table, _ = group
    value, truth = np.asarray(family.kl(table["eta"], table["other"])), table["kl"]
    finite = np.isfinite(truth)
    assert np.all(value[~finite] == truth[~finite])
    allowed = max(1e-12, slack(family, table["eta"]))
    assert np.all(np.abs(value[finite] - truth[finite]) <= allowed * truth[finite])
    assert np.all(np.asarray(family.kl(table["eta"], table["eta"])) == 0)
