"""Rounds with a pool that answers at once: order, ends, shorter steps."""

import numpy as np
import pytest

from cavity.distributed._rounds import Response, RoundOptions, Rounds
from cavity.distributed.gaussian import Contributions, pack_naturals
from cavity.inference.status import Status


class AtOnce:
    """A pool of functions of a request; slow shards answer only when nobody else is left."""

    def __init__(self, functions, slow=()):
        self.loaders, self.slow, self.pending, self.order = functions, slow, {}, []

    def check_workers(self):
        pass

    def ask(self, number, visit, request):
        self.pending[number] = visit(number, request)

    def answers(self):
        while self.pending:
            number = min(self.pending, key=lambda k: (k in self.slow, self.order.count(k), k))
            self.order.append(number)
            yield number, self.pending.pop(number)


def rounds_of(functions, slow=(), **options):
    """Shards of one weight: function(mean of the cavity) → (shift, precision) of the contribution."""
    state = Contributions.flat(pack_naturals(np.zeros(1), np.eye(1)), len(functions))
    last = {}

    def visit(number, request):
        shift, precision = functions[number](request.cavity[0] / request.cavity[1])
        found = np.array([shift, precision])
        moved = np.abs(found - last.get(number, np.full(2, np.inf))).max()
        last[number] = found
        return Response(found, f"{number}", mismatch=float(moved))

    rounds = Rounds(AtOnce(functions, slow), state, RoundOptions(tol=1e-10, **{"max_rounds": 50, **options}), None)
    rounds.visit = visit
    return rounds


CONSTANT = [lambda m: (1.0, 2.0), lambda m: (-0.5, 1.0), lambda m: (0.25, 0.5)]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_does_not_depend_on_others_is_settled_when_asked_twice(asynchronous):
    rounds = rounds_of(CONSTANT, asynchronous=asynchronous)
    assert rounds.make_rounds() is Status.CONVERGED
    np.testing.assert_array_equal(rounds.state.total, [0.75, 4.5])
    assert len(rounds.residuals) == 2


def test_fast_shards_go_on_while_one_is_slow():
    pulled = [lambda m, a=a: (a + 0.3 * np.tanh(m), 1.0) for a in (0.5, -0.2, 0.1)]
    rounds = rounds_of(pulled, slow=(2,), asynchronous=True)
    assert rounds.make_rounds() is Status.CONVERGED
    asked = [rounds.pool.order.count(k) for k in range(3)]
    assert min(asked[:2]) > asked[2] >= 2
    together = rounds_of(pulled)
    together.make_rounds()
    np.testing.assert_allclose(rounds.state.total, together.state.total, atol=1e-8)


def test_limits_end_the_rounds():
    turning = [lambda m: (1.0 - m, 1.0), lambda m: (m, 1.0)]
    assert rounds_of(turning, max_rounds=3).make_rounds() is Status.MAX_SWEEPS
    assert rounds_of(turning, max_seconds=1e-9, asynchronous=True).make_rounds() is Status.TIME_BUDGET


def test_a_growing_mismatch_shortens_the_steps_for_a_while_and_lost_sites_do_not():
    rounds = rounds_of(CONSTANT)
    for residuals, step in (
        ([1.0, 0.5, 0.1], 1.0),
        ([1.0, 3.9], 1.0),
        ([1.0, 4.1], 0.5),
        ([1.0, 4.1, 20.0], 0.25),
        ([1.0, np.inf, 0.5], 1.0),
        ([1.0, *4.1 ** np.arange(1, 12)], 1 / 16),
        ([1.0, 4.1, *0.5 ** np.arange(7)], 0.5),
        ([1.0, 4.1, *0.5 ** np.arange(8)], 1.0),
    ):
        rounds.residuals = list(residuals)
        assert rounds.step == step


def test_swinging_shards_settle_by_shorter_steps():
    # Each answers the other's past three times over: undamped the answers grow, on the average they agree.
    swinging = [lambda m: (1.0 - 9.0 * m, 1.0), lambda m: (1.0 - 9.0 * m, 1.0)]
    rounds = rounds_of(swinging, max_rounds=400)
    assert rounds.make_rounds() is Status.CONVERGED
    shift = rounds.state.values[0, 0]  # s = 1 − 9 (s / 2)
    np.testing.assert_allclose(shift, 1 / 5.5, atol=1e-8)
