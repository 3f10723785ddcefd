"""The learner that is recommended: a Gaussian process on how far a factor moves its cavities."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity.families.base import Family
from cavity.learned.acquisition import Told, Unsure, chosen
from cavity.learned.gp_state import Knowledge, Labels, forecast, ignorant, inputs_of, learned, log_overlap, targets_of
from cavity.learned.learner import Guess, Learner
from cavity.learned.message_coordinates import anchored, changes, parts_of, reference_for
from cavity.learned.oracles import Answers
from cavity.learned.tuning import Tuned, tune

#: labels kept at first; more make the arrays twice as large
CAPACITY, NOISY_CAPACITY = 256, 512
#: expected KL, in units of that of one label, that is small enough where labels are noisy
SMALL = 0.1


class ResidualProcess(Learner):
    """tol_kl: expected KL divergence above which it is unsure. outputs: how many of the variables, the last ones, are
    drawn by a program from the others. is_noisy: whether labels are sampled.
    """

    def __init__(self, tol_kl: float, outputs: int, is_noisy: Callable[[Family], bool]) -> None:
        self.tol_kl, self.outputs, self.is_noisy = tol_kl, outputs, is_noisy
        self.store: Labels | None = None
        self.tuned: Tuned | None = None
        self.tuned_at, self.capacity, self.inflation = 0, CAPACITY, 1.0
        self.reference: np.ndarray | None = None
        self._known: Knowledge | None = None
        self._compiled: dict[Any, Callable[..., Any]] = {}

    @property
    def labels(self) -> int:
        return 0 if self.store is None else len(self.store.inputs)

    def knowledge(self, family: Family, data: Any) -> Knowledge:
        anchor = anchor_before(family) if self.reference is None else self.reference
        shape = jax.eval_shape(lambda cavity, own: inputs_of(family, cavity, own), anchor, data).shape
        size, targets = shape[0], targets_of(family)
        if self._known is None:
            groups = targets if self.is_noisy(family) else 1
            self.capacity = max(self.capacity, NOISY_CAPACITY if groups > 1 else CAPACITY)
            self._known = ignorant(size, targets, groups, self.capacity, anchor)
        if (self._known.inputs.shape[1], self._known.scales.shape[0]) != (size, targets):
            raise ValueError(
                f"this operator has learned from sites of {self._known.inputs.shape[1]} numbers and is asked about "
                f"{size}: make one for each kind of variables and data."
            )
        return self._known

    def guess(self, known: Knowledge, family: Family, cavity: jax.Array, data: Any) -> Guess:
        found = forecast(known, family, cavity, data, self.outputs)
        # Where it knows more than one label would tell, it need not wait for one.
        sure = (found.expected_kl <= jnp.maximum(self.tol_kl, found.label_kl)) & ~found.novel
        # But errors of neighbours are alike and add up in what they share: before a run ends, they are made small.
        settled = found.expected_kl <= jnp.maximum(self.tol_kl, SMALL * found.label_kl)
        return Guess(found.site, found.log_z, found.expected_kl, sure, sure & settled)

    def learn(self, family: Family, cavities: jax.Array, data: Any, answers: Answers, now: bool = True) -> np.ndarray:
        good = np.isfinite(answers.projected).all(axis=1) & np.isfinite(answers.log_z)
        if self.reference is None and good.any():
            self.reference = reference_for(family, answers.projected[good])
        if good.any():
            anchor = jnp.asarray(self.reference)
            look = self.compiled("label", family, jax.vmap(label_with(family, self.outputs), in_axes=(None, 0, 0, 0)))
            projected = jnp.asarray(np.where(good[:, None], answers.projected, 1.0))
            inputs, steps, overlap = look(anchor, *padded((jnp.asarray(cavities), data, projected)))
            count = len(good)
            excess = answers.log_z - np.asarray(overlap)[:count]
            targets = np.concatenate([np.asarray(steps)[:count], excess[:, None]], axis=1)
            good &= np.isfinite(targets).all(axis=1)
            new = Labels(np.asarray(inputs)[:count][good], targets[good], answers.spread[good])
            self.store = new if self.store is None else self.store.with_more(new)
        if now:
            self.renew()
        return good

    def renew(self) -> None:
        """New hyperparameters when the labels have doubled; then what the labels tell."""
        if self.store is None or self.labels < 2:
            return
        if self.tuned is None or self.labels >= 2 * self.tuned_at:
            self.tuned, self.tuned_at = tune(*self.store, start=self.tuned), self.labels
        while self.labels > self.capacity:
            # Programs are compiled again; but a prediction reads all of these squares, held or not.
            self.capacity += self.capacity // 4
        self._known = learned(self.store, self.tuned, self.capacity, self.inflation, self.reference)

    def inflate(self, factor: float) -> None:
        self.inflation = factor
        if self._known is not None:
            self._known = self._known._replace(inflation=jnp.asarray(factor, float))

    def chosen(self, family: Family, cavities: jax.Array, data: Any, unsure: np.ndarray, most: int) -> np.ndarray:
        known = self.knowledge(family, jax.tree.map(lambda leaf: leaf[0], data))
        look = self.compiled("look", family, jax.vmap(look_with(family), in_axes=(None, 0, 0)))
        inputs, variance, expected = (np.asarray(own) for own in look(known, cavities, data))
        places = np.flatnonzero(unsure & np.isfinite(inputs).all(axis=1))
        if not len(places):
            return places
        sites = Unsure(inputs[places], variance[places], expected[places])
        told = None if self.tuned is None else Told(known, self.tuned.noise, self.tol_kl)
        return places[chosen(sites, told, most)]

    def compiled(self, question: str, family: Family, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function over sites, compiled once a family."""
        if (question, family) not in self._compiled:
            self._compiled[question, family] = jax.jit(function)
        return self._compiled[question, family]


def anchor_before(family: Family) -> np.ndarray:
    """The reference before anything was seen: any proper member serves."""
    with jax.ensure_compile_time_eval():
        return np.concatenate([np.asarray(own.flat()) + 1.0 for own in parts_of(family)])


def padded(tree: Any, length: int = 16) -> Any:
    """Rows repeated to a multiple of a length, so that few lengths are compiled."""
    count = jax.tree.leaves(tree)[0].shape[0]
    places = np.resize(np.arange(count), -(-count // length) * length)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[places], tree)


def label_with(family: Family, outputs: int) -> Callable[..., tuple[jax.Array, jax.Array, jax.Array]]:
    """(reference, cavity, data, projected) → inputs, changes, and what log Z is compared with."""

    def one(
        reference: jax.Array, cavity: jax.Array, data: Any, projected: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        start, site = anchored(family, cavity, reference), projected - cavity
        overlap = log_overlap(family, cavity, site, outputs)
        return inputs_of(family, start, data), changes(family, start, start + site), overlap

    return one


def look_with(family: Family) -> Callable[..., tuple[jax.Array, jax.Array, jax.Array]]:
    """(knowledge, cavity, data) → inputs, variance, expected KL."""

    def one(known: Knowledge, cavity: jax.Array, data: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        found = forecast(known, family, cavity, data)
        return inputs_of(family, anchored(family, cavity, known.reference), data), found.variance, found.expected_kl

    return one
