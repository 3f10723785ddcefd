"""Moments of the clutter term against mpmath and two-dimensional integration."""

import functools

import jax
import mpmath as mp
import numpy as np
import pytest
from scipy import integrate
from support import Compiled

from cavity.factors import Clutter
from cavity.families import DiagonalGaussian, FullGaussian, Gaussian, SphericalGaussian


@functools.partial(jax.jit, static_argnames=("family", "power"))
def tilted_of(w, c, family, cavity, x, power=1.0):
    """Compiled once for all values."""
    return Clutter(w, c).tilted(family, cavity, x, power)


def exact_scalar(m, v, x, w, c):
    """(log Z, d1, tau, nu) of the scalar term with 60 digits."""
    with mp.workdps(60):
        m, v, x, w, c = (mp.mpf(value) for value in (m, v, x, w, c))
        density = lambda gap, s: mp.exp(-(gap**2) / (2 * s)) / mp.sqrt(2 * mp.pi * s)  # noqa: E731
        signal = (1 - w) * density(x - m, v + 1)
        z = signal + w * density(x, c)
        r = signal / z
        d1 = r * (x - m) / (v + 1)
        d2 = -r / (v + 1) + r * (1 - r) * ((x - m) / (v + 1)) ** 2
        tau = -d2 / (1 + v * d2)
        return [float(value) for value in (mp.log(z), d1, tau, d1 + tau * (m + v * d1))]


@pytest.mark.parametrize("v", [1e-12, 1e-4, 1.0, 100.0, 1e6, 1e12])
@pytest.mark.parametrize(
    ("m", "x", "w"), [(0.0, 2.0, 0.5), (3.0, -1.0, 0.2), (1.0, 1.0 + 1e-6, 0.9), (0.0, 40.0, 0.01)]
)
def test_scalar_moments_keep_their_digits(v, m, x, w):
    tilted = tilted_of(w, 10.0, Gaussian(), np.array([m / v, 1 / v]), x)
    ours = [tilted.log_z, tilted.stats[0], tilted.site[1], tilted.site[0]]
    want = exact_scalar(m, v, x, w, 10.0)
    np.testing.assert_allclose(ours[:2], want[:2], rtol=1e-11, atol=1e-300)
    # tau is a difference of r/S and r(1 − r)y², which may nearly meet: measured against the larger.
    np.testing.assert_allclose(ours[2], want[2], rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(ours[3], want[3], rtol=1e-9, atol=1e-13 * (abs(want[1]) + abs(want[2] * m)) + 1e-300)


@pytest.mark.parametrize(
    "family", [SphericalGaussian(3), DiagonalGaussian(3), FullGaussian(3)], ids=lambda f: type(f).__name__
)
def test_vector_moments_follow_from_the_mixture(family):
    """The tilted distribution is a mixture of two Gaussians; its moments by plain algebra against cavity + site."""
    family, rng = Compiled(family), np.random.default_rng(0)
    x, mean = rng.normal(size=3) * 2, rng.normal(size=3)
    root = rng.normal(size=(3, 3))
    spread = {"SphericalGaussian": 2.5, "DiagonalGaussian": np.array([0.5, 2.0, 7.0])}.get(
        type(family.part).__name__, root @ root.T
    )
    cavity = family.from_mean(mean, spread)
    covariance = np.asarray(family.covariance(cavity))
    total = covariance + np.eye(3)
    gain = covariance @ np.linalg.inv(total)
    density = lambda gap, s: np.exp(-0.5 * gap @ np.linalg.solve(s, gap)) / np.sqrt(np.linalg.det(2 * np.pi * s))  # noqa: E731
    signal, background = 0.7 * density(x - mean, total), 0.3 * density(x, 10 * np.eye(3))
    r = signal / (signal + background)
    moved = mean + gain @ (x - mean)
    tilted_mean = r * moved + (1 - r) * mean
    tilted_covariance = r * (covariance - gain @ covariance) + (1 - r) * covariance
    tilted_covariance += r * (1 - r) * np.outer(moved - mean, moved - mean)
    tilted = tilted_of(0.3, 10.0, family.part, cavity, x)
    matched = cavity + tilted.site
    np.testing.assert_allclose(tilted.log_z, np.log(signal + background), rtol=1e-12)
    np.testing.assert_allclose(family.mean(matched), tilted_mean, rtol=1e-11)
    got = np.asarray(family.covariance(matched))
    if isinstance(family.part, FullGaussian):
        np.testing.assert_allclose(got, tilted_covariance, rtol=1e-11)
    elif isinstance(family.part, DiagonalGaussian):
        np.testing.assert_allclose(np.diag(got), np.diag(tilted_covariance), rtol=1e-11)
    else:
        np.testing.assert_allclose(got[0, 0], np.trace(tilted_covariance) / 3, rtol=1e-11)
    np.testing.assert_allclose(tilted.site, family.message(cavity, tilted.stats), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("dimension", [1, 2, 3, 6])
@pytest.mark.parametrize(
    ("v", "distance", "power"), [(4.0, 2.5, 0.5), (0.01, 1.0, 0.8), (100.0, 3.0, 0.3), (1.0, 0.0, 1.7)]
)
def test_powered_moments_in_cylinder_coordinates(dimension, v, distance, power):
    """t^p × N(m, vI) integrated over (axis towards x, radius around it) by scipy, independent of the radial formula."""
    w, c = 0.4, 10.0
    mean = np.zeros(dimension)
    x = np.zeros(dimension)
    x[0] = distance
    family = Compiled(Gaussian() if dimension == 1 else SphericalGaussian(dimension))
    cavity = family.from_mean(mean[0] if dimension == 1 else mean, v)
    tilted = tilted_of(w, c, family.part, cavity, x[0] if dimension == 1 else x, power)
    sd = np.sqrt(v)

    def term(axis, radius):
        signal = (1 - w) * np.exp(-0.5 * ((axis - distance) ** 2 + radius**2)) / (2 * np.pi) ** (dimension / 2)
        return (signal + w * np.exp(-0.5 * distance**2 / c) / (2 * np.pi * c) ** (dimension / 2)) ** power

    nodes, weights = np.polynomial.legendre.leggauss(24)
    edges = np.unique(np.concatenate([np.linspace(-11 * sd, 11 * sd, 60), distance + np.linspace(-9, 9, 40)]))
    edges = edges[(edges >= -11 * sd) & (edges <= 11 * sd)]
    half = np.diff(edges) / 2
    axis = ((edges[:-1] + half)[:, None] + half[:, None] * nodes).ravel()
    axis_weight = (half[:, None] * weights).ravel() * np.exp(-0.5 * axis**2 / v) / np.sqrt(2 * np.pi * v)
    if dimension == 1:
        radius, radius_weight = np.zeros(1), np.ones(1)
    else:
        # Radii are integrated in u = radius/sd with the chi density of d − 1 degrees, fine steps near the peak at x.
        cuts = np.unique(np.concatenate([np.linspace(0, 12, 40), np.linspace(0, min(9 / sd, 12), 30)]))
        step = np.diff(cuts) / 2
        u = ((cuts[:-1] + step)[:, None] + step[:, None] * nodes).ravel()
        chi = u ** (dimension - 2) * np.exp(-0.5 * u**2)
        norm = integrate.quad(lambda t: t ** (dimension - 2) * np.exp(-0.5 * t**2), 0, 40)[0]
        radius, radius_weight = sd * u, (step[:, None] * weights).ravel() * chi / norm
    mass = term(axis[:, None], radius[None, :]) * axis_weight[:, None] * radius_weight[None, :]
    z = mass.sum()
    shift = np.sum(mass * axis[:, None]) / z
    trace = np.sum(mass * ((axis[:, None] - shift) ** 2 + radius[None, :] ** 2)) / z
    np.testing.assert_allclose(tilted.log_z, np.log(z), atol=1e-10)
    np.testing.assert_allclose(tilted.stats[0], shift / v, atol=1e-9 / sd)
    np.testing.assert_allclose(tilted.stats[-1], (trace / dimension / v - 1) / v, atol=1e-9 / v)
    matched = cavity + tilted.site
    np.testing.assert_allclose(np.trace(np.atleast_2d(family.covariance(matched))), trace, rtol=1e-8)
