"""One vocabulary for all workers, spoken here without a cluster: Request, Response, Measurement."""

import jax
import numpy as np
import pytest

from cavity.discrete import DiscreteGraph
from cavity.distributed._rounds import Measurement, Request, Response
from cavity.distributed.gaussian import pack_naturals
from cavity.distributed.graph_fit import cut_graph, load_part, measure_part, visit_part
from cavity.distributed.linear_shards import load_shard, measure_rows, visit_rows
from cavity.distributed.partitions import load_partition, visit_partition
from cavity.factors import Gaussian

RNG = np.random.default_rng(3)
X, Y = RNG.normal(size=(40, 2)), RNG.normal(size=40)
#: what 40 observations with unit noise say of the weights, whatever the rest says
EXACT = pack_naturals(X.T @ Y, X.T @ X)
CAVITY = pack_naturals(np.array([0.5, -1.0]), np.diag([2.0, 3.0]))


def gaussian_tilted(shard, mean, covariance, key):
    rows, y = shard
    precision = np.linalg.inv(covariance)
    found = np.linalg.inv(precision + rows.T @ rows)
    return found @ (precision @ mean + rows.T @ y), found


def row_shard():
    return load_shard([(X[:25], Y[:25]), (X[25:], Y[25:])], 0, Gaussian(1.0)), visit_rows


def partition():
    key = np.asarray(jax.random.key_data(jax.random.key(0)))
    return load_partition([(X, Y)], gaussian_tilted, key), visit_partition


@pytest.mark.parametrize("kind", [row_shard, partition])
def test_exact_sites_are_the_contribution_whatever_the_cavity(kind):
    shard, visit = kind()
    for cavity in (CAVITY, pack_naturals(np.zeros(2), np.eye(2))):
        response = visit(shard, Request(cavity, contribution=np.zeros(5)))
        assert type(response) is Response and response.linked and response.negative == 0
        np.testing.assert_allclose(response.contribution, EXACT, rtol=1e-8, atol=1e-8)


def test_a_measured_shard_has_its_contribution_and_no_mismatch():
    shard, visit = row_shard()
    response = visit(shard, Request(CAVITY))
    found = measure_rows(shard, Request(CAVITY, response.token))
    assert type(found) is Measurement and found.mismatch < 1e-8 and found.improper == found.nonfinite == 0
    np.testing.assert_allclose(found.contribution, EXACT, rtol=1e-8, atol=1e-8)


def test_a_part_of_a_graph_answers_in_the_same_words():
    """Alone it is the whole graph: two variables, summed out by hand."""
    table = np.array([[0.9, 0.1], [0.2, 0.8]])
    graph = DiscreteGraph([2, 2])
    graph.add_factor([0, 1], table)
    (plan,) = cut_graph(graph, 1).plans
    part = load_part([plan], 1.0)
    lost = measure_part(part, Request(np.zeros(0), "another"))
    assert type(lost) is Measurement and lost.mismatch == np.inf
    response = visit_part(part, Request(np.zeros(0)))
    assert type(response) is Response and response.linked and response.contribution.size == 0
    found = measure_part(part, Request(np.zeros(0), response.token))
    assert found.mismatch < 1e-8
    np.testing.assert_allclose(found.log_evidence, np.log(table.sum()), rtol=1e-9)
    np.testing.assert_allclose(found.marginals[0], table.sum(1) / table.sum(), rtol=1e-8)
