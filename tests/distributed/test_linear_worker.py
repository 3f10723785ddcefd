"""What a worker does, without a cluster: tokens, shares of steps, sites lost and found again."""

import numpy as np
import pytest
from shard_reference import draw_rows, probit_ep

from cavity.distributed._rounds import Request
from cavity.distributed.gaussian import divergence, pack_naturals, packed_size, to_moments
from cavity.distributed.linear_shards import Shard, measure_rows, visit_rows
from cavity.factors import Probit
from cavity.models._latent_gaussian.linear_model import LinearRows

X, Y = draw_rows(1, 30, 3)
#: what the rest of the data is supposed to say
CAVITY = pack_naturals(np.array([0.3, -0.2, 0.1]), np.diag([2.0, 3.0, 4.0]))


def fresh() -> Shard:
    return Shard(LinearRows.of(X, Y, Probit()))


@pytest.fixture(scope="module")
def settled():
    """A shard visited until it has settled against one cavity, and its last response."""
    shard = fresh()
    response = visit_rows(shard, Request(CAVITY, None, 1.0, 1e-10))
    for _ in range(20):
        response = visit_rows(shard, Request(CAVITY, response.token, 1.0, 1e-10))
    assert response.linked and response.mismatch < 1e-10
    return shard, response


def test_a_shard_alone_is_ep_under_the_prior_it_is_told():
    shard, prior = fresh(), pack_naturals(np.zeros(3), np.eye(3))
    response = visit_rows(shard, Request(prior, None, 1.0, 1e-10))
    for _ in range(20):
        response = visit_rows(shard, Request(prior, response.token, 1.0, 1e-10))
    mean, covariance, log_evidence = probit_ep(X, Y)
    q = to_moments(prior + response.contribution)
    np.testing.assert_allclose(q.mean, mean, atol=1e-8)
    np.testing.assert_allclose(q.covariance, covariance, atol=1e-8)
    found = measure_rows(shard, Request(prior, response.token, 1.0, 1e-10))
    assert found.mismatch < 1e-8
    apart = divergence(prior + response.contribution, prior)
    np.testing.assert_allclose(found.log_evidence - apart, log_evidence, atol=1e-8)


def test_lost_sites_are_found_again_against_the_same_cavity(settled):
    _, response = settled
    again = visit_rows(fresh(), Request(CAVITY, response.token, 1.0, 1e-10))
    assert not again.linked
    np.testing.assert_allclose(again.contribution, response.contribution, atol=1e-7)


def test_a_shard_without_the_sites_that_are_meant_has_nothing_to_measure(settled):
    shard, _ = settled
    assert measure_rows(shard, Request(CAVITY, "another", 1.0, 1e-10)).mismatch == np.inf


def test_a_share_of_a_step_moves_the_sites_as_the_client_moves_the_contribution():
    shard = fresh()
    first = visit_rows(shard, Request(CAVITY, None, 1.0, 1e-10))
    other = pack_naturals(np.array([-1.0, 0.5, 0.0]), np.diag([1.0, 1.0, 9.0]))
    second = visit_rows(shard, Request(other, first.token, 1.0, 1e-10))
    for share in (0.0, 0.25, 1.0):
        found = measure_rows(shard, Request(other, second.token, share, 1e-10))
        expected = first.contribution + share * (second.contribution - first.contribution)
        np.testing.assert_allclose(found.contribution, expected, atol=1e-12)


def test_a_request_and_a_response_hold_one_packed_vector_each(settled):
    _, response = settled
    assert response.contribution.shape == CAVITY.shape == (packed_size(3),)
    assert response.contribution.dtype == np.float64
