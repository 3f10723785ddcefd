"""E[log t] for a likelihood with edges of width 1: one at 0, or two at −c and c, flat or falling smoothly between them.

Under t(f) N(f; m, v)/Z the mass sits around the cavity, at an edge, or in between, falling off on any scale from 1 to
√v. Equal steps in u of f = a + w sinh u have all these scales at once: steps of w near a, and of h times the distance
away from it. With a at the edge that is fine enough for a Gaussian as far as nine of its deviations away. Where the
edge is farther, or the mass no wider than it, a is the tilted mean. The integrand is analytic: a plain sum is enough.

Two edges share the nodes. Those of either lie where arcsinh(f − c) and arcsinh(f + c) make equal steps; their sum is 2u
at f = tanh u √(cosh²u + c²), which is sinh u for c = 0 and has steps of about 2 h at the edges, c h between them:
for the same steps it takes twice the nodes.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

#: nodes on either side of an edge, deviations of the cavity or the tilted distribution covered, and those of an
#: exponential tail
NODES, REACH, LONG_REACH = 44, 9.0, 40.0


def expected_log_of_step(
    log_likelihood: Callable[[jax.Array], jax.Array],
    mean: jax.Array,
    variance: jax.Array,
    tilted_mean: jax.Array,
    tilted_variance: jax.Array,
    edges: Any = None,
) -> jax.Array:
    """E[log t] under t × N(mean, variance), whose own mean and variance are known; nine digits or more.

    edges: the distance c of both edges from 0, where there are two; None: one edge at 0.
    """
    nodes, edges = (NODES, 0.0) if edges is None else (2 * NODES, edges)
    spread, deviation = jnp.sqrt(variance), jnp.sqrt(tilted_variance)
    narrow, far = deviation < 1.5, jnp.abs(jnp.abs(tilted_mean) - edges) > REACH * deviation
    anchor = jnp.where(narrow | far, tilted_mean, 0.0)
    wide_reach = jnp.maximum(jnp.abs(tilted_mean), jnp.abs(mean)) + REACH * spread
    reach = jnp.where(far, REACH * spread, wide_reach)
    reach = jnp.where(narrow, jnp.minimum(LONG_REACH * deviation, REACH * spread + jnp.abs(mean - tilted_mean)), reach)
    width = jnp.where(far & ~narrow, deviation, spread / jnp.sqrt(1.0 + variance))
    apart = jnp.where(narrow | far, 0.0, edges / width)
    u = jnp.arcsinh(reach / width) / nodes * np.arange(-nodes, nodes + 1)
    root = jnp.sqrt(jnp.cosh(u) ** 2 + apart**2)
    f = anchor + width * jnp.tanh(u) * root
    step = (jnp.cosh(u) ** 2 + (apart / jnp.cosh(u)) ** 2) / root
    log_t = log_likelihood(f)
    log_mass = log_t - 0.5 * ((f - mean) / spread) ** 2
    mass = jnp.exp(log_mass - jnp.max(log_mass)) * step
    return jnp.sum(mass * jnp.where(mass > 0, log_t, 0.0)) / jnp.sum(mass)
