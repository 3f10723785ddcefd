"""What every method promises: one type, one way to solve, and an answer or a sentence under a trace."""

import ctypes
import dataclasses
import signal
from functools import partial

import jax
import numpy as np
import pytest
from support import draw_clutter

import cavity as cv
from cavity.inference import status
from cavity.inference._loop import advance_anew, advance_in_place
from cavity.inference.methods import sweeps
from cavity.inference.update_rule import UpdateRule

METHODS = [cv.ADF(), cv.EP(), cv.PowerEP(0.5), cv.RestrictedEP(), cv.RelaxedEP(0.1), cv.ConvergentEP(), cv.Auto()]


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_every_method_is_a_value_that_solves(method):
    assert isinstance(method, cv.Method) and method == dataclasses.replace(method)
    solution = cv.infer(cv.models.clutter(draw_clutter(11, 20)), method)
    assert solution.converged or solution.status == "single_pass"
    named = getattr(method, "first", method)
    assert str(solution.method) == str(named)


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_under_a_trace_a_method_answers_or_says_why_not(method):
    def mean(x):
        return cv.infer(cv.models.clutter(x), method).mean

    x = np.stack([draw_clutter(11, 20), draw_clutter(12, 20)])
    if method.sweeps is None:
        with pytest.raises(TypeError, match="driven from the host"):
            jax.vmap(mean)(x)
    else:
        known = [cv.infer(cv.models.clutter(own), method.sweeps).mean for own in x]
        np.testing.assert_allclose(jax.vmap(mean)(x), known, rtol=1e-6)


def test_a_new_kind_of_method_needs_no_word_of_the_others():
    @dataclasses.dataclass(frozen=True)
    class Twice(cv.Method):
        first: cv.Method
        tol: float = 1e-8

        def validate(self, problem):
            self.first.validate(problem)

        def solve(self, problem, init, key, limits):
            return cv.infer(problem, self.first, init=self.first.solve(problem, init, key, limits))

    problem = cv.models.clutter(draw_clutter(11, 20))
    assert cv.infer(problem, Twice(cv.EP())).converged
    with pytest.raises(TypeError, match="driven from the host"):
        jax.vmap(lambda x: cv.infer(cv.models.clutter(x), Twice(cv.EP())).mean)(np.zeros((2, 3)))


def test_the_name_of_a_method_is_not_part_of_what_is_compiled():
    assert type(cv.EP().as_compiled()) is UpdateRule
    assert cv.EP().as_compiled() == dataclasses.replace(cv.EP(), name="mine").as_compiled()
    problem = cv.models.clutter(draw_clutter(11, 20))
    cv.infer(problem, cv.EP())
    before = advance_in_place._cache_size()
    mine = dataclasses.replace(cv.EP(), name="mine")
    assert str(cv.infer(problem, mine).method) == "mine"
    assert advance_in_place._cache_size() == before


def test_a_pass_is_single_by_a_field_and_not_by_its_name():
    """EP under the name ADF goes on to its fixed point, and one pass under another name stays one."""
    problem = cv.models.clutter(draw_clutter(11, 20))
    assert cv.infer(problem, dataclasses.replace(cv.EP(), name="ADF")).status == "converged"
    assert cv.infer(problem, dataclasses.replace(cv.ADF(), name="EP")).status == "single_pass"


class Signal:
    """Its end sends an interruption, and does so in C, where Python cannot notice it."""

    __del__ = staticmethod(partial(ctypes.CDLL(None)["raise"], signal.SIGINT))  # `raise` is a word of Python


def test_an_interruption_between_a_result_and_its_name_loses_nothing(monkeypatch):
    """The signal is sent when the call gives up its variables, so that Python notices it when the call is over."""

    def advance(*args, **named):
        _signal = Signal()
        return advance_in_place(*args, **named)

    # Called from C, as compiled programs are.
    monkeypatch.setattr(sweeps, "advance_in_place", partial(advance))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        solution = cv.infer(cv.models.clutter(draw_clutter(11, 20)), cv.EP())
    finally:
        signal.signal(signal.SIGINT, before)
    assert solution.status == "interrupted" and solution.sweeps == 1


def test_an_interruption_before_a_result_hands_back_the_one_before(monkeypatch):
    """Where there is one, whose memory was not taken over."""
    complete = [advance_anew]

    def advance(*args, **named):
        if not complete:
            raise KeyboardInterrupt
        return complete.pop()(*args, **named)

    monkeypatch.setattr(sweeps, "advance_in_place", advance)
    problem = cv.models.clutter(draw_clutter(11, 20))
    assert cv.infer(problem, cv.EP()).status == "interrupted"
    with pytest.raises(KeyboardInterrupt):
        cv.infer(problem, cv.EP())


def test_every_result_says_in_the_same_words_how_it_ended():
    """Of one run a truth value, of a stack one per run, inside `jit` the same."""
    x = np.stack([draw_clutter(11, 20), draw_clutter(12, 20)])

    def run(x):
        return cv.infer(cv.models.clutter(x), cv.EP())

    assert run(x[0]).converged is True and cv.infer(cv.models.clutter(x[0]), cv.EP(max_sweeps=1)).converged is False
    np.testing.assert_array_equal(jax.vmap(run)(x).converged, [True, True])
    np.testing.assert_array_equal(jax.jit(jax.vmap(lambda x: run(x).converged))(x.astype(float)), [True, True])


def test_fixed_points_have_the_first_numbers():
    assert status.CODES[: len(status.FIXED_POINTS)] == status.FIXED_POINTS
