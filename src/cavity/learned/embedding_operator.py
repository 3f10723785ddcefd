"""The operator of Jitkrittum et al. (2015): Bayesian linear regression on two-stage random features of the messages.

    widths              σ² and γ² by the median heuristic (supplement A), γ² times a factor
    fit_embedding       on an initial batch; factor and noise given, or chosen by leaving one out on grids
    predict_projection  projection of one variable, log predictive variance of every target (15)
    update_embedding    labels that arrive later, one by one or several ((16), (17))

An operator is for one factor and one direction; the arrays of `Embedding` keep their shapes when it learns, so that a
program which takes them is compiled once. The paper gives every output a feature map of its own (`shared=False`). With
equal noise all outputs have the same predictive variance up to the draw: one map for all costs less and loses little.

`EmbeddingLearner` makes it a learner of `JustInTime`, which queries the first messages, then those it is unsure of.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.precision import float64, to_numpy
from cavity.factors.base import Factor
from cavity.families.base import Family
from cavity.families.gaussian import Gaussian
from cavity.learned.feature_regression import (
    Regression,
    TwoStages,
    fit_weights,
    leave_one_out_errors,
    mean_variances,
    median_gap,
    message_moments,
    two_stages,
    update,
)
from cavity.learned.learner import Learner, MessagePrediction, Predictor
from cavity.learned.message_coordinates import Target, proper_member, variables
from cavity.learned.oracles import Answers, StoredKey
from cavity.moments.base import Batch, Group

#: messages the widths are computed from; of more, so many are chosen
MOST = 2000


class Embedding(NamedTuple):
    """An operator's arrays, one row for every feature map. noise: of the labels; the prior of weights is N(0, I)."""

    stages: TwoStages
    regression: Regression
    noise: jax.Array


class Prediction(NamedTuple):
    """projected: natural parameters. log_variance: of every target, with the labels' noise (15)."""

    projected: jax.Array
    log_variance: jax.Array


@dataclass(frozen=True)
class Settings:
    """inner, outer: features of the two stages. factors: of γ²; noises: variances of a label, the prior's being 1.

    Of several factors or noises the pair is taken that has the smallest squared error of leaving one label out, with
    maps of `trial` features; for every target, or for all standardised targets together where they share a map.
    """

    inner: int = 300
    outer: int = 500
    factors: tuple[float, ...] = (0.5,)
    noises: tuple[float, ...] = (1e-4,)
    shared: bool = True
    trial: tuple[int, int] = (300, 500)

    def choose(
        self, key: jax.Array, family: Family, cavities: jax.Array, values: jax.Array, widths: jax.Array, gap: float
    ) -> list[tuple[float, float]]:
        """(factor, noise) of every map."""
        grid = list(itertools.product(self.factors, self.noises))
        if len(grid) == 1:
            return grid * (1 if self.shared else values.shape[1])
        errors = []
        for factor in self.factors:
            features = two_stages(key, *self.trial, widths, float(np.sqrt(factor * gap))).of(family, cavities)
            errors.append(leave_one_out_errors(features, values, jnp.asarray(self.noises)))
        table = np.concatenate(errors) / np.var(np.asarray(values), axis=0)
        best = np.argmin(table.sum(axis=1, keepdims=True) if self.shared else table, axis=0)
        return [grid[place] for place in best]


#: experiments 3 to 5: learning just in time
ONLINE = Settings()
#: experiments 1 and 2: a batch of messages
BATCH = Settings(500, 1000, (0.1, 0.2, 1 / 3, 0.5, 1.0, 2.0, 5.0, 10.0), (1e-4, 1e-3, 1e-2, 1e-1, 1.0), shared=False)


@float64
def fit_embedding(
    key: jax.Array, target: Target, cavities: np.ndarray, projected: np.ndarray, settings: Settings = ONLINE
) -> Embedding:
    """From an initial batch of labels: cavities of all variables, projections of the target's own."""
    rows = jnp.asarray(cavities, float)
    values = jax.vmap(target.of)(rows, jnp.asarray(projected, float))
    choose, draw, trial = jax.random.split(key, 3)
    seen = to_numpy(message_moments(target.family, rows[jax.random.permutation(choose, len(rows))[:MOST]]))
    squares = mean_variances(seen)
    gap, widths = median_gap(seen, squares), jnp.sqrt(jnp.asarray(squares))
    chosen = settings.choose(trial, target.family, rows, values, widths, gap)
    keys = jax.random.split(draw, len(chosen))
    stages, regressions = [], []
    for own, (factor, noise), columns in zip(keys, chosen, jnp.split(values, len(chosen), axis=1), strict=True):
        stages.append(two_stages(own, settings.inner, settings.outer, widths, float(np.sqrt(factor * gap))))
        features = stages[-1].of(target.family, rows)
        regressions.append(fit_weights(features, columns, jnp.full(len(columns), noise)))
    maps, regression = (jax.tree.map(lambda *leaves: jnp.stack(leaves), *own) for own in (stages, regressions))
    return to_numpy(Embedding(maps, regression, jnp.asarray([noise for _, noise in chosen])))


def predict_projection(now: Embedding, target: Target, cavity: jax.Array) -> Prediction:
    """What the operator says about one site; pure, to be compiled with `target` static."""
    seen = jax.vmap(lambda stages: stages.of(target.family, cavity[None]))(now.stages)
    means, spread = jax.vmap(lambda regression, x: regression.predict(x))(now.regression, seen)
    values = means.reshape(-1)
    log_variance = jnp.log(spread.reshape(-1) + now.noise)
    return Prediction(target.back(cavity, values), jnp.repeat(log_variance, values.size // now.noise.size))


@partial(jax.jit, static_argnums=1)
def predict_projections(now: Embedding, target: Target, cavities: jax.Array) -> Prediction:
    """`predict_projection` for many sites."""
    return jax.lax.map(lambda cavity: predict_projection(now, target, cavity), cavities, batch_size=500)


@partial(jax.jit, static_argnums=1)
def update_embedding(now: Embedding, target: Target, cavities: jax.Array, projected: jax.Array) -> Embedding:
    """After more labels; rows whose projection is not finite are no labels."""
    usable = jnp.all(jnp.isfinite(projected), axis=-1)
    values = jax.vmap(target.of)(cavities, projected)
    maps = now.noise.size
    columns = jnp.stack(jnp.split(values, maps, axis=1))
    seen = jax.vmap(lambda stages: stages.of(target.family, cavities))(now.stages)
    noise = jnp.where(usable, now.noise[:, None], jnp.inf)
    return now._replace(regression=jax.vmap(update)(now.regression, seen, columns, noise))


#: answers that are kept for the next sweep, and how far apart equal cavities may be by rounding, relatively
KEPT, SAME = 512, 1e-9
#: a site's cavity and data → natural parameters of the tuple of messages that the kernel compares
Incoming = Callable[[jax.Array, Any], jax.Array]


class Recent(NamedTuple):
    """Cavities that were just queried and their projections, one row each; unused rows are nan."""

    cavities: Any
    projected: Any

    def answer(self, cavity: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The projection of a cavity, and whether it is one of these."""
        gap = jnp.abs(self.cavities - cavity)
        same = jnp.all(gap <= SAME * (jnp.abs(cavity) + SAME), axis=-1)
        return self.projected[jnp.argmax(same)], jnp.any(same)


@dataclass(frozen=True)
class EmbeddingPredictor(Predictor):
    """target, incoming, threshold: as `EmbeddingLearner` takes them."""

    target: Target
    incoming: Incoming
    threshold: float

    def predict(
        self, state: tuple[Embedding, Recent, Any], factor: Factor, family: Family, cavity: jax.Array, data: Any
    ) -> MessagePrediction:
        now, recent, trained = state
        found = predict_projection(now, self.target, self.incoming(cavity, data))
        answer, asked = recent.answer(cavity)
        doubt = jnp.max(found.log_variance)
        site = proper_ratio(family, jnp.where(asked, answer, found.projected), cavity)
        confident = asked | (trained & (doubt < self.threshold))
        return MessagePrediction(site, jnp.zeros(()), jnp.exp(doubt), confident, confident)


class EmbeddingLearner(Learner):
    """For one variable of a factor. As in the paper, nothing is audited and log Z is not learned: it counts as 0.

    A message that was asked for is the oracle's own. What it asks about is visited again with the same cavity if all
    sites are visited at once.

    target: what is predicted, of which tuple of messages. incoming: that tuple for a site. first: labels of the initial
    batch. threshold: log predictive variance at which it asks.
    """

    audited: ClassVar[bool] = False

    def __init__(
        self,
        target: Target,
        incoming: Incoming,
        first: int,
        threshold: float,
        settings: Settings = ONLINE,
        key: jax.Array | None = None,
    ) -> None:
        self.predictor, self.target, self.first = EmbeddingPredictor(target, incoming, threshold), target, first
        self.incoming = incoming
        self.settings, self.key = settings, StoredKey.of(key)
        self.now: Embedding | None = None
        self.waiting: list[tuple[np.ndarray, np.ndarray]] = []
        self.recent: Recent | None = None

    def state(self, group: Group, noisy: bool) -> tuple[Embedding, Recent, Any]:
        """The arrays, the last answers, and whether the arrays are of any use yet."""
        if self.now is None:
            self.now = self.untrained()
        if self.recent is None:
            self.recent = Recent(*(np.full((KEPT, group.family.size), np.nan) for _ in range(2)))
        return self.now, self.recent, np.asarray(self.labels >= self.first)

    def untrained(self) -> Embedding:
        """Arrays of the right shapes, from two labels that say nothing."""
        one = proper_member(self.target.family)
        rows = np.stack([one, 2.0 * one])
        _, pieces = variables(self.target.family, jnp.asarray(rows))[self.target.output]
        return fit_embedding(self.key.restored(), self.target, rows, np.asarray(pieces), self.settings)

    def learn(self, batch: Batch, answers: Answers, now: bool = True) -> np.ndarray:
        cavities = jnp.asarray(batch.cavities)
        good = np.asarray(np.isfinite(answers.projected).all(axis=1))
        rows = np.asarray(incoming_tuples(self.incoming, cavities, batch.data))
        assert self.recent is not None
        pairs = zip(self.recent, (np.asarray(cavities)[good], answers.projected[good]), strict=True)
        self.recent = Recent(*(np.concatenate([new, old])[:KEPT] for old, new in pairs))
        for row, projected in zip(rows[good], answers.projected[good], strict=True):
            self.labels += 1
            if self.labels <= self.first:
                self.waiting.append((row, projected))
                if self.labels == self.first:
                    first, second = (np.stack(column) for column in zip(*self.waiting, strict=True))
                    self.now = fit_embedding(self.key.restored(), self.target, first, second, self.settings)
            else:
                assert self.now is not None
                found = update_embedding(self.now, self.target, jnp.asarray(row[None]), jnp.asarray(projected[None]))
                self.now = to_numpy(found)
        return good

    def select(self, batch: Batch, noisy: bool, most: int) -> np.ndarray:
        """The next in the order of the data: each answer may make those after it confident."""
        left = self.first - self.labels
        return np.flatnonzero(batch.unsure)[: min(most, left) if left > 0 else 1]

    def refit(self) -> None:
        """Nothing to do: every answer changes the predictions at once."""

    def inflate(self, factor: float) -> None:
        """The paper takes its variances for right."""


@partial(jax.jit, static_argnums=0)
def incoming_tuples(incoming: Incoming, *rows: Any) -> jax.Array:
    """The tuples of messages of rows of (cavities, data), compiled."""
    return jax.vmap(incoming)(*rows)


def proper_ratio(family: Family, projected: jax.Array, cavity: jax.Array) -> jax.Array:
    """projected/cavity; a Gaussian one of negative precision becomes flat, with the shift that keeps the mean.

    What the program of the paper's authors does with predictions (their "forced proper" ratio).
    """
    site = projected - cavity
    if not isinstance(family, Gaussian):
        return jnp.maximum(site, 0.0)
    shift = cavity[1] * projected[0] / projected[1] - cavity[0]
    return jnp.where(site[1] >= 0, site, jnp.stack([shift, jnp.zeros(())]))
