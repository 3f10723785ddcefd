"""From tilted statistics to messages: `message`, `tilted_stats`, `keep_proper`, each against its own definition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, special
from support import Compiled

from cavity.families import Beta, DiagonalGaussian, Dirichlet, FullGaussian, Gamma, Gaussian, Product, SphericalGaussian

# A tilted distribution with two lumps: the cavity times a mixture of two Gaussian bumps in x.
CENTRE, WIDTH = np.array([1.0, -0.5]), np.array([[0.5, 0.1], [0.1, 0.3]])


def bump(mean, covariance):
    """log ∫ (0.3 + N(x; centre, width)) N(x; mean, covariance) dx for a vector x."""
    total = jnp.asarray(covariance) + WIDTH
    gap = CENTRE - mean
    quadratic = gap @ jnp.linalg.solve(total, gap)
    return jnp.logaddexp(jnp.log(0.3), -0.5 * (quadratic + jnp.linalg.slogdet(2 * jnp.pi * total)[1]))


def bump_moments(mean, covariance):
    """Mean and covariance of the same tilted distribution from its two components."""
    gain = covariance @ np.linalg.inv(covariance + WIDTH)
    weight = 1 - 0.3 / np.exp(float(jax.jit(bump)(mean, covariance)))
    means = [mean, mean + gain @ (CENTRE - mean)]
    spreads = [covariance, covariance - gain @ covariance]
    tilted = (1 - weight) * means[0] + weight * means[1]
    second = sum(w * (s + np.outer(m, m)) for w, s, m in zip((1 - weight, weight), spreads, means, strict=True))
    return tilted, second - np.outer(tilted, tilted)


def compact(family):
    """(log Z in the family's coordinates, tilted moments → the member that matches them)."""
    if isinstance(family, FullGaussian):
        return bump, family.from_mean
    if isinstance(family, DiagonalGaussian):
        return lambda m, v: bump(m, jnp.diag(v)), lambda m, c: family.from_mean(m, np.diag(c))
    return lambda m, v: bump(m, v * jnp.eye(2)), lambda m, c: family.from_mean(m, np.trace(c) / 2)


@pytest.mark.parametrize(
    "family", [FullGaussian(2), DiagonalGaussian(2), SphericalGaussian(2)], ids=lambda f: type(f).__name__
)
def test_vector_gaussian_message_matches_tilted_moments(family):
    spread = {FullGaussian: np.array([[0.8, 0.3], [0.3, 1.1]]), DiagonalGaussian: np.array([0.8, 1.1])}
    cavity = family.from_mean(np.array([0.2, 0.4]), spread.get(type(family), 0.9))
    log_z, match = compact(family)
    value, stats = jax.jit(lambda cavity: family.tilted_stats(log_z, cavity))(cavity)
    mean, covariance = np.asarray(family.mean(cavity)), np.asarray(family.covariance(cavity))
    assert float(value) == pytest.approx(float(bump(mean, covariance)))
    expected = match(*bump_moments(mean, covariance))
    np.testing.assert_allclose(cavity + family.message(cavity, stats), expected, rtol=1e-10)


def test_gaussian_message_matches_tilted_moments():
    family, cavity = Gaussian(), Gaussian().from_mean(0.2, 0.9)
    log_z = lambda m, v: bump(jnp.array([m, 0.0]), jnp.diag(jnp.array([v, 1e-12])))  # noqa: E731
    _, stats = family.tilted_stats(log_z, cavity)
    mean, covariance = bump_moments(np.array([0.2, 0.0]), np.diag([0.9, 1e-12]))
    np.testing.assert_allclose(
        cavity + family.message(cavity, stats), family.from_mean(mean[0], covariance[0, 0]), rtol=1e-8
    )


def mixture_log_z(p):
    """log Z of the factor Σ p_k w_k under Dirichlet(a) (thesis 3.95)."""
    return lambda a: jnp.log(jnp.sum(p * a) / jnp.sum(a))


def test_matching_moments_minimises_the_divergence():
    """KL(p ‖ q) over all Gaussians q by a search, p the cavity times a bump on a grid; KL(q ‖ p) has another least."""
    cavity = Gaussian().from_mean(0.2, 0.9)
    x = np.linspace(-8, 8, 2001)
    total = WIDTH[0, 0]
    bumps = 0.3 + np.exp(-0.5 * (x - CENTRE[0]) ** 2 / total) / np.sqrt(2 * np.pi * total)
    p = bumps * np.exp(-0.5 * (x - 0.2) ** 2 / 0.9)
    p /= p.sum()
    log_q = lambda m, s: -0.5 * ((x - m) / np.exp(s)) ** 2 - s  # noqa: E731

    def reverse(at):
        q = np.exp(log_q(*at))
        q /= q.sum()
        return q @ (np.log(np.maximum(q, 1e-300)) - np.log(p))

    forward = optimize.minimize(lambda at: -p @ log_q(*at), [0.0, 0.0], method="BFGS", tol=1e-10).x
    other = optimize.minimize(reverse, [0.0, 0.0], method="BFGS", tol=1e-8).x
    mean = p @ x
    log_z = lambda m, v: jnp.logaddexp(  # noqa: E731
        jnp.log(0.3), -0.5 * ((CENTRE[0] - m) ** 2 / (v + total) + jnp.log(2 * jnp.pi * (v + total)))
    )
    matched = cavity + Gaussian().message(cavity, Gaussian().tilted_stats(log_z, cavity)[1])
    np.testing.assert_allclose(forward, [mean, 0.5 * np.log(p @ (x - mean) ** 2)], atol=1e-6)
    np.testing.assert_allclose(Gaussian().from_mean(forward[0], np.exp(2 * forward[1])), matched, rtol=1e-5)
    assert np.abs(forward - other).max() > 0.005


@pytest.mark.parametrize("components", [2, 3, 10])
def test_dirichlet_statistics_of_a_mixture_weight(components):
    rng = np.random.default_rng(components)
    a, p = rng.uniform(0.5, 5, components), rng.uniform(0, 1, components)
    total = a.sum()
    family = Dirichlet(components)
    value, stats = family.tilted_stats(mixture_log_z(p), jnp.asarray(a))
    assert float(value) == pytest.approx(np.log(p @ a / total))
    expected = special.digamma(a) - special.digamma(total) + p / (p @ a) - 1 / total  # thesis (3.94)
    np.testing.assert_allclose(stats, expected, rtol=1e-12)
    np.testing.assert_allclose(family.moments(a + family.message(a, stats)), expected, rtol=1e-12)


def test_beta_statistics_of_a_mixture_weight():
    a, p = np.array([2.0, 0.7]), np.array([0.9, 0.2])
    log_z = mixture_log_z(p)
    _, stats = Beta().tilted_stats(lambda first, second: log_z(jnp.stack([first, second])), jnp.asarray(a))
    np.testing.assert_allclose(stats, Dirichlet(2).tilted_stats(log_z, jnp.asarray(a))[1], rtol=1e-13)


def test_mean_square_shortcut_follows_the_thesis():
    rng = np.random.default_rng(5)
    a, p = rng.uniform(0.5, 5, 4), rng.uniform(0, 1, 4)
    total, z = a.sum(), p @ a / a.sum()
    family = Dirichlet(4, match="mean_square")
    _, stats = family.tilted_stats(mixture_log_z(p), jnp.asarray(a))
    mean = a / (z * total) * (p + p @ a) / (1 + total)  # (3.110)
    square = (a + 1) * a / (z * (1 + total) * total) * (2 * p + p @ a) / (2 + total)  # (3.112)
    np.testing.assert_allclose(stats, np.concatenate([mean, square]), rtol=1e-12)
    new = np.asarray(a + family.message(a, stats))
    np.testing.assert_allclose(new / new.sum(), mean, rtol=1e-12)
    kept = new / new.sum() * (new + 1) / (new.sum() + 1)
    assert kept.sum() == pytest.approx(square.sum())
    # A member's own mean and squares give the member back.
    own = np.concatenate([a / total, a * (a + 1) / (total * (total + 1))])
    np.testing.assert_allclose(family.message(np.zeros(4), own), a, rtol=1e-12)
    with pytest.raises(TypeError, match="keep_proper"):
        family.keep_proper(a, stats, new - a, 0.0)


def test_gamma_statistics_of_an_exponential_likelihood():
    cavity = jnp.array([2.0, 3.0])
    log_z = lambda shape, rate: jnp.log(shape) + shape * jnp.log(rate) - (shape + 1) * jnp.log(rate + 0.7)  # noqa: E731
    _, stats = Gamma().tilted_stats(log_z, cavity)  # ∫ x exp(−0.7 x) Gamma(x; 2, 3) dx: the tilted is Gamma(3, 3.7)
    np.testing.assert_allclose(stats, Gamma().moments(np.array([3.0, 3.7])), rtol=1e-12)
    np.testing.assert_allclose(Gamma().message(cavity, stats), [1.0, 0.7], rtol=1e-11)


# ------------------------------------------------------------------ keep_proper: the nearest site above the floor


def log_beta(a):
    return special.gammaln(a).sum() - special.gammaln(a.sum())


def log_gamma_partition(eta):
    return special.gammaln(eta[0]) - eta[0] * np.log(eta[1])


def nearest(log_partition, cavity, mu, floor):
    """min A(cavity + s) − s·mu over s ≥ floor by a quasi-Newton method with bounds."""
    goal = lambda s: log_partition(cavity + s) - s @ mu  # noqa: E731
    bounds = [(floor, None)] * len(cavity)
    start = np.full(len(cavity), max(floor, 0) + 0.3)
    best = optimize.minimize(goal, start, bounds=bounds, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-11})
    return goal, best


@pytest.mark.parametrize("floor", [0.0, 0.1, -0.2])
@pytest.mark.parametrize("name", ["beta", "dirichlet", "gamma"])
def test_keep_proper_is_the_constrained_minimum(name, floor):
    family, partition, size = {
        "beta": (Compiled(Beta()), log_beta, 2),
        "dirichlet": (Compiled(Dirichlet(5)), log_beta, 5),
        "gamma": (Compiled(Gamma()), log_gamma_partition, 2),
    }[name]
    rng = np.random.default_rng(7)
    cavities = rng.uniform(0.5, 6, (25, size))
    # Tilted statistics of members around the cavity, some of which would need negative sites.
    mus = np.asarray(family.moments(cavities * rng.uniform(0.4, 1.8, cavities.shape)))
    matched = np.asarray(family.message(cavities, mus))
    sites = np.asarray(family.keep_proper(cavities, mus, matched, floor))
    clipped = 0
    for cavity, mu, own, site in zip(cavities, mus, matched, sites, strict=True):
        assert np.all(site >= floor)
        if np.all(own >= floor):
            np.testing.assert_array_equal(site, own)
            continue
        clipped += 1
        goal, best = nearest(partition, cavity, mu, floor)
        assert goal(site) <= best.fun + 1e-9
        np.testing.assert_allclose(site, best.x, atol=2e-3)
        # The conditions of Karush, Kuhn and Tucker: zero slope where free, slope pointing inwards at the floor.
        slope = np.asarray(family.moments(cavity + site)) - mu
        np.testing.assert_allclose(slope[site > floor], 0, atol=1e-9)
        assert np.all(slope[site <= floor] >= -1e-9)
    assert clipped > 5


def test_keep_proper_over_all_scales():
    rng = np.random.default_rng(8)
    family = Compiled(Dirichlet(4))
    cavities = 10 ** rng.uniform(-6, 8, (500, 4))
    mus = family.moments(cavities * 10 ** rng.uniform(-2, 2, cavities.shape))
    sites = np.asarray(family.keep_proper(cavities, mus, family.message(cavities, mus), 0.0))
    assert np.all(np.isfinite(sites))
    assert np.all(sites >= 0)
    slope = np.asarray(family.moments(cavities + sites)) - np.asarray(mus)
    size = 1e-7 * np.abs(np.asarray(mus))
    assert np.all(np.abs(slope)[sites > 0] <= size[sites > 0])
    assert np.all(slope[sites == 0] >= -size[sites == 0])


@pytest.mark.parametrize("floor", [0.0, 0.3])
def test_full_gaussian_keep_proper_is_the_constrained_minimum(floor):
    family = FullGaussian(2)
    cavity = np.asarray(family.from_mean([0.5, -1.0], [[0.8, 0.5], [0.5, 1.1]]))
    covariance, tilted = np.asarray(family.covariance(cavity)), np.array([[1.4, 0.2], [0.2, 0.4]])
    hessian = np.linalg.solve(covariance, tilted - covariance) @ np.linalg.inv(covariance)
    stats = family.pack(jnp.array([0.3, -0.2]), jnp.asarray(hessian))
    site = family.keep_proper(cavity, stats, family.message(cavity, stats), floor)
    found = np.asarray(family.precision(site))
    assert np.linalg.eigvalsh(found)[0] >= floor - 1e-12
    base = np.asarray(family.precision(cavity)) + floor * np.eye(2)

    def goal(entries):
        root = np.array([[entries[0], 0], [entries[1], entries[2]]])
        total = base + root @ root.T
        return np.trace(total @ tilted) - np.linalg.slogdet(total)[1]

    best = optimize.minimize(goal, [0.5, 0.1, 0.5], method="BFGS", options={"gtol": 1e-10})
    mine = (
        np.trace((base + found - floor * np.eye(2)) @ tilted) - np.linalg.slogdet(base + found - floor * np.eye(2))[1]
    )
    assert mine <= best.fun + 1e-8
    tilted_mean = np.asarray(family.mean(cavity)) + covariance @ [0.3, -0.2]
    np.testing.assert_allclose(family.mean(cavity + np.asarray(site)), tilted_mean, rtol=1e-10)


@pytest.mark.parametrize(
    "family", [Gaussian(), SphericalGaussian(2), DiagonalGaussian(2)], ids=lambda f: type(f).__name__
)
def test_gaussian_keep_proper_keeps_the_tilted_mean(family):
    d = family.event_shape[0] if family.event_shape else 1
    cavity = np.concatenate([np.full(d, 0.5), np.full(family.size - d, 2.0)])
    stats = np.concatenate([np.full(d, 0.4), np.full(family.size - d, 0.3)])  # a tilted wider than the cavity
    site = np.asarray(family.keep_proper(cavity, stats, family.message(cavity, stats), 0.1))
    np.testing.assert_allclose(site[d:], 0.1)
    np.testing.assert_allclose(family.mean(cavity + site), np.squeeze(np.full(d, 0.25 + 0.5 * 0.4)), rtol=1e-12)


def test_product_passes_everything_to_its_parts():
    family = Product((Gaussian(), Dirichlet(3, match="mean_square"), Gamma()))
    cavity = jnp.array([0.4, 2.0, 1.0, 2.0, 3.0, 2.0, 3.0])
    p = np.array([0.2, 0.5, 0.9])
    parts = (
        lambda m, v: -0.5 * (jnp.log(v + 1.0) + (m - 1.0) ** 2 / (v + 1.0)),
        mixture_log_z(p),
        lambda shape, rate: jnp.log(shape) - jnp.log(rate),
    )
    value, stats = family.tilted_stats(lambda m, v, a, s, r: parts[0](m, v) + parts[1](a) + parts[2](s, r), cavity)
    own = [f.tilted_stats(z, cavity[s]) for f, z, s in zip(family.families, parts, family.slices, strict=True)]
    np.testing.assert_allclose(value, sum(v for v, _ in own), rtol=1e-13)
    np.testing.assert_allclose(stats, np.concatenate([s for _, s in own]), rtol=1e-13)
    message = family.message(cavity, stats)
    pieces = zip(family.families, family.slices, own, strict=True)
    np.testing.assert_allclose(message, np.concatenate([f.message(cavity[s], o[1]) for f, s, o in pieces]), atol=1e-13)
    assert family.size == 7
    assert family.tilted_size == 10
    assert family.slices == (slice(0, 2), slice(2, 5), slice(5, 7))


def test_solvers_work_under_jit_and_vmap():
    family = Dirichlet(3)
    a = 10 ** np.random.default_rng(0).uniform(-3, 3, (20, 3))
    np.testing.assert_allclose(jax.jit(jax.vmap(family.natural))(family.moments(a)), a, rtol=1e-9)
