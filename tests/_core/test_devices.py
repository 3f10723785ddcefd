"""Too large a problem is refused with its size, the limit and what would fit, before anything is allocated."""

import jax
import numpy as np
import pytest

import cavity as cv
from cavity._core import system


def test_what_fits_is_not_refused():
    system.check_room("It", 10, 1.0, "Take less.")
    assert system.room() > 1e8


def test_the_device_is_known_while_a_program_is_traced():
    seen = []
    jax.jit(lambda x: seen.append((system.is_accelerator(), system.room())) or x)(np.zeros(2))
    assert seen == [(system.is_accelerator(), system.room())]


def test_a_problem_can_be_made_inside_a_program():
    X, y = np.random.default_rng(0).normal(size=(20, 2)), np.ones(20)

    def evidence(scale):
        K = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(-1)) * scale + np.eye(20)
        return cv.infer(cv.models.latent_gaussian(y, cv.factors.Probit(), kernel_matrix=K), cv.EP()).log_evidence

    np.testing.assert_allclose(jax.jit(evidence)(2.0), evidence(2.0), rtol=1e-12)


def test_a_refusal_says_what_would_fit(monkeypatch):
    monkeypatch.setattr(system, "room", lambda: 8 * 1000**2)
    with pytest.raises(
        ValueError, match=r"It of 2,000 takes about 0\.032 GB, and .* has 0\.008 GB; 1,000 would fit\. Less"
    ):
        system.check_room("It", 2000, 1.0, "Less.")


def test_without_a_known_limit_nothing_is_refused(monkeypatch):
    monkeypatch.setattr(system, "room", lambda: None)
    system.check_room("It", 10**9, 1.0, "Less.")


def test_a_kernel_matrix_is_refused_before_it_is_made(monkeypatch):
    monkeypatch.setattr(system, "room", lambda: 10**6)

    def kernel(*args):
        raise AssertionError("the kernel was evaluated")

    monkeypatch.setattr(cv.kernels.RBF, "__call__", kernel)
    X, y = np.random.default_rng(0).normal(size=(500, 2)), np.ones(500)
    for refused in (
        lambda: cv.models.latent_gaussian(y, cv.factors.Probit(), X=X, kernel=cv.kernels.RBF()),
        lambda: cv.GPClassifier(kernel=cv.kernels.RBF(), optimize=False).fit(X, np.sign(X[:, 0])),
    ):
        with pytest.raises(ValueError, match=r"The kernel form of .* would fit\. Beyond, take inducing points"):
            refused()
