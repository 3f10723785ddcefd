"""Just-in-time operators: a factor whose messages are predicted where that is safe, and asked for where it is not.

Inside the compiled sweep a site is predicted, or left as it was if the expected error is too large. Between sweeps the
host takes the sites that were left, chooses few of them that tell most about all, asks the oracle, and learns.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity.factors.base import Factor, factor, is_one, static
from cavity.families.base import Family, Tilted
from cavity.learned.coordinates import changes, parts_of, statistics_of
from cavity.learned.knowledge import Guess, Knowledge, Labels, guess, ignorant, inputs_of, learned, targets_of
from cavity.learned.oracles import Integrated, Oracle
from cavity.learned.pivoting import chosen
from cavity.learned.tuning import Tuned, tune
from cavity.moments.base import Moments
from cavity.moments.quadrature import Quadrature
from cavity.numerics import checks
from cavity.numerics.precision import float64

#: sites asked about at a time, before what they tell is used to choose the next
ROUND = 16
#: labels kept at first; more make the arrays twice as large
CAPACITY = 256
#: effective sample size below which an answer of the oracle is refused
LEAST_ESS = 200.0


class Report(NamedTuple):
    """What an operator was asked and did. consults: of the oracle. refusals: answers that could not be used."""

    consults: int
    refusals: int
    labels: int


class Operator:
    """The part of a just-in-time factor that lives on the host: labels, hyperparameters, the oracle."""

    def __init__(self, inner: Factor, oracle: Oracle, tol_kl: float, key: jax.Array) -> None:
        self.inner, self.oracle, self.tol_kl, self.key = inner, oracle, tol_kl, key
        self.labels: Labels | None = None
        self.tuned: Tuned | None = None
        self.tuned_at, self.consults, self.refusals = 0, 0, 0
        self.capacity = CAPACITY
        self.knowledge: Knowledge | None = None
        self._compiled: dict[Any, Callable[..., Any]] = {}

    def compiled(self, question: str, family: Family, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function over sites, compiled once a family."""
        if (question, family) not in self._compiled:
            self._compiled[question, family] = jax.jit(function)
        return self._compiled[question, family]

    def known(self, family: Family, data: Any) -> Knowledge:
        """The latest knowledge; data: of one site."""
        size, targets = inputs_of(family, family.uniform() + 1.0, data).shape[0], targets_of(family)
        if self.knowledge is None:
            self.knowledge = ignorant(size, targets, self.capacity)
        if (self.knowledge.inputs.shape[1], self.knowledge.scales.shape[0]) != (size, targets):
            raise ValueError(
                f"this operator has learned from sites of {self.knowledge.inputs.shape[1]} numbers and is asked about "
                f"{size}: make one for each kind of variables and data."
            )
        return self.knowledge

    def guesses(self, family: Family, cavities: jax.Array, data: Any) -> Guess:
        """Predictions for many sites."""
        one = self.compiled("guess", family, jax.vmap(guess_with(family), in_axes=(None, 0, 0)))
        return one(self.known(family, jax.tree.map(lambda leaf: leaf[0], data)), cavities, data)

    def ask(self, family: Family, cavities: jax.Array, data: Any, places: np.ndarray) -> None:
        """Labels of the sites at these places, learned."""
        self.key, own = jax.random.split(self.key)
        rows = jax.tree.map(lambda leaf: jnp.asarray(leaf)[places], (cavities, data))
        answers = self.oracle.answer(family, np.asarray(rows[0]), rows[1], own)
        look = self.compiled("label", family, jax.vmap(partial(labelled, family)))
        filled = np.resize(np.arange(len(places)), ROUND)
        inputs, steps = look(*jax.tree.map(lambda leaf: leaf[filled], (*rows, jnp.asarray(answers.projected))))
        targets = np.concatenate([np.asarray(steps)[: len(places)], answers.log_z[:, None]], axis=1)
        good = np.asarray(np.isfinite(targets).all(axis=1))
        self.consults, self.refusals = self.consults + len(places), self.refusals + int((~good).sum())
        new = Labels(np.asarray(inputs)[: len(places)][good], targets[good], answers.spread[good])
        self.labels = new if self.labels is None else self.labels.with_more(new)
        self.learn()

    def learn(self) -> None:
        """New hyperparameters when the labels have doubled; then what the labels tell."""
        assert self.labels is not None
        count = len(self.labels.inputs)
        if count < 2:
            return
        if self.tuned is None or count >= 2 * self.tuned_at:
            self.tuned, self.tuned_at = tune(*self.labels, start=self.tuned), count
        while count > self.capacity:
            self.capacity *= 2
        self.knowledge = learned(self.labels, self.tuned, self.capacity)

    def report(self) -> Report:
        """What happened so far."""
        labels = 0 if self.labels is None else len(self.labels.inputs)
        return Report(self.consults, self.refusals, labels)


def labelled(family: Family, cavity: jax.Array, data: Any, projected: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Inputs and targets, without log Z."""
    return inputs_of(family, cavity, data), changes(family, cavity, projected)


def just_in_time(
    inner: Factor, *, oracle: Moments | Oracle | None = None, tol_kl: float = 1e-5, key: jax.Array | None = None
) -> "JustInTime":
    """A factor that learns to send the messages of another while it is used, and asks where it is unsure.

    It can stand wherever the other can. What it has learned serves every model it is put into.

    Args:
        inner: the factor.
        oracle: how `inner` is integrated when asked, `cavity.Quadrature()` by default; or an `Oracle`.
        tol_kl: expected KL divergence, of exact from predicted projection, beyond which the oracle is asked.
        key: of the oracle's draws.
    """
    if not isinstance(inner, Factor):
        raise TypeError(f"inner must be a factor; found {type(inner).__name__}.")
    checks.positive("tol_kl", tol_kl)
    oracle = Quadrature() if oracle is None else oracle
    if not isinstance(oracle, Moments | Oracle):
        raise TypeError(f"oracle must be a strategy such as cavity.Quadrature(); found {type(oracle).__name__}.")
    oracle = Integrated(inner, oracle, LEAST_ESS, ROUND) if isinstance(oracle, Moments) else oracle
    return JustInTime(Operator(inner, oracle, tol_kl, jax.random.key(0) if key is None else key))


def guess_with(family: Family) -> Callable[[Knowledge, jax.Array, Any], Guess]:
    """`guess` of one family."""
    return lambda known, cavity, data: guess(known, family, cavity, data)


@factor
class JustInTime(Factor):
    """A factor that is predicted by an operator. knowledge: what the operator knew when a run began."""

    operator: Operator = static()
    knowledge: Any = None

    learns: ClassVar[bool] = True
    closed_forms: ClassVar[tuple[str, ...]] = ("families whose messages can be learned, power 1",)

    def check(self, data: Any) -> None:
        self.operator.inner.check(data)

    def report(self) -> Report:
        """What the operator was asked, and did."""
        return self.operator.report()

    def log_density(self, x: Any, data: Any) -> jax.Array:
        return self.operator.inner.log_density(x, data)

    def tilted(self, family: Family, cavity: jax.Array, data: Any, power: float) -> Tilted:
        if not is_one(power):
            return NotImplemented
        parts_of(family)
        known = self.operator.known(family, data) if self.knowledge is None else self.knowledge
        found = guess(known, family, cavity, data)
        sure = (found.expected_kl <= self.operator.tol_kl) & ~found.novel
        site = jnp.where(sure, found.projected - cavity, 0.0)
        # No number at all where it is unsure: the site stays as it was, and the host is told.
        log_z = jnp.where(sure, found.log_z, jnp.nan)
        return Tilted(log_z, statistics_of(family, cavity, site), site)

    @float64
    def current(self, family: Family, data: Any) -> "JustInTime":
        """With the latest knowledge."""
        one = jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], data)
        return JustInTime(self.operator, self.operator.known(family, one))

    @float64
    def consulted(self, family: Family, cavities: jax.Array, data: Any, silent: np.ndarray) -> "JustInTime":
        """After asking about so many of the silent sites that the others can be predicted, and about none twice.

        An answer that was refused, or is too noisy to make its own site sure, is asked for again after the next sweep.
        """
        data, operator = jax.tree.map(jnp.asarray, data), self.operator
        look = operator.compiled("inputs", family, jax.vmap(lambda c, d: inputs_of(family, c, d)))
        inputs = np.asarray(look(cavities, data))
        waiting = silent & np.asarray(family.is_proper(cavities)) & np.isfinite(inputs).all(axis=1)
        while True:
            found = operator.guesses(family, cavities, data)
            unsure = ~(np.asarray(found.expected_kl) <= operator.tol_kl) | np.asarray(found.novel)
            open_ = np.flatnonzero(waiting & unsure)
            if not len(open_):
                return self.current(family, data)
            picks = chosen(
                inputs[open_], np.asarray(found.variance)[open_], np.asarray(found.expected_kl)[open_], operator, ROUND
            )
            places = open_[picks]
            operator.ask(family, cavities, data, places)
            waiting[places] = False
