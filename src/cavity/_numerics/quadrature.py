"""Adaptive integration of one variable in log space, inside `jit` and `vmap`.

`integrate` is adaptive, in one variable: ∫ t(u) p(u) du over the real line from log t, a factor, and log p, a density,
u in units in which the mass is expected near 0 with spread about 1; f is their product. The line is cut into panels
with 17 Clenshaw–Curtis points each. Those include the ends, so two neighbours share a point: mass that rises towards an
edge is seen from both sides, and a peak hidden between an edge and the first inner point of a panel cannot go unnoticed
while its neighbour is being refined. The error of a panel is taken from the last four Chebyshev coefficients of f, and
the panels with the largest errors are bisected until the errors sum to `TOLERANCE` of the total. A jump is located to
2^-ROUNDS of its panel, a kink twice as fast.

Errors are weighed by max(1, (u − mean)²/variance) with the running mean and variance, so that heavy tails are resolved
for the second moment too. A caller may name further functions G (`tests`) whose ∫ G f is to be resolved relative to
∫ |G| f, however small that is compared with ∫ f.

A factor of which nothing is known at some point, NaN or +∞, leaves nothing known of the integral, unless it could not
matter: with a factor as large as where the mass is, that point would have less than exp(NEGLIGIBLE) of the density.

What can be missed: mass that no point of the starting grid sees, i.e. a spike narrower than the spacing of points
(0.05 within 8 units of 0, then |u|/5) whose flanks lie below a broader background, or narrow bounded support
away from other support. A peak with visible flanks (Gaussian, Laplace, Student-t of any scale) is always climbed to.
`landmarks` puts panel ends, hence points, where a caller knows of sharp features.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

#: points per panel
ORDER = 17
#: panels kept at once; a panel whose mass is below exp(NEGLIGIBLE) of the total gives up its place
CAPACITY = 128
#: bisections per round
SPLITS = 4
#: panels evaluated per round, two halves of each
BATCH = 2 * SPLITS
#: rounds at most
ROUNDS = 48
#: sum of the panels' error estimates, relative to the integral, at which refinement stops
TOLERANCE = 1e-11
#: the same for the tests
TEST_TOLERANCE = 1e-9

NEGLIGIBLE = -80.0
#: rounding of log_f leaves noise that no bisection removes: stop when so many rounds did not halve an error below NOISE
PATIENCE = 5
NOISE = 1e-8

#: reach of the starting grid on either side of 0: 32 panels of width 1/2 up to 8, then 15 on either side, ×4 each
EDGES = np.concatenate([-8.0 * 4.0 ** np.arange(15, 0, -1), np.linspace(-8.0, 8.0, 33), 8.0 * 4.0 ** np.arange(1, 16)])


def clenshaw_curtis(order: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points and weights on [−1, 1], and the matrix that turns values into the last four Chebyshev coefficients."""
    n = order - 1
    angle = np.pi * np.arange(order) / n
    ends = np.where((np.arange(order) == 0) | (np.arange(order) == n), 0.5, 1.0)
    to_coefficients = 2.0 / n * np.cos(np.outer(np.arange(order), angle)) * ends * ends[:, None]
    k = np.arange(0, order, 2)
    weights = (2.0 / (1.0 - k**2)) @ to_coefficients[::2]
    points = np.sin(np.pi * (n - 2 * np.arange(order)) / (2 * n))  # cos(angle), exactly odd
    return points, weights, to_coefficients[-4:]


POINTS, WEIGHTS, TAIL = clenshaw_curtis(ORDER)

#: evaluations of log_f by one `integrate` at most
EVALUATIONS = ORDER * (BATCH * (-(-(len(EDGES) - 1) // BATCH) + ROUNDS) + CAPACITY)


class Integral(NamedTuple):
    """nodes: points u. log_weights: log of each point's share of the integral. error: relative, estimated.

    Where no mass was found, or the factor is not known somewhere that matters, log_z = −inf, all log_weights = −inf and
    error = inf.
    """

    nodes: jax.Array
    log_weights: jax.Array
    log_z: jax.Array
    error: jax.Array


class Panels(NamedTuple):
    """What is remembered of each panel; `log_tests` (of ∫ |G| f) and `log_test_errors` have one column per test.

    log_unknown: the largest log p of the points at which t is not known.
    """

    low: jax.Array
    high: jax.Array
    log_mass: jax.Array
    mean: jax.Array
    spread: jax.Array
    log_error: jax.Array
    log_unknown: jax.Array
    log_tests: jax.Array
    log_test_errors: jax.Array


class RefinementState(NamedTuple):
    """State of the refinement: errors and shares of all panels relative to the total, rounds without progress.

    log_unknown: the largest of all panels that were looked at, also of those that have given up their place.
    """

    panels: Panels
    log_errors: jax.Array
    log_weight: jax.Array
    error: jax.Array
    log_unknown: jax.Array
    best: jax.Array
    stalled: jax.Array
    rounds: jax.Array


#: log t(u) or log p(u), and test functions: u -> (log |G_j(u)|, sign G_j(u)), two vectors with one entry per test
LogDensity = Callable[[jax.Array], jax.Array]
Tests = Callable[[jax.Array], tuple[jax.Array, jax.Array]]


def no_tests(u: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The empty list of test functions."""
    return jnp.zeros((0,)), jnp.zeros((0,))


def log_abs(values: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(log |values|, signs), the form in which `integrate` takes its tests."""
    return jnp.log(jnp.abs(values)), jnp.sign(values)


def known_product(log_t: LogDensity, log_p: LogDensity) -> Callable[[jax.Array], tuple[jax.Array, jax.Array]]:
    """u -> (log t p, −inf where it is not finite; log p where t is NaN or +∞, else −inf)."""

    def product(u: jax.Array) -> tuple[jax.Array, jax.Array]:
        t, p = log_t(u), log_p(u)
        unknown = (jnp.isnan(t) | (t == jnp.inf)) & jnp.isfinite(p)
        return jnp.where(jnp.isfinite(t + p), t + p, -jnp.inf), jnp.where(unknown, p, -jnp.inf)

    return product


def with_unknown(log_z: jax.Array, log_t: jax.Array, log_weights: jax.Array, log_unknown: jax.Array) -> jax.Array:
    """log Z; −inf where the factor is not known at a point that may matter.

    Args:
        log_z: −inf where nothing was found.
        log_t: of the factor at the nodes.
        log_weights: shares of the nodes.
        log_unknown: the largest log p at which the factor is not known.
    """
    top = jnp.max(jnp.where((log_weights > NEGLIGIBLE) & jnp.isfinite(log_t), log_t, -jnp.inf))
    matters = (log_unknown > -jnp.inf) & ((log_z == -jnp.inf) | (log_unknown + top > log_z + NEGLIGIBLE))
    return jnp.where(matters, -jnp.inf, log_z)


#: (centre, scale) of the map from u to what does not move with the cavity, x = centre + scale u
Place = tuple[jax.Array, jax.Array]


@jax.custom_jvp
def in_place(u: jax.Array, centre: jax.Array, scale: jax.Array) -> jax.Array:
    """u, which as a function of centre and scale moves so that x = centre + scale u does not.

    Points that keep x see the cavity change and not the factor: derivatives in the cavity then need none of the factor,
    which may jump. `scale` is a number, or a lower triangular matrix for points along the first axis.
    """
    return jnp.where(centre == centre, u, u)  # has the batch axes of the centre too


@in_place.defjvp
def in_place_slopes(primals: tuple[jax.Array, ...], tangents: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
    """du − (dcentre + dscale u)/scale."""
    scale, u, (du, dcentre, dscale) = primals[2], in_place(*primals), tangents
    if jnp.ndim(scale) == 0:
        return u, du - (dcentre + dscale * u) / scale
    return u, du - jax.scipy.linalg.solve_triangular(scale, (dcentre + u @ dscale.T).T, lower=True).T


def unmoved(value: jax.Array) -> jax.Array:
    """0, with the derivative of the value."""
    return value - jax.lax.stop_gradient(value)


def integrate(
    log_t: LogDensity,
    log_p: LogDensity,
    tests: Tests = no_tests,
    landmarks: jax.Array | None = None,
    place: Place | None = None,
) -> Integral:
    """∫ t(u) p(u) du for scalar functions; log Z is −inf where t is NaN or +∞ and it may matter.

    tests: functions G_j(u) as (log |G_j|, sign); ∫ G_j f is resolved too. Where they are not finite they count as 0.
    landmarks: points u (any number, fixed) where f is sharp.
    place: of a t that is a function of x = centre + scale u; without it t must be smooth to have derivatives.
    """

    product = known_product(log_t, log_p)

    def clean_tests(u: jax.Array) -> tuple[jax.Array, jax.Array]:
        log_g, sign = tests(u)
        return jnp.where(log_g < jnp.inf, log_g, -jnp.inf), jnp.where(jnp.isfinite(sign), sign, 0.0)

    def evaluate(low: jax.Array, high: jax.Array) -> Panels:
        # The search carries no derivative: on any panels the same function is integrated.
        found = jax.vmap(lambda a, b: panel(jax.vmap(product), jax.vmap(clean_tests), a, b))(low, high)
        return jax.lax.stop_gradient(found)

    edges = jnp.asarray(EDGES)
    if landmarks is not None:
        marks = jax.lax.stop_gradient(jnp.clip(jnp.nan_to_num(landmarks), EDGES[0], EDGES[-1]))
        edges = jnp.sort(jnp.concatenate([edges, jnp.ravel(marks)]))
    loads = -(-(edges.size - 1) // BATCH)
    # Places not in use are panels of no width at 0. The first rounds fill in the starting panels: evaluated inside the
    # loop, so that the compiled code holds the integrand once.
    spare = jnp.zeros(max(CAPACITY, loads * BATCH) - (edges.size - 1))
    grid = (jnp.concatenate([edges[:-1], spare]), jnp.concatenate([edges[1:], spare]))
    empty = jax.eval_shape(evaluate, *grid)
    panels = jax.tree.map(lambda leaf: jnp.full(leaf.shape, -jnp.inf), empty)
    blank = jnp.zeros(grid[0].shape)
    panels = panels._replace(low=blank, high=blank, mean=blank, spread=blank)
    none = jnp.zeros((), int)
    nothing, unlimited = jnp.asarray(-jnp.inf), jnp.asarray(jnp.inf)
    start = RefinementState(panels, *relative_errors(panels), nothing, unlimited, none, none)

    def going(search: RefinementState) -> jax.Array:
        unfinished = (search.error > TOLERANCE) & (search.stalled < PATIENCE)
        return (search.rounds < loads) | (unfinished & (search.rounds < loads + ROUNDS))

    final = jax.lax.while_loop(going, lambda search: refine_panels(evaluate, grid, loads, search), start)
    low, high, error = final.panels.low, final.panels.high, final.error
    log_width = jnp.log(0.5 * (high - low))
    if place is not None:
        low, high = in_place(low, *place), in_place(high, *place)
        log_width = log_width - unmoved(jnp.log(place[1]))  # their widths in x stay
    nodes = panel_points(low, high)
    log_t_nodes, log_p_nodes = jax.vmap(jax.vmap(lambda u: (log_t(u), log_p(u))))(nodes)
    log_f_nodes = log_t_nodes + log_p_nodes
    log_f_nodes = jnp.where(jnp.isfinite(log_f_nodes), log_f_nodes, -jnp.inf)
    log_terms = log_f_nodes + jnp.log(jnp.asarray(WEIGHTS)) + log_width[:, None]
    log_z = jax.nn.logsumexp(log_terms)
    log_z = with_unknown(log_z, log_t_nodes, log_terms - log_z, final.log_unknown)
    found = log_z > -jnp.inf
    log_weights = jnp.where(found, log_terms - jnp.where(found, log_z, 0.0), -jnp.inf)
    # Rounding of log_f itself, in units of the last place.
    size = jnp.where(log_weights > NEGLIGIBLE, jnp.abs(log_f_nodes), 0.0)
    rounding = jnp.finfo(float).eps * (1.0 + jnp.sum(jnp.exp(log_weights) * size))
    return Integral(nodes.ravel(), log_weights.ravel(), log_z, jnp.where(found, error + rounding, jnp.inf))


def panel_points(low: jax.Array, high: jax.Array) -> jax.Array:
    """The points of panels [low, high], last axis; the ends are hit exactly, so that neighbours agree on them."""
    points = jnp.asarray(POINTS)
    return 0.5 * ((1.0 - points) * low[..., None] + (1.0 + points) * high[..., None])


def panel(product: Callable, tests: Callable, low: jax.Array, high: jax.Array) -> Panels:
    """Mass, mean, variance and error of one panel, all in logs relative to the panel's own largest value."""
    u = panel_points(low, high)
    values, unknown = product(u)
    peak = jnp.max(values)
    safe = jnp.where(jnp.isfinite(peak), peak, 0.0)
    f = jnp.exp(values - safe)
    half_width = 0.5 * (high - low)
    share = jnp.asarray(WEIGHTS) * f
    mass = jnp.sum(share)
    share = share / jnp.where(mass > 0, mass, 1.0)
    mean = jnp.sum(share * u)
    error = jnp.sum(jnp.abs(jnp.asarray(TAIL) @ f))
    log_g, sign = tests(u)
    log_gf = values[:, None] + log_g
    peaks = jnp.max(log_gf, axis=0)
    peaks = jnp.where(jnp.isfinite(peaks), peaks, 0.0)
    gf = jnp.exp(log_gf - peaks)
    test_errors = jnp.sum(jnp.abs(jnp.asarray(TAIL) @ (sign * gf)), axis=0)
    return Panels(
        low=low,
        high=high,
        log_mass=safe + jnp.log(mass) + jnp.log(half_width),
        mean=mean,
        # A peak that only one point sees has no spread; its true one is some fraction of the spacing.
        spread=jnp.maximum(jnp.sum(share * (u - mean) ** 2), 1e-3 * half_width**2),
        log_error=safe + jnp.log(error) + jnp.log(half_width),
        log_unknown=jnp.max(unknown),
        log_tests=peaks + jnp.log(jnp.asarray(WEIGHTS) @ gf) + jnp.log(half_width),
        log_test_errors=peaks + jnp.log(test_errors) + jnp.log(half_width),
    )


def relative_errors(panels: Panels) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(log error of every panel, log of its share, each for the integral that it matters most for; sum of errors)."""
    log_z = jax.nn.logsumexp(panels.log_mass)
    found = log_z > -jnp.inf
    log_z = jnp.where(found, log_z, 0.0)
    share = jnp.exp(panels.log_mass - log_z)
    mean = jnp.sum(share * panels.mean)
    variance = jnp.sum(share * (panels.spread + (panels.mean - mean) ** 2))
    distance = jnp.maximum(jnp.abs(panels.low - mean), jnp.abs(panels.high - mean))
    second = 2.0 * jnp.log(distance) - jnp.log(variance) - log_z
    gain = jnp.maximum(-log_z, second)
    totals = jax.nn.logsumexp(panels.log_tests, axis=0)
    totals = jnp.where(totals > -jnp.inf, totals, 0.0)
    easier = jnp.log(TOLERANCE / TEST_TOLERANCE)

    def weigh(log_value: jax.Array, log_tests: jax.Array) -> jax.Array:
        own = jnp.where(log_value > -jnp.inf, log_value + gain, -jnp.inf)
        return jnp.max(jnp.concatenate([own[:, None], easier + log_tests - totals], axis=1), axis=1)

    # Nothing found yet: look at wide panels and near ones first.
    blind = jnp.log(panels.high - panels.low) - 1.5 * jnp.log1p(0.5 * jnp.abs(panels.low + panels.high))
    log_errors = jnp.where(found, weigh(panels.log_error, panels.log_test_errors), blind)
    log_weight = jnp.where(found, jnp.maximum(weigh(panels.log_mass, panels.log_tests), log_errors), blind)
    return log_errors, log_weight, jnp.where(found, jnp.sum(jnp.exp(log_errors)), jnp.inf)


def refine_panels(
    evaluate: Callable[..., Panels], grid: tuple[jax.Array, jax.Array], loads: int, search: RefinementState
) -> RefinementState:
    """One batch of panels: at first the next of the starting grid, then halves of the worst.

    Of a bisected panel one half stays in place, the other takes the place of a negligible panel.
    """
    panels = search.panels
    size = panels.low.size
    loading = search.rounds < loads
    worst_error, worst = jax.lax.top_k(search.log_errors, SPLITS)
    least_weight, least = jax.lax.top_k(-search.log_weight, SPLITS)
    low, high = panels.low[worst], panels.high[worst]
    middle = 0.5 * (low + high)
    found = jnp.isfinite(search.error) | jnp.any(panels.log_mass > -jnp.inf)
    free = jnp.where(found, -least_weight < NEGLIGIBLE, -least_weight < worst_error[-1])
    wanted = jnp.where(found, worst_error > jnp.log(0.01 * TOLERANCE / size), True)
    splits = free & wanted & (low < middle) & (middle < high)

    next_places = jnp.minimum(search.rounds, loads - 1) * BATCH + jnp.arange(BATCH)
    # A place beyond the end is dropped: no split there.
    split_places = jnp.where(jnp.concatenate([splits, splits]), jnp.concatenate([worst, least]), size)
    to = jnp.where(loading, next_places, split_places)
    new = evaluate(
        jnp.where(loading, grid[0][next_places], jnp.concatenate([low, middle])),
        jnp.where(loading, grid[1][next_places], jnp.concatenate([middle, high])),
    )
    panels = jax.tree.map(lambda old, rows: old.at[to].set(rows, mode="drop"), panels, new)
    log_errors, log_weight, error = relative_errors(panels)
    halved = error < 0.5 * search.best
    best = jnp.where(loading, jnp.inf, jnp.where(halved, error, search.best))
    idle = jnp.where(halved | (error > NOISE), 0, search.stalled + 1)
    stalled = jnp.where(loading, 0, jnp.where(jnp.any(splits), idle, PATIENCE))
    unknown = jnp.maximum(search.log_unknown, jnp.max(new.log_unknown))
    return RefinementState(panels, log_errors, log_weight, error, unknown, best, stalled, search.rounds + 1)
