"""scikit-learn's kernels behind the library's interface: same numbers, same theta, saved only where that is safe."""

import json

import numpy as np
import pytest
from sklearn.gaussian_process import kernels as sk

from cavity import kernels
from cavity.estimators.sklearn_kernels import SklearnKernel, as_kernel, kernel_from_spec

RNG = np.random.default_rng(11)
X, Z = RNG.standard_normal((7, 2)), RNG.standard_normal((3, 2))
G = RNG.standard_normal((7, 7))
G = G + G.T

SHIPPED = {
    "composed": sk.ConstantKernel(2.0) * sk.RBF([0.5, 3.0]) + sk.WhiteKernel(0.3),
    "matern": sk.Matern(0.7, nu=2.5, length_scale_bounds=(0.1, 10.0)),
    "matern_inf": sk.Matern(np.float64(0.7), nu=np.inf),
    "fixed": sk.RBF(0.7, length_scale_bounds="fixed") * sk.ConstantKernel(1.5),
    "all_fixed": sk.RBF([0.7, 0.3], "fixed"),
    "periodic": sk.ExpSineSquared(1.2, 3.0),
    "rational": sk.RationalQuadratic(1.2, 0.8, alpha_bounds=[(0.1, 10.0)]),
    "power": sk.Exponentiation(sk.DotProduct(0.6), 2),
    "pairwise": sk.PairwiseKernel(0.4, metric="polynomial", pairwise_kernels_kwargs={"degree": 2}),
}


class Halved(sk.RBF):
    """A user's own kernel."""

    def __call__(self, X, Y=None, eval_gradient=False):
        result = super().__call__(X, Y, eval_gradient)
        return tuple(0.5 * part for part in result) if eval_gradient else 0.5 * result


@pytest.mark.parametrize("name", SHIPPED)
def test_the_interface_gives_scikit_learns_numbers(name):
    theirs = SHIPPED[name]
    kernel = as_kernel(theirs)
    np.testing.assert_array_equal(kernel(X), theirs(X))
    np.testing.assert_array_equal(kernel(X, Z), theirs(X, Z))
    np.testing.assert_array_equal(kernel.diagonal(X), theirs.diag(X))
    np.testing.assert_array_equal(kernel.theta, theirs.theta)
    assert kernel.bounds.shape == (kernel.theta.size, 2) and len(kernel.names) == kernel.theta.size
    moved = kernel.with_theta(kernel.theta + 0.1)
    np.testing.assert_allclose(moved.theta, theirs.theta + 0.1, rtol=1e-14)


@pytest.mark.parametrize("name", SHIPPED)
def test_pullback_agrees_with_finite_differences(name):
    kernel = as_kernel(SHIPPED[name])
    differences = [
        np.sum(G * (kernel.with_theta(kernel.theta + step)(X) - kernel.with_theta(kernel.theta - step)(X))) / 2e-5
        for step in 1e-5 * np.eye(kernel.theta.size)
    ]
    # scikit-learn's own gradient of PairwiseKernel is a one-sided difference with a step of 1e-10
    tolerance = 1e-4 if name == "pairwise" else 1e-7
    np.testing.assert_allclose(kernel.pullback(X, G), differences, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_kernels_survive_json(name):
    spec = json.loads(json.dumps(as_kernel(SHIPPED[name]).spec(), allow_nan=False))
    again = kernel_from_spec(spec)
    assert again.kernel == SHIPPED[name]
    np.testing.assert_array_equal(again(X), SHIPPED[name](X))
    np.testing.assert_array_equal(again.bounds, as_kernel(SHIPPED[name]).bounds)


def test_the_two_libraries_agree_where_both_have_the_kernel():
    ours = 2.0 * kernels.RBF([0.5, 3.0]) + kernels.White(0.3)
    theirs = as_kernel(SHIPPED["composed"])
    np.testing.assert_allclose(ours.theta, theirs.theta, rtol=1e-15)
    np.testing.assert_allclose(ours.pullback(X, G), theirs.pullback(X, G), rtol=1e-11)
    assert theirs.names == (
        "k1__k1__constant_value",
        "k1__k2__length_scale[0]",
        "k1__k2__length_scale[1]",
        "k2__noise_level",
    )


def test_what_stands_for_a_kernel():
    mine = kernels.Matern(2.0)
    assert as_kernel(mine) is mine
    assert isinstance(as_kernel(None), kernels.RBF)
    found = [type(as_kernel(name)).__name__ for name in ("rbf", "matern", "linear", "poly")]
    assert found == ["RBF", "Matern", "Linear", "Polynomial"]
    adapted = as_kernel(sk.RBF())
    assert isinstance(adapted, SklearnKernel) and as_kernel(adapted) is adapted
    assert kernel_from_spec(mine.spec()).spec() == mine.spec()


@pytest.mark.parametrize(("kernel", "word"), [(3.0, "float"), (sk.RBF, "class RBF"), (np.eye(2), "ndarray")])
def test_other_things_are_refused(kernel, word):
    with pytest.raises(TypeError, match=word):
        as_kernel(kernel)


def test_unknown_names_and_compound_kernels_are_refused():
    with pytest.raises(ValueError, match="kernel must be one of rbf, matern, linear, poly; found 'gauss'"):
        as_kernel("gauss")
    with pytest.raises(TypeError, match="CompoundKernel"):
        as_kernel(sk.CompoundKernel([sk.RBF(), sk.RBF()]))


def test_a_users_kernel_is_used_but_not_saved():
    kernel = as_kernel(Halved(0.7) + 1.0)
    np.testing.assert_allclose(kernel(X), 0.5 * sk.RBF(0.7)(X) + 1.0, rtol=1e-15)
    assert kernel.pullback(X, G).shape == (2,)
    with pytest.raises(ValueError, match="Halved cannot be saved"):
        kernel.spec()
    with pytest.raises(ValueError, match="function as hyperparameter cannot be saved"):
        as_kernel(sk.PairwiseKernel(metric=lambda x, z, gamma=1.0: gamma)).spec()


def test_a_users_kernel_that_misbehaves_is_named():
    class Broken(Halved):
        def __call__(self, X, Y=None, eval_gradient=False):
            return np.full((len(X), len(X)), np.nan) if len(X) > 3 else np.zeros(2)

    with pytest.raises(ValueError, match=r"Broken.*not finite"):
        as_kernel(Broken())(X)
    with pytest.raises(ValueError, match=r"Broken.*shape \(3, 3\); found \(2,\)"):
        as_kernel(Broken())(Z)


@pytest.mark.parametrize(
    ("saved", "word"),
    [
        ({"name": "Popen", "params": {"args": "true"}}, "one of ConstantKernel"),
        ({"name": "CompoundKernel", "params": {"kernels": []}}, "one of ConstantKernel"),
        ({"name": "RBF", "params": {"size": 1.0}}, "cannot be rebuilt"),
        ({"name": "Sum", "params": {"k1": "RBF", "k2": 2.0}}, "cannot be rebuilt"),
        ({"name": "RBF"}, "found 'RBF'"),
        ("RBF()", "dictionary with a name"),
    ],
)
def test_nothing_else_is_made_from_a_file(saved, word):
    with pytest.raises(ValueError, match=word):
        kernel_from_spec({"class": "SklearnKernel", "kernel": saved})


def test_bad_arguments_are_named():
    kernel = as_kernel(sk.RBF())
    with pytest.raises(ValueError, match="X must be finite"):
        kernel([[np.nan]])
    with pytest.raises(ValueError, match="G must have a row"):
        kernel.pullback(X, np.eye(2))
    with pytest.raises(ValueError, match="theta must have 1 numbers"):
        kernel.with_theta([1.0, 2.0])
