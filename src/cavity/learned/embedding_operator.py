"""The operator of Jitkrittum et al. (2015): Bayesian linear regression on two-stage random features of the messages.

    widths              σ² and γ² by the median heuristic (supplement A), γ² times a factor
    fit_embedding       on an initial batch; factor and noise given, or chosen by leaving one out on grids
    predict_projection  projection of one variable, log predictive variance of every target (15)
    update_embedding    labels that arrive later, one by one or several ((16), (17))

An operator is for one factor and one direction; the arrays of `Embedding` keep their shapes when it learns, so that a
program which takes them is compiled once. The paper gives every output a feature map of its own (`shared=False`). With
equal noise all outputs have the same predictive variance up to the draw: one map for all costs less and loses little.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core.precision import float64
from cavity.families.base import Family
from cavity.learned.features import TwoStages, two_stages
from cavity.learned.message_kernels import mean_variances, median_gap, message_moments
from cavity.learned.regression import Regression, fit_weights, leave_one_out_errors, update
from cavity.learned.targets import Target

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
    maps of `trial` features; for every target, or for all together (each in its deviations) where they share a map.
    """

    inner: int = 300
    outer: int = 500
    factors: tuple[float, ...] = (0.5,)
    noises: tuple[float, ...] = (1e-4,)
    shared: bool = True
    trial: tuple[int, int] = (300, 500)


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
    chosen_rows = np.asarray(jax.random.permutation(choose, len(rows)))[:MOST]
    seen = message_moments(target.family, np.asarray(rows)[chosen_rows])
    squares = mean_variances(seen)
    gap, widths = median_gap(seen, squares), jnp.sqrt(jnp.asarray(squares))
    chosen = select_settings(trial, target.family, rows, values, widths, gap, settings)
    keys = jax.random.split(draw, len(chosen))
    stages, regressions = [], []
    for own, (factor, noise), columns in zip(keys, chosen, jnp.split(values, len(chosen), axis=1), strict=True):
        stages.append(two_stages(own, settings.inner, settings.outer, widths, float(np.sqrt(factor * gap))))
        seen_by = compiled_features(stages[-1], target.family, rows)
        regressions.append(fit_weights(seen_by, columns, jnp.full(len(columns), noise)))
    maps, regression = (jax.tree.map(lambda *leaves: jnp.stack(leaves), *own) for own in (stages, regressions))
    return Embedding(maps, regression, jnp.asarray([noise for _, noise in chosen]))


def select_settings(
    key: jax.Array,
    family: Family,
    cavities: jax.Array,
    values: jax.Array,
    widths: jax.Array,
    gap: float,
    settings: Settings,
) -> list[tuple[float, float]]:
    """(factor, noise) of every map."""
    grid = [(factor, noise) for factor in settings.factors for noise in settings.noises]
    maps = 1 if settings.shared else values.shape[1]
    if len(grid) == 1:
        return grid * maps
    errors = []
    for factor in settings.factors:
        stages = two_stages(key, *settings.trial, widths, float(np.sqrt(factor * gap)))
        seen = compiled_features(stages, family, cavities)
        errors.append(compiled_leave_one_out(seen, values, jnp.asarray(settings.noises)))
    table = np.concatenate(errors) / np.var(np.asarray(values), axis=0)
    best = np.argmin(table.sum(axis=1, keepdims=True) if settings.shared else table, axis=0)
    return [grid[place] for place in best]


@partial(jax.jit, static_argnums=1)
def compiled_features(stages: TwoStages, family: Family, cavities: jax.Array) -> jax.Array:
    """Rows of features of one map."""
    return stages.of(family, cavities)


compiled_leave_one_out = jax.jit(leave_one_out_errors)


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
