"""A saved operator serves the program it was learned from, and no other."""

import jax
import numpy as np
import pytest

import cavity as cv
from cavity._storage import StorageError
from cavity._storage import load as read
from cavity._storage import save as write
from cavity.learned import SamplerError, just_in_time, load

OPTIONS = {"tol_kl": 0.01, "draws": 2048}


def rising(rng, x):
    """2x + 1 + N(0, 1)."""
    return 2.0 * x + 1.0 + rng.normal(size=len(x))


def louder(rng, x):
    """The same with twice the noise."""
    return 2.0 * x + 1.0 + 2.0 * rng.normal(size=len(x))


def bent(rng, x):
    """The same for positive x only."""
    return np.where(x > 0, 2.0 * x, -x) + 1.0 + rng.normal(size=len(x))


def falling(rng, x):
    """−3x + N(0, 1)."""
    return -3.0 * x + rng.normal(size=len(x))


def broken(rng, x):
    return np.full(len(x), np.nan)


def pair(rng, x, w):
    return x + w + rng.normal(size=len(x))


def twins(rng, x):
    return x, x


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The file of an operator that has served six sites."""
    factor, graph, rng = just_in_time(rising, ["x"], ["z"], **OPTIONS), cv.FactorGraph(), np.random.default_rng(0)
    for _ in range(6):
        mean = rng.normal()
        x, z = graph.gaussian(mean, rng.uniform(0.1, 2.0)), graph.gaussian()
        graph.add(factor, x, z)
        graph.linear(z, variance=0.1, out=2.0 * mean + 1.0 + rng.normal())
    cv.infer(graph, cv.EP())
    path = tmp_path_factory.mktemp("operators") / "rising.npz"
    factor.save(path)
    return path


@pytest.mark.parametrize("seed", range(6))
def test_the_same_program_is_recognised_whatever_its_draws(saved, seed):
    again = load(saved, rising, ["x"], ["z"], key=jax.random.key(seed + 1), **OPTIONS)
    assert again.report().labels > 0


@pytest.mark.parametrize("program", [falling, louder, bent])
def test_another_program_is_refused_when_it_is_loaded(saved, program):
    with pytest.raises(StorageError, match=rf"rising\.npz was learned from another program.*{program.__name__}"):
        load(saved, program, ["x"], ["z"], **OPTIONS)


@pytest.mark.parametrize(("program", "inputs", "outputs"), [(pair, 2, 1), (twins, 1, 2), (rising, ["x", "w"], ["z"])])
def test_other_inputs_and_outputs_are_refused(saved, program, inputs, outputs):
    with pytest.raises(StorageError, match="with 1 inputs, 0 of them numbers, 1 outputs"):
        load(saved, program, inputs, outputs, **OPTIONS)


def test_other_families_and_failing_programs_are_refused(saved):
    with pytest.raises(TypeError, match="z was declared Gamma; found Gaussian"):
        load(saved, rising, ["x"], {"z": cv.families.Gamma()}, **OPTIONS)
    with pytest.raises(SamplerError, match="the sampler broken gave nan"):
        load(saved, broken, ["x"], ["z"], **OPTIONS)


@pytest.mark.parametrize("damage", ["no questions", "shape", "family", "nan"])
def test_damaged_questions_are_refused(saved, tmp_path, damage):
    kind, header, arrays = read(saved)
    if damage == "no questions":
        arrays = {name: own for name, own in arrays.items() if name != "asked_projected"}
    elif damage == "shape":
        arrays["asked_cavities"] = arrays["asked_cavities"][:, :3]
    elif damage == "family":
        header["families"] = [["Cauchy"], ["Gaussian"]]
    else:
        arrays["asked_log_z"] = arrays["asked_log_z"] * np.nan
    write(tmp_path / "damaged.npz", kind, header, arrays)
    with pytest.raises(StorageError, match="damaged"):
        load(tmp_path / "damaged.npz", rising, ["x"], ["z"], **OPTIONS)


def test_a_factor_with_a_density_is_asked_before_its_first_run(tmp_path):
    def model(likelihood):
        return cv.models.latent_gaussian(np.array([1.0, -1.0, 1.0]), likelihood, X=np.array([[1.0], [-2.0], [0.5]]))

    factor = just_in_time(cv.factors.Logistic(), oracle=cv.Quadrature())
    first = cv.infer(model(factor), cv.EP())
    factor.save(tmp_path / "logistic.npz")
    again = load(tmp_path / "logistic.npz", cv.factors.Logistic(), oracle=cv.Quadrature())
    found = cv.infer(model(again), cv.EP())
    np.testing.assert_allclose(found.mean, first.mean, atol=1e-3)
    other = load(tmp_path / "logistic.npz", cv.factors.Probit(), oracle=cv.Quadrature())
    with pytest.raises(StorageError, match=r"logistic\.npz was learned from another program or factor.*Probit"):
        cv.infer(model(other), cv.EP())
