"""Labels by scrambled Sobol points, with the noise of every label found by repeating it under other scramblings.

The one input of a factor is drawn from its own incoming message, so that nearly all points count. For smooth integrands
the error falls nearly like 1/points: far below what the effective sample size of random draws would say. It is
therefore measured: the labels of R independent scramblings are averaged, and their variance over R is the noise.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp, ndtri
from scipy.stats import qmc

from cavity.families.base import Family
from cavity.learned.broad_proposal import matched
from cavity.learned.coordinates import all_moved, changes, cut, parts_of
from cavity.numerics.precision import float64

#: points are kept so far from 0 and 1
EDGE = 1e-12


class Repeated(NamedTuple):
    """projected: of the mean label. log_z: the mean. variance: of every number in `changes`, and of log Z, last."""

    projected: Any
    log_z: Any
    variance: Any


@float64
def quasi_random(
    seed: int,
    program: Callable[[jax.Array], Any],
    family: Family,
    cavities: np.ndarray,
    points: int = 1024,
    scramblings: int = 8,
) -> Repeated:
    """Projections of factor × cavity. program: from the values of the last variable, a Gaussian, to those of all."""
    rng = np.random.default_rng(seed)
    drawn = np.stack([qmc.Sobol(1, scramble=True, rng=rng).random(points)[:, 0] for _ in range(scramblings)])
    turns = rng.random((len(cavities), scramblings, 1))

    @jax.jit
    def answers(turns: jax.Array, rows: jax.Array) -> Repeated:
        def one(row: tuple[jax.Array, jax.Array]) -> Repeated:
            turn, cavity = row
            # Turned for every question, so that what is wrong with one label is not wrong with all: a regression can
            # average the noise of labels, and cannot see an error that they share.
            uniform = (jnp.asarray(drawn) + turn) % 1.0
            normal = ndtri(jnp.clip(uniform, EDGE, 1.0 - EDGE))
            return mean_label(program, family, normal, cavity)

        return jax.lax.map(one, (turns, rows))

    found = answers(jnp.asarray(turns), jnp.asarray(cavities, float))
    return Repeated(*(np.asarray(own) for own in found))


def mean_label(program: Callable[[jax.Array], Any], family: Family, normal: jax.Array, cavity: jax.Array) -> Repeated:
    """The mean over scramblings, and its variance."""
    rows = jax.vmap(lambda u: label(program, family, u, cavity))(normal)
    mean, variance = rows.mean(axis=0), rows.var(axis=0, ddof=1) / len(normal)
    return Repeated(all_moved(family, cavity, mean[:-1]), mean[-1], variance)


def label(program: Callable[[jax.Array], Any], family: Family, normal: jax.Array, cavity: jax.Array) -> jax.Array:
    """`changes` and log Z of one scrambling, at standard normal points."""
    parts, pieces = parts_of(family), cut(family, cavity)
    mean, variance = parts[-1].coordinates(pieces[-1])
    values = program(mean + jnp.sqrt(variance) * normal)
    rows = list(zip(parts, pieces, values, strict=True))
    log_weights = sum((own.log_density(piece, x) for own, piece, x in rows[:-1]), jnp.zeros_like(normal))
    total = logsumexp(log_weights)
    weights = jnp.exp(log_weights - total)
    projected = jnp.concatenate([matched(own, x, weights) for own, _, x in rows])
    return jnp.append(changes(family, cavity, projected), total - jnp.log(len(normal)))
