"""The recommended learner: Gaussian process regression of how far a factor moves its cavities."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity.factors.base import Factor
from cavity.families.base import Family
from cavity.learned.acquisition import Candidates, FittedGP, select_queries
from cavity.learned.gp_state import (
    GPState,
    Labels,
    count_targets,
    forecast,
    inputs_of,
    log_overlap,
    posterior_state,
    prior_state,
)
from cavity.learned.learner import Learner, MessagePrediction
from cavity.learned.message_coordinates import anchor_flat, changes, parts_of, reference_for
from cavity.learned.oracles import Answers
from cavity.learned.simulation import count_outputs
from cavity.learned.tuning import TunedKernel, tune
from cavity.moments.base import Batch, Group

#: labels kept at first; more make the arrays larger
CAPACITY, NOISY_CAPACITY = 256, 512
#: expected KL, in units of that of one label, that is small enough where labels are noisy
SMALL = 0.1


class GPLearner(Learner):
    """tol_kl: expected KL divergence above which it is unsure."""

    def __init__(self, tol_kl: float) -> None:
        self.tol_kl = tol_kl
        self.store: Labels | None = None
        self.tuned: TunedKernel | None = None
        self.tuned_at, self.capacity, self.inflation = 0, CAPACITY, 1.0
        self.reference: np.ndarray | None = None
        self._state: GPState | None = None

    @property
    def labels(self) -> int:
        return 0 if self.store is None else len(self.store.inputs)

    def state(self, group: Group, noisy: bool) -> GPState:
        family = group.family
        blank = reference_before(family)
        anchor = blank if self.reference is None else self.reference
        one = jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], group.data)
        size = jax.eval_shape(lambda cavity, own: inputs_of(family, cavity, own), reference_before(family), one).shape[
            0
        ]
        targets = count_targets(family)
        if self._state is None:
            groups = targets if noisy else 1
            self.capacity = max(self.capacity, NOISY_CAPACITY if groups > 1 else CAPACITY)
            self._state = prior_state(size, targets, groups, self.capacity, anchor)
        if (self._state.inputs.shape[1], self._state.scales.shape[0], len(anchor)) != (size, targets, family.size):
            raise ValueError(
                f"this operator has learned from sites of {self._state.inputs.shape[1]} numbers and is asked about "
                f"{size}: make one for each kind of variables and data."
            )
        return self._state

    def predict(
        self, state: GPState, factor: Factor, family: Family, cavity: jax.Array, data: Any
    ) -> MessagePrediction:
        found = forecast(state, family, cavity, data, count_outputs(factor))
        # Where it knows more than one label would tell, it need not wait for one.
        confident = (found.expected_kl <= jnp.maximum(self.tol_kl, found.label_kl)) & ~found.novel
        # But errors of neighbours are alike and add up in what they share: before a run ends, they are made small.
        settled = found.expected_kl <= jnp.maximum(self.tol_kl, SMALL * found.label_kl)
        return MessagePrediction(found.site, found.log_z, found.expected_kl, confident, confident & settled)

    def learn(self, batch: Batch, answers: Answers, now: bool = True) -> np.ndarray:
        good = np.isfinite(answers.projected).all(axis=1) & np.isfinite(answers.log_z)
        if self.reference is None and good.any():
            self.reference = reference_for(batch.family, answers.projected[good])
        if good.any():
            outputs, anchor = count_outputs(batch.factor), jnp.asarray(self.reference)
            projected = jnp.asarray(np.where(good[:, None], answers.projected, 1.0))
            rows = pad_rows((jnp.asarray(batch.cavities), batch.data, projected))
            inputs, steps, overlap = label_inputs(batch.family, outputs, anchor, *rows)
            count = len(good)
            excess = answers.log_z - np.asarray(overlap)[:count]
            targets = np.concatenate([np.asarray(steps)[:count], excess[:, None]], axis=1)
            good &= np.isfinite(targets).all(axis=1)
            new = Labels(np.asarray(inputs)[:count][good], targets[good], answers.spread[good])
            self.store = new if self.store is None else self.store.append(new)
        if now:
            self.refit()
        return good

    def refit(self) -> None:
        """New hyperparameters when the labels have doubled; then the posterior given all labels."""
        if self.store is None or self.labels < 2:
            return
        if self.tuned is None or self.labels >= 2 * self.tuned_at:
            self.tuned, self.tuned_at = tune(*self.store, start=self.tuned), self.labels
        while self.labels > self.capacity:
            # Programs are compiled again; but a prediction reads all of these squares, filled or not.
            self.capacity += self.capacity // 4
        self._state = posterior_state(self.store, self.tuned, self.capacity, self.inflation, self.reference)

    def inflate(self, factor: float) -> None:
        self.inflation = factor
        if self._state is not None:
            self._state = self._state._replace(inflation=np.asarray(factor, float))

    def select(self, batch: Batch, noisy: bool, most: int) -> np.ndarray:
        state = self.state(batch, noisy)
        looked = candidate_errors(batch.family, state, batch.cavities, batch.data)
        inputs, variance, expected = (np.asarray(own) for own in looked)
        places = np.flatnonzero(batch.unsure & np.isfinite(inputs).all(axis=1))
        if not len(places):
            return places
        sites = Candidates(inputs[places], variance[places], expected[places])
        fitted = None if self.tuned is None else FittedGP(state, self.tuned.noise, self.tol_kl)
        return places[select_queries(sites, fitted, most)]


def reference_before(family: Family) -> np.ndarray:
    """The reference before anything was seen: any proper member serves."""
    return np.concatenate([np.asarray(own.flat()) + 1.0 for own in parts_of(family)])


def pad_rows(tree: Any, length: int = 16) -> Any:
    """Rows repeated to a multiple of a length, so that few lengths are compiled."""
    count = jax.tree.leaves(tree)[0].shape[0]
    places = np.resize(np.arange(count), -(-count // length) * length)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[places], tree)


@partial(jax.jit, static_argnames=("family", "outputs"))
def label_inputs(
    family: Family, outputs: int, reference: jax.Array, cavities: jax.Array, data: Any, projected: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Inputs of the regression, changes, and what log Z is compared with, one row per answer."""

    def one(cavity: jax.Array, data: Any, projected: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        start, site = anchor_flat(family, cavity, reference), projected - cavity
        overlap = log_overlap(family, cavity, site, outputs)
        return inputs_of(family, start, data), changes(family, start, start + site), overlap

    return jax.vmap(one)(cavities, data, projected)


@partial(jax.jit, static_argnames="family")
def candidate_errors(
    family: Family, state: GPState, cavities: jax.Array, data: Any
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Inputs, variances and expected KL of many sites."""

    def one(cavity: jax.Array, data: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        found = forecast(state, family, cavity, data)
        return inputs_of(family, anchor_flat(family, cavity, state.reference), data), found.variance, found.expected_kl

    return jax.vmap(one)(cavities, data)
