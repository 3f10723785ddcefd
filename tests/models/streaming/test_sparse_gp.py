"""Sparse Gaussian processes on streams: the same answer as on all rows at once, residuals and weights included."""

import jax
import numpy as np
import pytest

import cavity as cv
from cavity.factors import Probit
from cavity.kernels import RBF, InducingInputs, RandomFeatures
from cavity.models._latent_gaussian import fit_sparse_gp
from cavity.models.streaming import stream_sparse_gps

RNG = np.random.default_rng(8)
X = RNG.normal(size=(150, 2))
Y = np.where(np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * RNG.normal(size=150) > 0, 1.0, -1.0)
KERNEL, FACTOR, TIGHT = RBF(1.1), Probit(), cv.EP(tol=1e-11)
BASES = {"inducing": InducingInputs(X[::12]), "features": RandomFeatures.draw(KERNEL, 2, 20, jax.random.key(0))}


def batches():
    return ((X[start : start + 40], Y[start : start + 40]) for start in range(0, len(X), 40))


@pytest.mark.parametrize("basis", BASES)
def test_the_answer_is_that_of_all_rows_at_once(basis):
    known = {"kernel": KERNEL, "basis": BASES[basis], "factor": FACTOR, "method": TIGHT}
    (found,), _ = stream_sparse_gps(batches, **known)
    whole = fit_sparse_gp(X, Y, optimize=False, **known)
    assert found.status == "converged"
    new = RNG.normal(size=(30, 2))
    for ours, theirs in zip(found.latent(new), whole.latent(new), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)
    assert found.log_evidence == pytest.approx(whole.log_evidence, abs=1e-8)


def test_residuals_count_and_a_row_of_weight_two_is_the_row_twice():
    """Against the dense form of FITC: K replaced by aaᵀ + diag r, rows repeated."""
    weights = np.where(np.arange(60) % 3 == 0, 2.0, 1.0)
    (found,), _ = stream_sparse_gps(
        (X[:60], Y[:60], weights), kernel=KERNEL, basis=BASES["inducing"], factor=FACTOR, method=TIGHT
    )
    rows, residual = (np.asarray(part) for part in BASES["inducing"](KERNEL, X[:60]))
    assert residual.max() > 1e-3
    # Two observations of one row have residuals of their own here, as different rows have.
    every = np.repeat(np.arange(60), weights.astype(int))
    K = rows[every] @ rows[every].T + np.diag(residual[every])
    dense = cv.infer(cv.models.latent_gaussian(Y[every], FACTOR, kernel_matrix=K), TIGHT)
    assert found.log_evidence == pytest.approx(float(dense.log_evidence), abs=1e-7)


def test_bad_requests_get_a_sentence():
    with pytest.raises(TypeError, match=r"basis must be one of cavity\.kernels"):
        stream_sparse_gps(batches, kernel=KERNEL, basis=3, factor=FACTOR)
    wide = [(np.ones((4, 3)), np.ones(4))]
    with pytest.raises(ValueError, match=r"batch 0.*inputs must have 3 columns"):
        stream_sparse_gps(wide, kernel=KERNEL, basis=BASES["inducing"], factor=FACTOR)
