"""Latent Gaussian models are padded for a run: other numbers of rows compile nothing, and nobody sees the padding."""

import jax
import numpy as np
import pytest

import cavity as cv
from cavity.kernels import RBF, InducingInputs
from cavity.models._latent_gaussian.rows import bucket

RNG = np.random.default_rng(3)
POINTS = RNG.normal(size=(30, 2))
LABELS = np.where(POINTS[:, 0] + 0.5 * RNG.normal(size=30) > 0, 1.0, -1.0)
FORMS = {
    "matrix": lambda X: {"kernel_matrix": np.asarray(RBF(1.0)(X))},
    "kernel": lambda X: {"X": X, "kernel": RBF(1.0)},
    "weights": lambda X: {"X": X},
    "basis": lambda X: {"X": X, "kernel": RBF(1.0), "basis": InducingInputs(np.eye(2))},
}
BY_ROW = ("sites", "log_scales", "site_mismatch", "loo_log_predictive", "strengths")


def model(n, form="kernel", likelihood=None, **options):
    X = POINTS[:n]
    likelihood = cv.factors.Probit(0.05) if likelihood is None else likelihood
    return cv.models.latent_gaussian(LABELS[:n], likelihood, **FORMS[form](X), **options)


@pytest.fixture
def compiled():
    """How many programs have been lowered for the compiler by now, whether or not it had them in its cache."""
    jax.clear_caches()  # what other tests have compiled counts again
    count = [0]

    def listen(event, *_, **__):
        count[0] += event.endswith("jaxpr_to_mlir_module_duration")

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield lambda: count[0]
    jax.monitoring.unregister_event_duration_listener(listen)


def look(n, form):
    """Infer, and look at what users look at."""
    given = {"kernel_matrix": np.eye(n)} if form == "matrix" else FORMS[form](POINTS[:n])
    solution = cv.infer(cv.models.latent_gaussian(LABELS[:n], cv.factors.Probit(0.05), **given))
    new = (np.ones((3, n)) / n, np.ones(3)) if form == "matrix" else (POINTS[:3],)
    return [solution.mean, solution.variance, *(getattr(solution, name) for name in BY_ROW), solution.predict(*new)]


@pytest.mark.parametrize("form", FORMS)
def test_another_number_of_rows_compiles_nothing(form, compiled):
    look(21, form)
    before = compiled()
    look(19, form)
    assert compiled() == before > 0


@pytest.mark.parametrize(
    ("form", "method"),
    [("matrix", None), ("kernel", cv.RelaxedEP(0.01)), ("weights", cv.ConvergentEP()), ("basis", None)],
    ids=["matrix", "kernel-relaxed", "weights-convergent", "basis"],
)
def test_a_solution_has_as_many_rows_as_the_data(form, method):
    n, built = 21, model(21, form)
    solution = cv.infer(built, method)
    bare = cv.infer(built.problem(), method)  # nothing is padded that is no model
    assert solution.problem.groups[0].size == n
    for name in BY_ROW:
        ((own,), (other,)) = (getattr(found, name) for found in (solution, bare))
        assert np.shape(own) == np.shape(other)
        np.testing.assert_allclose(own, other, atol=1e-9)
    for name in ("mean", "variance", "covariance", "log_evidence", "negative", "evaluations", "sweeps"):
        np.testing.assert_allclose(getattr(solution, name), getattr(bare, name), atol=1e-9, err_msg=name)
    draws = solution.sample(jax.random.key(0), 5)
    assert draws.shape == (5, solution.mean.size)
    np.testing.assert_allclose(solution.log_density(draws), bare.log_density(draws), rtol=1e-6)
    assert float(solution.energy().value) == pytest.approx(float(bare.energy().value), abs=1e-9)


def test_callbacks_and_warm_starts_know_nothing_of_padding():
    shapes = []
    first = cv.infer(model(21), callback=lambda solution: shapes.append(np.shape(solution.mean)))
    assert set(shapes) == {(21,)}
    for init in (first, first.sites):
        again = cv.infer(model(21), cv.EP(), init=init)
        assert again.sweeps < first.sweeps
        np.testing.assert_allclose(again.mean, first.mean, atol=1e-7)
    with pytest.raises(ValueError, match=r"init must hold sites of shape \[\(21, 2\)\]"):
        cv.infer(model(21), init=(np.zeros((20, 2)),))


def test_under_jit_and_vmap_a_problem_has_its_own_size():
    run = jax.jit(lambda own: cv.infer(own, cv.EP()))
    with jax.enable_x64(True):
        bare = run(model(21).problem())
        stack = jax.tree.map(lambda *leaves: np.stack(leaves), model(21).problem(), model(21).problem())
        both = jax.vmap(lambda own: cv.infer(own, cv.EP()))(stack)
    assert bare.sites[0].shape == (21, 2) and both.sites[0].shape == (2, 21, 2)
    inside = model(21).interpret(bare)
    expected = cv.infer(model(21), cv.EP())
    np.testing.assert_allclose(inside.mean, expected.mean, atol=1e-10)
    np.testing.assert_allclose(inside.loo_log_predictive[0], expected.loo_log_predictive[0], atol=1e-10)
    for name, values in expected.predict(POINTS[:3]).items():
        np.testing.assert_allclose(inside.predict(POINTS[:3])[name], values, atol=1e-10)


@pytest.mark.parametrize("form", FORMS)
def test_only_the_problem_travels(form):
    built = model(21, form)
    assert jax.tree.leaves(built) == [built]
    assert all(np.asarray(leaf).dtype.kind == "f" for leaf in jax.tree.leaves(built.problem()))
    assert "RBF" not in str(jax.tree.structure(built.problem()))


def test_a_model_integrated_otherwise_still_predicts():
    built = model(21)
    integrated = cv.infer(built.with_moments(cv.Quadrature())).predict(POINTS[:3])
    for name, values in cv.infer(built).predict(POINTS[:3]).items():
        np.testing.assert_allclose(integrated[name], values, atol=1e-6)


def test_multiplicities_and_quadrature_are_padded_too():
    copies = np.where(np.arange(21) % 3 == 0, 2.0, np.where(np.arange(21) % 3 == 1, 0.0, 1.0))
    own = cv.factors.from_log_density(lambda f, y: -((f - y) ** 4))
    for likelihood in (cv.factors.Probit(0.05), own):
        built = model(21, likelihood=likelihood, multiplicity=copies)
        solution, bare = cv.infer(built, cv.EP()), cv.infer(built.problem(), cv.EP())
        assert solution.log_evidence == pytest.approx(bare.log_evidence, abs=1e-8)
        np.testing.assert_allclose(solution.mean, bare.mean, atol=1e-8)


def test_a_full_bucket_and_many_rows_are_run_as_they_are():
    for n in (32, 1100):
        assert n > 1024 or bucket(n) == n
        built = cv.models.latent_gaussian(np.ones(n), cv.factors.Probit(), X=np.ones((n, 1)))
        problem, init = built.padded_problem(cv.EP())
        assert problem.groups[0].size == n and init is None


def test_an_order_is_one_of_the_rows():
    method = cv.EP(schedule=cv.Order(range(20, -1, -1)))
    found, usual = cv.infer(model(21), method), cv.infer(model(21))
    np.testing.assert_allclose(found.mean, usual.mean, atol=1e-7)
    with pytest.raises(ValueError, match=r"must lie in 0\.\.20; found 0\.\.21"):
        cv.infer(model(21), cv.EP(schedule=cv.Order(range(22))))
