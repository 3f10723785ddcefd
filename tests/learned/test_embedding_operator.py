"""The paper's operator: its parts against the formulas written out in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cavity_reproductions.learned.broad_proposal import sample_projections, weigh_density
from cavity_reproductions.learned.incomplete_cholesky import dual_weights, incomplete_cholesky
from cavity_reproductions.learned.logistic_messages import DRAW, FAMILY, P, Z, labelled
from cavity_reproductions.learned.message_kernels import (
    ExpectedProduct,
    MeanVariance,
    OnEmbeddings,
    ProductOfProducts,
    ProductOnEmbeddings,
    SumOfProducts,
    SumOnEmbeddings,
)
from scipy import integrate, stats

from cavity.families import Beta, Gamma, Gaussian
from cavity.learned.embedding_operator import (
    Settings,
    fit_embedding,
    predict_projection,
    predict_projections,
    update_embedding,
)
from cavity.learned.feature_regression import MessageMoments, median_gap
from cavity.learned.message_coordinates import Target

SMALL = Settings(40, 60, (0.5,), (1e-3,))


def cavities(count, seed=0):
    rng = np.random.default_rng(seed)
    m, v = rng.normal(0, 2, count), rng.gamma(2.0, 1.0, count) + 0.1
    shapes = np.where(rng.random((count, 1)) < 0.5, [[2.0, 1.0]], [[1.0, 2.0]])
    return np.column_stack([shapes, m / v, 1 / v])


def tuples(count, seed=0):
    rng = np.random.default_rng(seed)
    return MessageMoments(rng.normal(size=(count, 2)), rng.gamma(2.0, 1.0, (count, 2)))


def test_labels_are_the_integrals():
    a, b, nu, tau = cavity = cavities(1)[0]
    found = labelled(cavity[None])

    def mass(z, f):
        return stats.beta.pdf(1 / (1 + np.exp(-z)), a, b) * stats.norm.pdf(z, nu / tau, tau**-0.5) * f(z)

    total, first, second, log_p = (
        integrate.quad(mass, -30, 30, args=(f,), epsabs=1e-13)[0]
        for f in (lambda z: 1.0, lambda z: z, lambda z: z**2, lambda z: -np.log1p(np.exp(-z)))
    )
    mean = first / total
    np.testing.assert_allclose(found.log_z[0], np.log(total), rtol=1e-8)
    np.testing.assert_allclose(found.of(Z)[0], np.array([mean, 1.0]) / (second / total - mean**2), rtol=1e-7)
    np.testing.assert_allclose(Beta().moments(found.of(P)[0])[0], log_p / total, rtol=1e-7)


def test_the_broad_sampler_comes_near_them():
    rows = cavities(4)
    exact, found = labelled(rows), sample_projections(jax.random.key(0), DRAW, FAMILY, rows, 20_000)
    assert np.all(found.ess < 12_000) and np.all(found.ess > 100)
    assert np.all(np.asarray(Gaussian().kl(exact.of(Z), found.projected[:, 2:])) < 20 / found.ess)
    assert np.all(np.asarray(Beta().kl(exact.of(P), found.projected[:, :2])) < 20 / found.ess)
    np.testing.assert_allclose(found.log_z, exact.log_z, atol=0.2)


def test_the_broad_sampler_with_a_density():
    found = sample_projections(
        jax.random.key(0), weigh_density(lambda x: -0.5 * (x - 1.0) ** 2), Gaussian(), [[0.0, 1.0]], 50_000
    )
    np.testing.assert_allclose(found.projected[0], [1.0, 2.0], rtol=0.1)


@pytest.mark.parametrize("kind", ["statistics", "parameters", "message", "change"])
@pytest.mark.parametrize("output", [P, Z])
def test_targets_go_there_and_back(kind, output):
    rows = cavities(5)
    target, projected = Target(FAMILY, output, kind), labelled(rows).of(output)
    if kind == "message" and output == P:
        return  # p hears messages with negative exponents, which have no logarithm
    for cavity, own in zip(rows, projected, strict=True):
        back = target.back(jnp.asarray(cavity), target.of(jnp.asarray(cavity), jnp.asarray(own)))
        np.testing.assert_allclose(back, own, rtol=1e-6)


def test_parameters_are_the_papers():
    target = Target(Gamma(), 0, "message")
    found = target.of(jnp.array([2.0, 1.0]), jnp.array([5.0, 4.0]))
    np.testing.assert_allclose(found, np.log([4.0, 3.0]))  # Gamma(5, 4) / Gamma(2, 1) is Gamma(4, 3)


def test_the_prediction_is_equations_13_and_15():
    rows = cavities(50)
    target = Target(FAMILY, Z)
    labels = labelled(rows)
    now = fit_embedding(jax.random.key(0), target, rows, labels.of(Z), SMALL)
    stages = jax.tree.map(lambda leaf: leaf[0], now.stages)
    x, new = (np.asarray(stages.of(FAMILY, jnp.asarray(r))) for r in (rows, cavities(1, 9)))
    variance = 1 / labels.of(Z)[:, 1]
    y = np.column_stack([labels.of(Z)[:, 0] * variance, np.log(variance)])
    covariance = np.linalg.inv(x.T @ x / 1e-3 + np.eye(60))
    mean, log_spread = new[0] @ covariance @ x.T @ y / 1e-3
    found = predict_projection(now, target, jnp.asarray(cavities(1, 9)[0]))
    np.testing.assert_allclose(found.projected, np.array([mean, 1.0]) / np.exp(log_spread), rtol=1e-6)
    np.testing.assert_allclose(found.log_variance, np.log(new[0] @ covariance @ new[0] + 1e-3), rtol=1e-8)


@pytest.mark.parametrize("shared", [True, False])
def test_labels_one_by_one_are_a_batch(shared):
    rows, target = cavities(60), Target(FAMILY, Z, "change")
    projected = labelled(rows).of(Z)
    settings = Settings(30, 40, (0.5,), (1e-3,), shared)
    now = fit_embedding(jax.random.key(0), target, rows, projected, settings)
    before = update_embedding._cache_size()
    start = now._replace(
        regression=now.regression._replace(
            covariance=jnp.stack([jnp.eye(40)] * len(now.noise)), products=jnp.zeros_like(now.regression.products)
        )
    )
    start = jax.tree.map(jnp.asarray, start)
    filled = np.vstack([projected, np.full((4, 2), np.nan)])
    for at in range(0, 64, 8):
        start = update_embedding(
            start, target, jnp.asarray(np.resize(rows, (64, 4))[at : at + 8]), jnp.asarray(filled[at : at + 8])
        )
    assert update_embedding._cache_size() == before + 1
    np.testing.assert_allclose(start.regression.covariance, now.regression.covariance, atol=1e-9)
    np.testing.assert_allclose(start.regression.weights, now.regression.weights, rtol=1e-5, atol=1e-7)
    one, other = (predict_projections(own, target, jnp.asarray(cavities(3, 5))) for own in (start, now))
    assert one.log_variance.shape == (3, 2)
    np.testing.assert_allclose(one.projected, other.projected, rtol=1e-6)


def test_it_is_unsure_where_it_has_seen_nothing():
    rows, target = cavities(200), Target(FAMILY, Z)
    now = fit_embedding(jax.random.key(0), target, rows, labelled(rows).of(Z), SMALL)
    far = np.array([[2.0, 1.0, 60.0, 2.0]])
    found = predict_projections(now, target, jnp.asarray(np.vstack([rows[:1], far])))
    assert np.any(found.log_variance >= np.log(2e-2), axis=-1).tolist() == [False, True]


def test_leaving_one_out_picks_the_better_pair():
    rows, target = cavities(150), Target(FAMILY, Z)
    projected = labelled(rows).of(Z)
    settings = Settings(40, 80, (1e-4, 1.0), (1e-4, 10.0), False, (40, 80))
    assert np.all(np.asarray(fit_embedding(jax.random.key(0), target, rows, projected, settings).noise) == 1e-4)
    new, exact = cavities(50, 7), labelled(cavities(50, 7)).of(Z)

    def error(given):
        found = predict_projections(
            fit_embedding(jax.random.key(0), target, rows, projected, given), target, jnp.asarray(new)
        ).projected
        return float(np.mean(np.log(np.asarray(Gaussian().kl(exact, found)))))

    assert error(settings) < error(Settings(40, 80, (1e-4,), (10.0,), False)) - 1.0


@pytest.mark.parametrize(
    ("kernel", "size"),
    [
        (MeanVariance((1.0, 2.0, 3.0, 4.0)), 4000),
        (ExpectedProduct((1.0, 3.0)), 4000),
        (SumOfProducts((1.0, 3.0)), 4000),
        (ProductOfProducts((1.0, 3.0)), 300),
        (OnEmbeddings((1.0, 3.0), 0.3, 2000), 4000),
    ],
)
def test_features_stand_for_their_kernels(kernel, size):
    """The error of a Monte-Carlo mean, and a quarter of it from sixteen times as many."""
    of = tuples(25)
    gram = kernel.gram(of, of)
    assert np.linalg.eigvalsh(gram).min() > -1e-10

    def error(count):
        x = kernel.features(jax.random.key(1), count)(of)
        return np.sqrt(np.mean((x @ x.T - gram) ** 2))

    assert error(size) < 0.05
    if not isinstance(kernel, ProductOfProducts | OnEmbeddings):
        assert error(size // 16) > 2 * error(size)


def test_kernels_are_expectations():
    """⟨μ_r, μ_s⟩ = E k(x, y) by draws."""
    of, rng = tuples(2), np.random.default_rng(0)
    x, y = (m + np.sqrt(v) * rng.normal(size=(200_000, 2)) for m, v in zip(*of, strict=True))
    single = np.exp(-0.5 * (x - y) ** 2 / np.array([1.0, 3.0])).mean(axis=0)
    np.testing.assert_allclose(ExpectedProduct((1.0, 3.0)).gram(of, of)[0, 1], single.prod(), rtol=0.02)
    np.testing.assert_allclose(SumOfProducts((1.0, 3.0)).gram(of, of)[0, 1], single.sum(), rtol=0.02)
    gram = ExpectedProduct((1.0, 3.0)).gram(of, of)
    gap = gram[0, 0] + gram[1, 1] - 2 * gram[0, 1]
    np.testing.assert_allclose(OnEmbeddings((1.0, 3.0), 0.3).gram(of, of)[0, 1], np.exp(-gap / 0.6))
    assert median_gap(of, (1.0, 3.0)) == 0.0  # of the gaps 0, 0 and one other


def test_sum_and_product_of_single_embeddings():
    of = tuples(6)
    parts = [OnEmbeddings((s,), g).gram(*[MessageMoments(of.means[:, [k]], of.variances[:, [k]])] * 2)
             for k, (s, g) in enumerate([(1.0, 0.2), (3.0, 0.4)])]  # fmt: skip
    np.testing.assert_allclose(SumOnEmbeddings((1.0, 3.0), (0.2, 0.4)).gram(of, of), parts[0] + parts[1])
    np.testing.assert_allclose(ProductOnEmbeddings((1.0, 3.0), (0.2, 0.4)).gram(of, of), parts[0] * parts[1])


def test_incomplete_cholesky_with_enough_rank_is_complete():
    of, rng = tuples(40), np.random.default_rng(0)
    gram = MeanVariance((0.1, 0.1, 0.1, 0.1)).gram(of, of)
    factor = incomplete_cholesky(np.diag(gram), lambda k: gram[:, k], 40)
    np.testing.assert_allclose(factor.root @ factor.root.T, gram, atol=1e-7)
    few = incomplete_cholesky(np.diag(gram), lambda k: gram[:, k], 10)
    assert len(set(few.pivots)) == 10
    np.testing.assert_allclose((few.root @ few.root.T)[few.pivots], gram[few.pivots], atol=1e-12)
    y = rng.normal(size=(40, 2))
    np.testing.assert_allclose(dual_weights(factor, y, 0.1), np.linalg.solve(gram + 0.1 * np.eye(40), y), atol=1e-5)


def test_incomplete_cholesky_stops_where_nothing_is_left():
    gram = np.outer([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    assert len(incomplete_cholesky(np.diag(gram), lambda k: gram[:, k], 3).pivots) == 1
