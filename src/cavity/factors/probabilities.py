"""Factors of unknown probabilities: of a coin, a state, the component of a mixture; and the log odds of one.

The mixture-weight term is one observation of a mixture of K known densities with unknown weights (thesis 3.3). The
logistic link joins a probability and its log odds.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import logsumexp, sigmoid, softplus

from cavity._core import checks
from cavity._core.precision import is_traced
from cavity._numerics.gamma_functions import digamma_difference, dirichlet_expected_log, trigamma
from cavity._numerics.inverses import dirichlet_shape_step, dirichlet_shapes
from cavity._numerics.quadrature import integrate, log_abs
from cavity.factors.base import Factor, Value, factor, is_one
from cavity.families.base import Family, Tilted
from cavity.families.categorical import Categorical
from cavity.families.dirichlet import Beta, Dirichlet
from cavity.families.gaussian import LOG_2PI, Gaussian
from cavity.families.product import Product
from cavity.families.standardised import Frame, beta_line, match_line_moments, tilted, whitened_moments


@factor
class Bernoulli(Factor):
    """t(y, p) = p^y (1 − p)^(1 − y), y = 0 or 1. Slots (y, p), or (p,) where y was observed: then it is the data.

    A `CategoricalDraw` between two states with weights (1 − p, p). An observed y adds (y, 1 − y) to the shapes. Else,
    with cavities (1 − π, π) of y and Beta(a, b) of p, S = a + b:

        Z = (π a + (1 − π) b)/S,    the message to y is (b, a)/S,
        E[log p] grows by b (2π − 1)/(S² Z),    E[log(1 − p)] by −a (2π − 1)/(S² Z).

    Raises:
        ValueError: in a run, if an observed y is neither 0 nor 1.

    Examples:
        >>> import numpy as np
        >>> import cavity as cv
        >>> coin = cv.factors.Bernoulli()
        >>> round(float(np.exp(coin.log_density(0.25, 1))), 4)
        0.25
    """

    closed_forms: ClassVar[tuple[str, ...]] = ("Beta, or Product of Categorical(2) and Beta, power 1",)

    def validate(self, data: jax.Array) -> None:
        checks.array("y", data, (1,))
        if not is_traced(data) and not np.isin(np.asarray(data), (0, 1)).all():
            raise ValueError("y of Bernoulli must be 0 or 1.")

    def log_density(self, x: Value, data: jax.Array) -> jax.Array:
        y, p = x if isinstance(x, tuple) else (data, x)
        return jnp.where(jnp.asarray(y) == 1, jnp.log(p), jnp.log1p(-p))

    def tilted(self, family: Family, cavity: jax.Array, data: jax.Array, power: float) -> Tilted:
        *states, last = family.families if isinstance(family, Product) else (family,)
        if not is_one(power) or not isinstance(last, Beta) or states not in ([], [Categorical(2)]):
            return NotImplemented
        shapes = cavity[-1:-3:-1]  # of 1 − p and p, the weights of the states 0 and 1
        if states:
            found = unseen(Categorical(2).log_probabilities(cavity[:4]), shapes)
        else:
            found = seen(shapes, jnp.asarray(data, int))
        return Tilted(found.log_z, swap_states(found.stats), swap_states(found.site))


def swap_states(values: jax.Array) -> jax.Array:
    """The last two, of the weights of states 0 and 1, in the order of p and 1 − p."""
    return jnp.concatenate([values[:-2], values[-1:-3:-1]])


@factor
class CategoricalDraw(Factor):
    """t(y, w) = w_y, the probability of state y. Slots (y, w), or (w,) where y was observed: then it is the data.

    An observed y adds 1 to the shape of its state. Else, with cavities π of y and Dirichlet(a) of w, S = Σ a:

        Z = Σ π_k a_k/S,    the message to y is a/S,    E[log w_k] grows by (π_k/Z − 1)/S,

    and the message to w are the Dirichlet increments with these expected logarithms, uniform where the cavity of y is.

    Raises:
        ValueError: in a run, if an observed y is no state.

    Examples:
        >>> import numpy as np
        >>> import cavity as cv
        >>> draw = cv.factors.CategoricalDraw()
        >>> round(float(np.exp(draw.log_density(np.array([0.2, 0.3, 0.5]), 2))), 4)
        0.5
    """

    closed_forms: ClassVar[tuple[str, ...]] = ("Dirichlet, or Product of Categorical and Dirichlet, power 1",)

    def validate(self, data: jax.Array) -> None:
        checks.array("y", data, (1,))
        if not is_traced(data) and not np.all((np.asarray(data) >= 0) & (np.asarray(data) % 1 == 0)):
            raise ValueError("y of CategoricalDraw must be states: 0, 1, 2, …")

    def log_density(self, x: Value, data: jax.Array) -> jax.Array:
        state, weights = x if isinstance(x, tuple) else (data, x)
        return jnp.log(weights[jnp.asarray(state, int)])

    def tilted(self, family: Family, cavity: jax.Array, data: jax.Array, power: float) -> Tilted:
        *states, last = family.families if isinstance(family, Product) else (family,)
        if not is_one(power) or not isinstance(last, Dirichlet) or last.match != "log" or len(states) > 1:
            return NotImplemented
        if not states:
            return seen(cavity, jnp.asarray(data, int))
        first = states[0]
        if not isinstance(first, Categorical) or first.states != last.components:
            return NotImplemented
        return unseen(first.log_probabilities(cavity[: first.size]), cavity[first.size :])


def seen(shapes: jax.Array, state: jax.Array) -> Tilted:
    """Of the weights alone: the message is the factor itself."""
    site = jax.nn.one_hot(state, shapes.shape[-1], dtype=float)
    return Tilted(jnp.log(shapes[state] / jnp.sum(shapes)), dirichlet_expected_log(shapes + site), site)


def unseen(log_probabilities: jax.Array, shapes: jax.Array) -> Tilted:
    """Of the state, with zeros for its counts of the impossible, and the weights."""
    total = jnp.sum(shapes)
    share = shapes / total
    log_mass = log_probabilities + jnp.log(share)
    log_z = logsumexp(log_mass)
    p = jnp.exp(log_probabilities)
    # π_k/Z − 1 from the differences of the π, which may be nearly equal.
    change = ((p[:, None] - p) @ share) * jnp.exp(-log_z) / total
    start = dirichlet_shapes(dirichlet_expected_log(shapes) + change) - shapes
    site = dirichlet_shape_step(shapes, change, start)
    return Tilted(
        log_z,
        jnp.concatenate([jnp.exp(log_mass - log_z), dirichlet_expected_log(shapes) + change]),
        jnp.concatenate([jnp.log(share), jnp.zeros_like(share), site]),
    )


@factor
class Mixture(Factor):
    """The mixture-weight term t(w) = Σ_k w_k p_k(x) (thesis 3.3).

    The data are K numbers log p_k(x) per site, −inf where a component cannot give x.

    Raises:
        ValueError: in a run, if all log densities of a site are −inf, or one is NaN.

    Examples:
        >>> import numpy as np
        >>> import cavity as cv
        >>> term = cv.factors.Mixture()
        >>> round(float(np.exp(term.log_density(np.array([0.5, 0.5]), np.log([0.2, 0.4])))), 4)
        0.3
    """

    closed_forms = ("Dirichlet with power 1, matching E[log w] or, for the Cowell projection, E[w] and Σ E[w²]",)

    def validate(self, data: jax.Array) -> None:
        """Log densities may be −inf, but not everywhere in a row."""
        table = data if is_traced(data) else np.asarray(data, float)
        if not is_traced(table) and not np.all(np.isfinite(table.max(axis=-1)) & ~np.isnan(table).any(axis=-1)):
            raise ValueError("data of Mixture must be rows of log densities, −inf at most for some components.")

    def is_log_concave(self) -> bool:
        return True

    def log_density(self, x: jax.Array, data: jax.Array) -> jax.Array:
        return jax.scipy.special.logsumexp(jnp.log(x) + data, axis=-1)

    def tilted(self, family: Family, cavity: jax.Array, data: jax.Array, power: float) -> Tilted:
        """log Z = log Σ p_k a_k − log Σ a_k (3.91); the statistics follow in closed form."""
        if not isinstance(family, Dirichlet) or not is_one(power):
            return NotImplemented
        # p_k is only used up to its row maximum: ratios p_k / Σ p_j a_j are what the formulas need.
        top = jnp.max(data)
        p = jnp.exp(data - top)
        total = jnp.sum(cavity)
        weighted = jnp.sum(p * cavity)
        log_z = jnp.log(weighted) - jnp.log(total) + top
        if family.match == "mean_square":
            stats = two_moments(cavity, total, p, weighted)
        else:
            # Ψ(a_k) − Ψ(Σa) + p_k/Σ_j p_j a_j − 1/Σa (3.94)
            stats = family.moments(cavity) + p / weighted - 1.0 / total
        return Tilted(log_z, stats, family.message(cavity, stats))


def two_moments(cavity: jax.Array, total: jax.Array, p: jax.Array, weighted: jax.Array) -> jax.Array:
    """(E[w_k], E[w_k²]) of the tilted distribution (3.110, 3.112), with Z Σa = Σ_j p_j a_j put in."""
    first = cavity / weighted * (p + weighted) / (1.0 + total)
    second = (cavity + 1.0) * cavity / weighted * (2.0 * p + weighted) / ((1.0 + total) * (2.0 + total))
    return jnp.concatenate([first, second])


@factor
class LogisticLink(Factor):
    """t(p, z) = δ(p − σ(z)), σ(z) = 1/(1 + e^−z): z is the log odds of p. Slots (p, z); no data.

    The relation leaves one variable, and one integral: with cavities Beta(a, b) and N(m, v)

        Z = ∫ Beta(σ(z); a, b) N(z; m, v) dz.

    z sees the factor h(z) = Beta(σ(z); a, b), with d log h/dz = (a − 1) σ(−z) − (b − 1) σ(z), and is matched through
    these slopes where the factor is weak. p is matched in E[log p] and E[log(1 − p)]. The message of a
    flat Beta(1, 1) to z is uniform. Where nothing is known of z, the message to p is dz/dp = 1/(p (1 − p)), increments
    (−1, −1), that to z the log odds of Beta(a − 1, b − 1), and Z = B(a − 1, b − 1)/B(a, b) = S (S − 1)/((a − 1)(b − 1))
    with S = a + b − 1; for a ≤ 1 or b ≤ 1 that is infinite, and both messages are uniform.

    Examples:
        >>> import cavity as cv
        >>> link = cv.factors.LogisticLink()
        >>> link.closed_forms, link.has_density(None)
        (('Product of a Beta and a Gaussian, power 1',), False)
    """

    closed_forms: ClassVar[tuple[str, ...]] = ("Product of a Beta and a Gaussian, power 1",)

    def tilted(self, family: Family, cavity: jax.Array, data: object, power: float) -> Tilted:
        if not is_one(power) or not isinstance(family, Product) or len(family.families) != 2:
            return NotImplemented
        first, second = family.families
        if not isinstance(first, Beta) or not isinstance(second, Gaussian):
            return NotImplemented
        shapes, odds = family.parts(cavity)
        return jax.tree.map(
            lambda known, unknown: jnp.where(odds[1] == 0, unknown, known),
            of_known(first, second, shapes, odds),
            of_unknown(first, shapes),
        )


def of_known(family: Beta, line_family: Gaussian, shapes: jax.Array, odds: jax.Array) -> Tilted:
    """The messages where the cavity of z is proper, by quadrature in z."""
    proper, known = family.is_proper(shapes), line_family.is_proper(odds)
    safe = jnp.where(proper, shapes, 1.0)
    precision = jnp.where(known, odds[1], 1.0)
    mean, scale = jnp.where(known, odds[0], 0.0) / precision, 1.0 / jnp.sqrt(precision)
    line = beta_line(safe)

    def inner(u: jax.Array) -> jax.Array:
        """The line of p at z = mean + scale u."""
        return (mean - line.centre + scale * u) / line.scale

    def log_stretch(u: jax.Array) -> jax.Array:
        """log dz/dp."""
        z = mean + scale * u
        return softplus(z) + softplus(-z)

    def log_normal(u: jax.Array) -> jax.Array:
        return -0.5 * (u**2 + LOG_2PI)

    def log_cavity(u: jax.Array) -> jax.Array:
        return line.log_density(inner(u)) - jnp.log(line.scale) + log_stretch(u)

    def slope(u: jax.Array) -> jax.Array:
        z = mean + scale * u
        return scale * ((safe[0] - 1.0) * sigmoid(-z) - (safe[1] - 1.0) * sigmoid(z))

    def tests(u: jax.Array) -> tuple[jax.Array, jax.Array]:
        return log_abs(jnp.append(line.statistics(inner(u)), slope(u)))

    rule = integrate(log_cavity, log_normal, tests)
    column = rule._replace(nodes=rule.nodes[:, None])
    frame = Frame(mean[None], scale[None, None], proper & known)
    centre, spread, change = whitened_moments(column, slope(column.nodes), frame)
    said = tilted(line_family, frame, rule.log_z, centre, spread, change)
    surprise = log_normal(rule.nodes) - jnp.log(scale) + log_stretch(rule.nodes) - rule.log_z
    stats, message = match_line_moments(family, safe, line, inner(rule.nodes), rule.log_weights, surprise)
    return Tilted(said.log_z, jnp.concatenate([stats, said.stats]), jnp.concatenate([message, said.site]))


def of_unknown(family: Beta, shapes: jax.Array) -> Tilted:
    """The messages where the cavity of z is uniform."""
    heard = jnp.all(shapes > 1.0)
    a, b = jnp.where(heard, shapes - 1.0, 1.0)
    total = a + b
    tau = 1.0 / (trigamma(a) + trigamma(b))
    # ψ(a) − ψ(b) through the larger of the two.
    apart = digamma_difference(jnp.minimum(a, b), jnp.abs(a - b)) * jnp.sign(b - a)
    log_z = jnp.log(total / a) + jnp.log((total + 1.0) / b)
    stats = jnp.append(family.moments(jnp.where(heard, jnp.stack([a, b]), shapes)), jnp.zeros(2))
    site = jnp.where(heard, jnp.stack([-1.0 * jnp.ones(()), -jnp.ones(()), tau * apart, tau]), 0.0)
    return Tilted(jnp.where(heard, log_z, jnp.inf), stats, site)
