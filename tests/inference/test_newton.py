"""Newton's method on the equations of EP: local coordinates, the linear systems, and where it leads."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import draw_clutter

import cavity as cv
from cavity.inference._loop import Start, blank_state
from cavity.inference._newton import fixed_point_step, look, marginals_of
from cavity.inference.methods.base import Limits
from cavity.inference.methods.convergent import newton
from cavity.posteriors.base import Equations
from cavity.posteriors.dense_gaussian import solve_dense
from cavity.posteriors.weight_gaussian import solve_in_basis

MEMBERS = {
    "gaussian": (cv.families.Gaussian(), [[3.0, 0.5], [2.0, 0.8]]),
    "beta": (cv.families.Beta(), [[2.0, 3.0], [1.5, 4.0]]),
    "categorical": (cv.families.Categorical(3), [[0.1, -0.4, 0.3, 0, 0, 0], [0.2, 0.1, -1.0, 0, 0, 0]]),
    "product": (
        cv.families.Product((cv.families.Gaussian(), cv.families.Categorical(2))),
        [[1.0, 2.0, 0.3, -0.3, 0, 0], [0.5, 1.5, 0.1, 0.2, 0, 0]],
    ),
}


@pytest.mark.parametrize("name", MEMBERS)
def test_local_coordinates(name):
    """They are linear and invertible, and their moments belong to the log partition."""
    family, members = MEMBERS[name]
    reference, eta = (jnp.asarray(member, float) for member in members)
    x = 0.1 * jnp.arange(1.0, family.local_size + 1)
    from_local, to_local = jax.jit(family.from_local), jax.jit(family.to_local)
    change = from_local(reference, x)
    assert change.shape == (family.size,)
    np.testing.assert_allclose(to_local(reference, change), x, rtol=1e-12)
    np.testing.assert_allclose(from_local(reference, 2 * x), 2 * change, rtol=1e-12)
    # Statistics may be centred: their covariances are the second derivatives of A, and their slopes those of moments.
    curvature = jax.jit(jax.hessian(lambda x: family.log_partition(eta + family.from_local(reference, x))))(0.0 * x)
    moments = jax.jacfwd(lambda x: family.local_moments(reference, eta + family.from_local(reference, x)))
    slope = jax.jit(moments)(0.0 * x)
    np.testing.assert_allclose(slope, curvature, atol=1e-9)


def test_local_statistics_of_a_gaussian_are_centred_and_scaled():
    family = cv.families.Gaussian()
    reference, eta = family.from_mean(6.0, 2.0), family.from_mean(2.5, 1.25)
    u = (2.5 - 6.0) / 2.0**0.5
    np.testing.assert_allclose(family.local_moments(reference, eta), [u, -0.5 * (1.25 / 2.0 + u**2)], rtol=1e-12)


@pytest.mark.parametrize("dimension", [None, 3])
def test_equations_are_solved(dimension):
    """By one dense system, or for latents that are combinations of few weights in the space of these."""
    rng = np.random.default_rng(0)
    n = 5
    root = rng.normal(size=(n, dimension or n))
    covariance = root @ root.T
    parts = []
    for _ in range(2):
        own = np.eye(2) + 0.1 * rng.normal(size=(n, 2, 2))
        multiplicity = rng.integers(1, 3, n).astype(float)
        parts.append(Equations(None, multiplicity, rng.normal(size=(n, 2, 2)), own, rng.normal(size=(n, 2))))
    traced = tuple(jax.tree.map(jnp.asarray, part) for part in parts)
    solve, matrix = (solve_in_basis, root) if dimension else (solve_dense, covariance)
    found = jax.jit(solve)(jnp.asarray(matrix), traced)
    sd = np.sqrt(np.diag(covariance))
    rho = covariance / np.outer(sd, sd)
    total = sum(part.multiplicity[:, None] * np.asarray(x) for part, x in zip(parts, found, strict=True))
    moved = np.stack([rho @ total[:, 0], 0.5 * rho**2 @ total[:, 1]], axis=1)
    for part, x in zip(parts, found, strict=True):
        left = np.einsum("ijk,ik->ij", part.mixing, moved) + np.einsum("ijk,ik->ij", part.own, np.asarray(x))
        np.testing.assert_allclose(left, part.right, atol=1e-9)


PROBLEMS = {
    "clutter": cv.models.clutter(draw_clutter(1, 20)),
    "spherical": cv.models.clutter(draw_clutter(2, 15, dimension=2)),
    "weights": cv.models.mixture_weights(np.random.default_rng(0).uniform(0.1, 1.0, (12, 2))),
    "kernel": cv.models.latent_gaussian(
        np.sign(np.arange(12) - 5.5), cv.factors.Probit(0.05), kernel_matrix=np.eye(12) + 0.5
    ).problem(),
    "linear": cv.models.latent_gaussian(
        np.sign(np.arange(12) - 4.5), cv.factors.Probit(0.1), X=np.random.default_rng(1).normal(size=(12, 2))
    ).problem(),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_step_is_the_inverse_of_the_jacobian(name):
    """The moment gaps after a short step along Newton's direction shrink by the share of the step."""
    problem, method, key = PROBLEMS[name], cv.EP(), jax.random.key(0)
    rough = cv.infer(problem, cv.EP(max_sweeps=1))

    @jax.jit
    def gaps(problem, sites):
        state = blank_state(problem, method, Start(sites))
        found = []
        for group, own, local in zip(problem.groups, sites, marginals_of(problem, state.q), strict=True):
            matched = local - own + tilted_site(group, local - own)
            found.append(group.family.moments(matched) - group.family.moments(local))
        return state, found

    def tilted_site(group, cavity):
        return jax.vmap(
            lambda c, data: group.moments.tilt(None, group.factor, group.family, c, data, 1.0, key)[0].site
        )(cavity, jax.tree.map(jnp.asarray, group.data))

    sites = tuple(jnp.asarray(own) for own in rough.sites)
    state, before = gaps(problem, sites)
    steps = jax.jit(fixed_point_step)(problem, method, state, key)
    share = 1e-5
    _, after = gaps(problem, tuple(own + share * step for own, step in zip(sites, steps, strict=True)))
    for old, new in zip(map(np.asarray, before), map(np.asarray, after), strict=True):
        np.testing.assert_allclose((old - new) / share, old, atol=2e-3 * np.abs(old).max())


@pytest.mark.parametrize("name", PROBLEMS)
def test_it_ends_where_sweeps_end(name):
    problem = PROBLEMS[name]
    swept, rough = cv.infer(problem, cv.EP()), cv.infer(problem, cv.EP(max_sweeps=3))
    sites = tuple(jnp.asarray(own) for own in rough.sites)
    found = newton(problem, cv.EP(), sites, jax.random.key(0), Limits())
    assert swept.converged and found.status == "converged" and found.sweeps <= 6
    np.testing.assert_allclose(found.sites[0], swept.sites[0], atol=1e-6, rtol=1e-6)
    assert found.log_evidence == pytest.approx(swept.log_evidence, abs=1e-8)


def test_tilted_covariances():
    """Ĥ of a Gaussian factor is the covariance of (u, −u²/2) under the exact product, in q's units."""
    problem = cv.models.posterior(cv.factors.Gaussian(0.5), np.array([2.0]), prior_variance=4.0)
    (group,) = problem.groups
    marginal, cavity = jnp.array([[3.0, 2.0]]), jnp.array([[0.7, 0.4]])
    found = jax.jit(lambda *states: look(group, 0, *states, 1.0, jax.random.key(0)))(marginal, cavity)
    precision = 0.4 + 2.0
    mean, variance = (0.7 + 4.0) / precision, 1 / precision
    shift, ratio = (mean - 1.5) * np.sqrt(2.0), 2.0 * variance
    expected = [[ratio, -shift * ratio], [-shift * ratio, 0.5 * ratio**2 + shift**2 * ratio]]
    np.testing.assert_allclose(found.spread[0], expected, rtol=1e-7)
    np.testing.assert_allclose(found.gap[0], [shift, -0.5 * (ratio + shift**2) + 0.5], rtol=1e-10)
