"""The client's truth: replacing, damping, properness."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cavity.distributed._rounds import Response
from cavity.distributed.gaussian import Contributions, is_proper, pack_naturals, unpack_naturals


def diagonal(*values: float) -> np.ndarray:
    return pack_naturals(np.zeros(len(values)), np.diag(values))


def test_an_answer_replaces_what_the_shard_said_before():
    state = Contributions.flat(diagonal(1.0, 1.0), 2)
    for value in (3.0, 3.0, 5.0):
        state.replace({0: Response(diagonal(value, 0.0), linked=True, negative=0)}, 1.0)
    np.testing.assert_array_equal(unpack_naturals(state.total)[1], np.diag([6.0, 1.0]))
    np.testing.assert_array_equal(unpack_naturals(state.cavity(0))[1], np.eye(2))


def test_a_damped_step_is_a_share_of_the_way():
    state = Contributions.flat(diagonal(1.0), 1)
    assert state.replace({0: Response(diagonal(4.0), linked=True, negative=0)}, 0.25) == {0: 0.25}
    assert unpack_naturals(state.values[0])[1] == 1.0


def test_what_started_from_lost_sites_is_taken_whole():
    state = Contributions.flat(diagonal(1.0), 2)
    taken = state.replace(
        {0: Response(diagonal(4.0), linked=False, negative=0), 1: Response(diagonal(4.0), linked=True, negative=0)}, 0.5
    )
    assert taken == {0: 1.0, 1: 0.5}
    np.testing.assert_array_equal(state.values[:, 1], [4.0, 2.0])


def test_a_step_that_makes_a_cavity_improper_is_halved():
    # total = 1 + c₀ + c₁ stays positive, but without shard 1 only 1 + c₀ = 1 − 1.5 s would be left
    state = Contributions.flat(diagonal(1.0), 2)
    taken = state.replace(
        {0: Response(diagonal(-1.5), linked=True, negative=1), 1: Response(diagonal(4.0), linked=True, negative=0)}, 1.0
    )
    assert taken == {0: 0.5, 1: 0.5} and state.shortened == 1
    assert is_proper(state.cavity(1)) and is_proper(state.total)


def test_a_step_without_a_proper_share_is_given_up():
    state = Contributions.flat(diagonal(1.0), 1)
    assert state.replace({0: Response(np.full(2, np.nan), linked=True, negative=0)}, 1.0) == {0: 0.0}
    np.testing.assert_array_equal(state.total, diagonal(1.0))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.floats(-3, 3), st.floats(0.1, 1.0)), max_size=12))
def test_whatever_is_proposed_everything_stays_proper_and_balanced(moves):
    state = Contributions.flat(diagonal(1.0, 2.0), 3)
    for number, value, damping in moves:
        state.replace({number: Response(diagonal(value, -value / 2), linked=True, negative=1)}, damping)
        assert is_proper(state.total) and all(is_proper(state.cavity(k)) for k in range(3))
        np.testing.assert_allclose(state.prior + sum(state.values), state.total, atol=1e-14)
