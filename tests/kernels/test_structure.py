"""What a search sees of a kernel: names, bounds, theta; what JAX sees; what is stored; what is refused."""

import copy
import json
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cavity import kernels
from cavity.kernels import RBF, Constant, Linear, Matern, Polynomial, White, base
from cavity.kernels.covariances import from_spec

X = np.random.default_rng(3).standard_normal((6, 2))
QUADRATIC = Polynomial(2, offset_bounds="fixed")
RICH = 2.0 * RBF([1.0, 3.0]) + Matern(0.7, nu=2.5) * QUADRATIC + White(0.1, noise_bounds=(1e-2, 1.0))


def test_theta_bounds_and_names_are_in_one_order():
    assert RICH.names == (
        "constant.value",
        "rbf.length_scale[0]",
        "rbf.length_scale[1]",
        "matern.length_scale",
        "polynomial.scale",
        "white.noise",
    )
    np.testing.assert_allclose(np.exp(RICH.theta), [2.0, 1.0, 3.0, 0.7, 1.0, 0.1], rtol=1e-15)
    expected = [(1e-4, 1e4), (1e-3, 1e3), (1e-3, 1e3), (1e-3, 1e3), (1e-4, 1e4), (1e-2, 1.0)]
    np.testing.assert_allclose(np.exp(RICH.bounds), expected, rtol=1e-13)
    assert isinstance(RICH.theta, np.ndarray)


def test_equal_kernels_of_a_sum_are_numbered():
    assert (RBF() + RBF() + Linear()).names == ("rbf1.length_scale", "rbf2.length_scale", "linear.variance")


def test_theta_round_trip_changes_free_parameters_only():
    changed = RICH.with_theta(np.log([5.0, 6.0, 7.0, 8.0, 9.0, 0.5]))
    spec = changed.spec()
    np.testing.assert_allclose(spec["left"]["left"]["right"]["length_scale"], [6.0, 7.0], rtol=1e-15)
    assert spec["left"]["right"]["right"]["offset"] == 1.0
    np.testing.assert_allclose(np.exp(changed.theta), [5.0, 6.0, 7.0, 8.0, 9.0, 0.5], rtol=1e-15)


def test_nothing_recompiles_when_values_change():
    traces = []

    @jax.jit
    def trace_of(kernel, points):
        traces.append(kernel)
        return jnp.trace(kernel(points))

    sizes = []
    for shift in (0.0, 0.1, 0.2):
        kernel = RICH.with_theta(RICH.theta + shift)
        trace_of(kernel, X), kernel(X), kernel.pullback(X, np.eye(6)), kernel.diagonal(X)
        compiled = (base.compiled_matrix, base.compiled_pullback, base.compiled_diagonal)
        sizes.append([function._cache_size() for function in compiled])
    assert len(traces) == 1
    assert sizes[0] == sizes[1] == sizes[2]
    trace_of(RICH.left, X)
    assert len(traces) == 2


def test_theta_may_be_traced():
    thetas = RICH.theta + np.array([[0.0], [0.3]])
    together = jax.vmap(lambda theta: RICH.with_theta(theta)(X))(thetas)
    np.testing.assert_allclose(together[1], RICH.with_theta(thetas[1])(X), rtol=1e-13)


def test_a_kernel_survives_copies():
    for again in (copy.deepcopy(RICH), pickle.loads(pickle.dumps(RICH))):
        assert again.spec() == RICH.spec() and again is not RICH


def test_a_kernel_survives_json():
    again = from_spec(json.loads(json.dumps(RICH.spec())))
    assert again.spec() == RICH.spec()
    assert jax.tree.structure(again) == jax.tree.structure(RICH)
    np.testing.assert_array_equal(again(X), RICH(X))


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ({"class": "os.system", "command": "true"}, "RBF, Matern"),
        ({"class": ["RBF"]}, "found"),
        ("RBF()", "dictionary"),
        ({"class": "RBF"}, "length_scale"),
        ({"class": "RBF", "length_scale": 1.0, "length_scale_bounds": "fixed", "more": 1}, "'more'"),
        ({"class": "RBF", "length_scale": -1.0, "length_scale_bounds": "fixed"}, "positive"),
        ({"class": "Sum", "left": RBF().spec(), "right": 3}, "dictionary"),
    ],
)
def test_broken_specs_are_refused(spec, word):
    with pytest.raises(ValueError, match=word):
        from_spec(spec)


def test_numbers_join_from_both_sides():
    for kernel in (np.float64(2.0) * RBF(), RBF() * 2, jnp.asarray(2.0) * RBF()):
        assert sorted(kernel.names) == ["constant.value", "rbf.length_scale"]
        np.testing.assert_array_equal(kernel.diagonal(X), np.full(6, 2.0))
    assert repr(1 + RBF()) == "Sum(left=Constant(value=1.0), right=RBF(length_scale=1.0))"
    for other in ("2", None, [1.0], RBF):
        with pytest.raises(TypeError):
            RBF() + other


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: RBF(0.0), "length_scale must be positive"),
        (lambda: RBF([1.0, -2.0]), "length_scale must be positive; found -2.0 at index 1"),
        (lambda: RBF(np.nan), "length_scale must be finite"),
        (lambda: RBF("long"), "length_scale"),
        (lambda: RBF(length_scale_bounds=(1.0, 1.0)), "length_scale_bounds"),
        (lambda: RBF(length_scale_bounds="free"), "length_scale_bounds"),
        (lambda: Matern(nu=2.0), "nu must be"),
        (lambda: Polynomial(0), "degree"),
        (lambda: Polynomial(2.5), "degree"),
        (lambda: Polynomial(2, offset=0.0), "offset may be 0 only where it is fixed"),
        (lambda: Constant([1.0, 2.0]), "value must be a number"),
        (lambda: -1.0 * RBF(), "value must be positive"),
        (lambda: RBF([1.0, 2.0, 3.0])(X), "X must have 3 columns"),
        (lambda: RBF()(X, X[:, :1]), "as many columns"),
        (lambda: RBF()([[1.0, np.inf]]), "X must be finite"),
        (lambda: RBF()(X[:, 0]), "X must have 2 dimension"),
        (lambda: RBF().pullback(X, np.eye(3)), "G must have"),
        (lambda: RBF().with_theta([0.0, 1.0]), "theta must have 1 numbers"),
        (lambda: RBF().fix("nu"), "length_scale"),
        (lambda: (RBF() + 1.0).fix("length_scale"), "before kernels are joined"),
    ],
)
def test_bad_input_is_named(make, word):
    with pytest.raises(ValueError, match=word):
        make()


def test_a_users_own_kernel_has_the_whole_interface():
    @kernels.kernel
    class Cosine(kernels.Kernel):
        period: float = 1.0
        period_bounds: tuple = kernels.limits(default=(0.1, 10.0))

        def matrix(self, X, Z):
            Z = X if Z is None else Z
            return jnp.cos((X - Z.T) / self.period)

        def diagonal_of(self, X):
            return jnp.ones(X.shape[0])

    kernel, column = Cosine(2.0) + 1.0, X[:, :1]
    assert kernel.names == ("cosine.period", "constant.value")
    gap = (column - column.T) / 2.0
    np.testing.assert_allclose(kernel(column), np.cos(gap) + 1.0, rtol=1e-14)
    np.testing.assert_allclose(kernel.pullback(column, np.ones((6, 6))), [np.sum(gap * np.sin(gap)), 36.0], rtol=1e-12)
