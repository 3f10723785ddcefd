"""Programs that fail, give other shapes or change their arguments: right numbers, or a sentence that names them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from misbehaving import PROGRAMS, REGIONAL, RIGHT, ProgramCase

import cavity as cv
from cavity.families import Beta, Categorical, Gamma, Gaussian, Product
from cavity.learned import Answers, Oracle, SamplerError, Simulator, every_time, just_in_time
from cavity.learned.sampling import Simulated

PAIR = Product((Gaussian(), Gaussian()))
CAVITY = np.array([[0.0, 1.0, 1.0, 1.0]])


def answer(program, family=PAIR, cavity=CAVITY, draws=1024):
    simulator = Simulator(program, len(family.families) - 1, 1)
    return Simulated(draws).answer(simulator, family, cavity, None, jax.random.key(0))


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
def test_a_program_is_answered_rightly_or_refused_by_name(name):
    program = ProgramCase(name, 0.5, 1.0)
    if name in RIGHT:
        # z ~ N(0, 1.25) before and z ~ N(1, 1) seen: precision 1.8, mean 1/1.8.
        found = answer(program, draws=2**14)
        assert found.projected[0, 3] == pytest.approx(1.8, rel=0.05)
        assert found.projected[0, 2] / found.projected[0, 3] == pytest.approx(1 / 1.8, abs=0.02)
        return
    with pytest.raises(SamplerError, match="the sampler ProgramCase") as refusal:
        answer(program)
    assert len(str(refusal.value)) < 400
    if name == "raises":
        assert isinstance(refusal.value.__cause__, ValueError)


@pytest.mark.parametrize("name", REGIONAL)
def test_a_region_that_is_never_visited_does_not_matter(name):
    assert np.isfinite(answer(ProgramCase(name, 30.0, 31.0)).projected).all()


@pytest.mark.parametrize(
    ("family", "value"),
    [(Gamma(), -0.1), (Beta(), 1.5), (Categorical(3), 3.0), (Categorical(3), 0.5), (Categorical(3), -1.0)],
)
def test_values_that_a_variable_cannot_have_are_refused(family, value):
    """An index out of range would be clamped to the last state without a word."""

    def program(rng, x):
        good = np.where(x > 0, 1.0, 0.0) if isinstance(family, Categorical) else np.full(len(x), 0.5)
        good[7] = value
        return good

    pair = Product((Gaussian(), family))
    cavity = np.concatenate([[0.0, 1.0], np.asarray(family.flat()) + 1.0])
    with pytest.raises(SamplerError, match=f"gave {value} for a {type(family).__name__} variable in 1 of"):
        answer(program, pair, cavity[None])


def graph_of(factor):
    graph = cv.FactorGraph()
    x, z = graph.gaussian(0.0, 1.0), graph.gaussian()
    graph.add(factor, x, z)
    graph.linear(z, variance=0.5, out=1.0)
    return graph, x


class Switched:
    """A program whose behaviour is another one when it is told so."""

    def __init__(self):
        self.now = ProgramCase("right", 0.0, 0.0)

    def __call__(self, rng, x):
        return self.now(rng, x)


class Stopped(BaseException):
    """Neither an error nor an interruption."""


def stopping(error):
    def program(rng, x):
        raise error

    return program


@pytest.fixture(scope="module")
def switched():
    """A program and the factor that asks it every time: all tests share what was compiled."""
    program = Switched()
    return program, every_time(program, ["x"], ["z"], draws=1024)


@pytest.mark.parametrize("name", ["raises", "nan", "a column", "objects"])
def test_a_failure_inside_a_compiled_program_is_raised_when_that_has_ended(switched, name):
    program, factor = switched
    program.now = ProgramCase(name, 0.5, 1.0)
    with pytest.raises(SamplerError, match="the sampler Switched") as refusal:
        cv.infer(graph_of(factor)[0], cv.EP())
    assert isinstance(refusal.value.__cause__, ValueError if name == "raises" else type(None))
    # And it is not raised again when the program has been mended: x + N(0, 3/4) is seen as 1.
    program.now = ProgramCase("in place", 0.0, 0.0)
    graph, x = graph_of(factor)
    found = cv.infer(graph, cv.EP())
    assert found.converged and found.marginals[x].mean == pytest.approx(1 / 1.75, abs=0.05)


def test_an_interruption_ends_a_run_with_its_last_state_and_other_exceptions_pass(switched):
    program, factor = switched
    program.now = stopping(KeyboardInterrupt())
    assert cv.infer(graph_of(factor)[0], cv.EP()).status == "interrupted"
    program.now = stopping(Stopped("no more"))
    with pytest.raises(Stopped, match="no more"):
        cv.infer(graph_of(factor)[0], cv.EP())


def test_an_interruption_while_a_program_is_learned_keeps_the_last_state():
    """It is asked between two sweeps, after a complete one."""
    factor = just_in_time(stopping(KeyboardInterrupt()), ["x"], ["z"], draws=1024)
    found = cv.infer(graph_of(factor)[0], cv.EP())
    assert found.status == "interrupted" and int(found.sweeps) == 1


def test_steps_of_a_loop_of_ones_own_raise_it_too(switched):
    program, factor = switched
    program.now = ProgramCase("nan", 0.5, 1.0)
    problem, method = graph_of(factor)[0].problem(), cv.EP()
    with pytest.raises(SamplerError, match="gave nan"):
        cv.stepping.step(problem, method, cv.stepping.init(problem, method))


class Tiring(Oracle):
    """exp(−x²/2) in closed form, as often as it likes; then it refuses."""

    def __init__(self, calls):
        self.calls = calls

    def is_noisy(self, factor, family):
        return False

    def answer(self, factor, family, cavities, data, key):
        self.calls -= 1
        nu, tau = np.asarray(cavities).T
        log_z = 0.5 * np.log(tau / (tau + 1)) - 0.5 * nu**2 / (tau * (tau + 1))
        log_z = log_z if self.calls >= 0 else np.full(len(nu), np.nan)
        projected = np.where(np.isfinite(log_z)[:, None], cavities + np.array([0.0, 1.0]), np.nan)
        return Answers(projected, log_z, np.zeros(len(nu)))


def run_with(oracle):
    density = cv.factors.from_log_density(lambda x, y: -0.5 * jnp.square(x))
    operator = cv.learned.JustInTime(oracle, tol_kl=1e-3)
    problem = cv.models.posterior(density, np.zeros(6), prior_variance=1.0)
    return cv.infer(problem.with_moments(operator), cv.EP(schedule=cv.Parallel())), operator.report()


def test_audits_that_are_refused_vouch_for_nothing():
    """With audits, six factors of precision 1 are found; without, the run does not claim to have converged."""
    healthy = Tiring(10_000)
    found, report = run_with(healthy)
    assert found.converged and found.covariance == pytest.approx(1 / 7, rel=1e-3)
    assert report.audits > 0 == report.refused_audits
    # The last call was the audit at the end.
    tired, report = run_with(Tiring(10_000 - healthy.calls - 1))
    assert report.refused_audits > 0 == report.audits
    assert tired.status == "unsure_factor" and int(tired.sweeps) < 50
