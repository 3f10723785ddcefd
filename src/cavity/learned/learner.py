"""The regression of a learned operator: on the host it learns answers, compiled programs predict from its arrays.

The recommended one is Gaussian process regression of how far a factor moves its cavities. Which of the unsure sites it
queries is the acquisition rule of active learning: so that few answers serve all of them. `Audits` are queries about
confident predictions, to see whether the errors they expect are calibrated.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity.factors.base import Factor
from cavity.families.base import Family
from cavity.learned import gp_state
from cavity.learned.message_coordinates import anchor_flat, changes, proper_member, reference_for, steps_of
from cavity.learned.oracles import Answers, join_rows
from cavity.learned.simulation import count_outputs
from cavity.moments.base import Batch, Group


class MessagePrediction(NamedTuple):
    """A prediction for one site. site: the message.

    expected_kl: of the projection from the true one, and half the variance of log Z with it. confident: whether it may
    be used without a query. settled: whether more answers nearby would hardly improve it.
    """

    site: jax.Array
    log_z: jax.Array
    expected_kl: jax.Array
    confident: jax.Array
    settled: jax.Array


class Predictor(ABC):
    """The compiled half of a learner: a frozen dataclass of settings; what was learned is in the state it is given."""

    @abstractmethod
    def predict(self, state: Any, factor: Factor, family: Family, cavity: jax.Array, data: Any) -> MessagePrediction:
        """The prediction for one site; traced."""


class Learner(ABC):
    """Turns an oracle's answers into predictions."""

    #: all that compiled programs know of it beside its state: `predict`, and hashable settings it is compared by
    predictor: Predictor
    #: whether some of its confident predictions are to be audited
    audited: ClassVar[bool] = True
    #: how many answers were learned
    labels: int = 0

    @abstractmethod
    def state(self, group: Group, noisy: bool) -> Any:
        """What `predict` reads, of the same shapes whatever was learned. noisy: whether answers are sampled."""

    @abstractmethod
    def learn(self, batch: Batch, answers: Answers, now: bool = True) -> np.ndarray:
        """Learn answers about a batch, and say which could be used. now: whether predictions change at once."""

    @abstractmethod
    def select(self, batch: Batch, noisy: bool, most: int) -> np.ndarray:
        """Which of the unsure sites to query next, as places."""

    @abstractmethod
    def refit(self) -> None:
        """Let predictions follow from all answers so far."""

    @abstractmethod
    def inflate(self, factor: float) -> None:
        """Multiply computed variances by a factor, after audits found them too small; infinite: trust no prediction."""


@partial(jax.jit, static_argnames=("predictor", "family"))
def predict_sites(
    predictor: Predictor, state: Any, factor: Factor, family: Family, cavities: jax.Array, data: Any
) -> MessagePrediction:
    """Predictions for many sites, compiled."""
    return jax.vmap(partial(predictor.predict, state, factor, family))(cavities, data)


#: audits that are looked at, the latest ones; and how many it takes to judge
WINDOW, ENOUGH = 64, 8
#: by how much at most variances are counted for more than they are
MOST = 100.0


class Audits(NamedTuple):
    """kl: of the projection predicted from the one the oracle found. expected: before it was asked."""

    kl: np.ndarray = np.zeros(0)
    expected: np.ndarray = np.zeros(0)

    @property
    def ratio(self) -> float:
        """Mean of KL over expected KL, 1 if variances are right; nan while there are too few."""
        if len(self.kl) < ENOUGH:
            return float("nan")
        return float(np.mean(self.kl[-WINDOW:] / self.expected[-WINDOW:]))

    @property
    def inflation(self) -> float:
        """What variances are to be multiplied with, 1 at least."""
        return 1.0 if np.isnan(self.ratio) else float(np.clip(self.ratio, 1.0, MOST))


#: labels kept at first; more make the arrays larger
CAPACITY, NOISY_CAPACITY = 256, 512
#: expected KL, in units of that of one label, that is small enough where labels are noisy
SMALL = 0.1
#: widths of the kernel on standardised inputs before there are labels; and the variance that is left then
FIRST_WIDTH, FIRST_TOLERANCE = 2.0, 1e-3


@dataclass(frozen=True)
class GPPredictor(Predictor):
    """tol_kl: expected KL divergence above which it is unsure."""

    tol_kl: float

    def predict(
        self, state: gp_state.GPState, factor: Factor, family: Family, cavity: jax.Array, data: Any
    ) -> MessagePrediction:
        found = gp_state.forecast(state, family, cavity, data, count_outputs(factor))
        # Where it knows more than one label would tell, it need not wait for one.
        confident = (found.expected_kl <= jnp.maximum(self.tol_kl, found.label_kl)) & ~found.novel
        # But errors of neighbours are alike and add up in what they share: before a run ends, they are made small.
        settled = found.expected_kl <= jnp.maximum(self.tol_kl, SMALL * found.label_kl)
        return MessagePrediction(found.site, found.log_z, found.expected_kl, confident, confident & settled)


class GPLearner(Learner):
    """tol_kl: expected KL divergence above which it is unsure."""

    def __init__(self, tol_kl: float) -> None:
        self.tol_kl, self.predictor = tol_kl, GPPredictor(float(tol_kl))
        self.store: gp_state.Labels | None = None
        self.tuned: gp_state.TunedKernel | None = None
        self.tuned_at, self.capacity, self.inflation = 0, CAPACITY, 1.0
        self.reference: np.ndarray | None = None
        self._state: gp_state.GPState | None = None

    def state(self, group: Group, noisy: bool) -> gp_state.GPState:
        anchor = proper_member(group.family) if self.reference is None else self.reference
        steps = steps_of(group.family)
        size = steps + sum(np.prod(np.shape(leaf)[1:], dtype=int) for leaf in jax.tree.leaves(group.data))
        if self._state is None:
            self.capacity = max(self.capacity, NOISY_CAPACITY if noisy else CAPACITY)
            self._state = gp_state.prior_state(size, steps + 1, steps + 1 if noisy else 1, self.capacity, anchor)
        known = self._state.inputs.shape[1]
        if (known, len(self._state.scales), len(anchor)) != (size, steps + 1, group.family.size):
            raise ValueError(
                f"this operator has learned from sites of {known} numbers and messages of {len(anchor)} and is asked "
                f"about {size} and {group.family.size}: make one for each kind of variables and data."
            )
        return self._state

    def learn(self, batch: Batch, answers: Answers, now: bool = True) -> np.ndarray:
        good = np.isfinite(answers.projected).all(axis=1) & np.isfinite(answers.log_z)
        if good.any():
            if self.reference is None:
                self.reference = reference_for(batch.family, answers.projected[good])
            projected = np.where(good[:, None], answers.projected, 1.0)
            rows = pad_rows((batch.cavities, batch.data, projected, answers.log_z))
            found = label_rows(batch.family, count_outputs(batch.factor), jnp.asarray(self.reference), *rows)
            inputs, targets = (np.asarray(own)[: len(good)] for own in found)
            good &= np.isfinite(targets).all(axis=1)
            new = gp_state.Labels(inputs[good], targets[good], answers.spread[good])
            self.store = new if self.store is None else join_rows([self.store, new])
            self.labels = len(self.store.inputs)
        if now:
            self.refit()
        return good

    def refit(self) -> None:
        """New hyperparameters when the labels have doubled; then the posterior given all labels."""
        if self.store is None or self.reference is None or self.labels < 2:
            return
        if self.tuned is None or self.labels >= 2 * self.tuned_at:
            self.tuned, self.tuned_at = gp_state.tune(self.store, start=self.tuned), self.labels
        while self.labels > self.capacity:
            # Programs are compiled again; but a prediction reads all of these squares, filled or not.
            self.capacity += self.capacity // 4
        self._state = gp_state.posterior_state(self.store, self.tuned, self.capacity, self.inflation, self.reference)

    def inflate(self, factor: float) -> None:
        self.inflation = factor
        if self._state is not None:
            self._state = self._state._replace(inflation=np.asarray(factor, float))

    def select(self, batch: Batch, noisy: bool, most: int) -> np.ndarray:
        """At most so many sites. Where targets have covariances of their own, that of the largest variance decides."""
        state = self.state(batch, noisy)
        looked = candidate_errors(batch.family, state, batch.cavities, batch.data)
        places = np.flatnonzero(batch.unsure & np.isfinite(looked[0]).all(axis=1))
        if not len(places):
            return places
        inputs, variances, expected = (np.asarray(own)[places] for own in looked)
        if self.tuned is None:
            scaled = inputs / (FIRST_WIDTH * np.where(inputs.std(axis=0) > 1e-12, inputs.std(axis=0), 1.0))
            nothing, cost = np.zeros((len(inputs), 0)), np.ones(len(inputs))
            return places[select_pivots(scaled, nothing, cost, 1e-6, FIRST_TOLERANCE, most)]
        group = int(np.argmax(variances.sum(axis=0)))
        variance, scaled = variances[:, group], inputs / state.width
        explained = gp_state.kernel_between(scaled, state.inputs) @ state.inverse_root[group].T
        with np.errstate(invalid="ignore"):  # where nothing is trusted variances are infinite
            cost = float(state.inflation) * expected / np.maximum(variance, 1e-300)
        cost = np.where(variance > 0, np.nan_to_num(cost, nan=1.0, posinf=1e300), 1.0)
        noise = self.tuned.noise + float(state.floor[group])
        return places[select_pivots(scaled, explained, cost, noise, self.tol_kl, most)]


def select_pivots(
    scaled: np.ndarray, explained: np.ndarray, cost: np.ndarray, noise: float, tolerance: float, most: int
) -> np.ndarray:
    """Rows of at most so many sites, the largest expected error first, each of all before it.

    How much a label lowers variances is known before its query: they depend on inputs alone. This is a pivoted
    Cholesky decomposition of the predictive covariance, which ends when no site is unsure.

    scaled: inputs in widths. explained: L⁻¹ k of every site, what the labels explain of its variance. cost: expected
    KL per variance. noise: of a label.
    """
    residual = np.maximum(1.0 - np.sum(explained**2, axis=1), 0.0)
    picks: list[int] = []
    for _ in range(min(most, len(scaled))):
        gain = np.where(np.isin(np.arange(len(scaled)), picks), -1.0, residual * cost)
        best = int(np.argmax(gain))
        if picks and gain[best] <= tolerance:
            break
        picks.append(best)
        across = gp_state.kernel_between(scaled, scaled[[best]])[:, 0] - explained @ explained[best]
        column = across / np.sqrt(max(residual[best], 0.0) + noise)
        explained = np.concatenate([explained, column[:, None]], axis=1)
        residual = np.maximum(residual - column**2, 0.0)
    return np.array(picks)


def pad_rows(tree: Any, length: int = 16) -> Any:
    """Rows repeated to a multiple of a length, so that few lengths are compiled."""
    count = jax.tree.leaves(tree)[0].shape[0]
    places = np.resize(np.arange(count), -(-count // length) * length)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[places], tree)


@partial(jax.jit, static_argnames=("family", "outputs"))
def label_rows(family: Family, outputs: int, reference: jax.Array, *answered: Any) -> tuple[jax.Array, jax.Array]:
    """Inputs and targets of the regression. answered: cavities, data, projections and log Z, one row per answer."""

    def one(cavity: jax.Array, data: Any, projected: jax.Array, log_z: jax.Array) -> tuple[jax.Array, jax.Array]:
        start, site = anchor_flat(family, cavity, reference), projected - cavity
        excess = log_z - gp_state.log_overlap(family, cavity, site, outputs)
        steps = changes(family, start, start + site)
        return gp_state.inputs_of(family, start, data), jnp.concatenate([steps, excess[None]])

    return jax.vmap(one)(*answered)


@partial(jax.jit, static_argnames="family")
def candidate_errors(family: Family, state: gp_state.GPState, cavities: jax.Array, data: Any) -> tuple[jax.Array, ...]:
    """Inputs, variances and expected KL of many sites."""
    found = jax.vmap(lambda cavity, own: gp_state.forecast(state, family, cavity, own))(cavities, data)
    return found.inputs, found.variance, found.expected_kl
