"""What is saved is what was fitted: round trips give the same bits, in processes that never computed too."""

import copy
import functools
import io
import pickle

import cloudpickle
import jax
import joblib
import numpy as np
import pytest
from fitted_objects import KINDS, asked, jax_arrays

import cavity as cv
from cavity import distributed


@functools.cache
def made(name):
    """The object before and after it was asked, pickled, and what it answers."""
    with jax.enable_x64(False):
        instance = KINDS[name].make()
    fresh = pickle.dumps(instance)
    answers = asked(name, instance)
    return instance, fresh, answers


def by_joblib(instance):
    file = io.BytesIO()
    joblib.dump(instance, file)
    file.seek(0)
    return joblib.load(file)


def test_every_estimator_and_every_kind_of_model_is_among_them():
    fitted = [made(name)[0] for name in KINDS]
    classes = {own.__name__ for instance in fitted for own in type(instance).__mro__}
    estimators = {name for name in cv.PLACES["cavity.estimators"].split() if name[0].isupper()}
    results = {"Solution", "GraphSolution", "LatentGaussianSolution", "Check", "LinearModel", "SparseGP", "Fit"}
    assert estimators | results | {"FactorGraph", "DiscreteGraph", "LearnedFactor", "Filtered"} <= classes


ROUND_TRIPS = {
    "pickle": lambda instance: pickle.loads(pickle.dumps(instance)),
    "joblib": by_joblib,
    "cloudpickle": lambda instance: cloudpickle.loads(cloudpickle.dumps(instance)),
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("name", KINDS)
def test_a_round_trip_gives_the_same_bits(name):
    instance, fresh, answers = made(name)
    with jax.enable_x64(False):
        assert asked(name, pickle.loads(fresh)) == answers
    for way, there_and_back in ROUND_TRIPS.items():
        # An operator learns from what it is asked: what is asked twice is another copy.
        one, other = there_and_back(instance), there_and_back(there_and_back(instance))
        assert asked(name, one) == asked(name, other), way
        if "learned" not in name:
            assert asked(name, one) == answers, way


@pytest.mark.parametrize("name", KINDS)
def test_what_was_fitted_holds_no_array_of_jax(name):
    instance, fresh, _ = made(name)
    assert jax_arrays(instance) == []
    assert jax_arrays(pickle.loads(fresh)) == []
    assert b"jax._src" not in fresh and b"jaxlib" not in fresh


def test_what_holds_arrays_of_jax_is_pickled_without_them():
    """As in a program that has switched on double precision for good."""
    with jax.enable_x64(True):
        third = jax.numpy.asarray([1.0, 2.0]) / 3.0
        problem = cv.models.clutter(third)
        kernel, factor = cv.kernels.RBF(third), cv.factors.Gaussian(third[0])
        model = cv.models.latent_gaussian(third, cv.factors.Gaussian(third), kernel_matrix=jax.numpy.eye(2) + third[0])
        assert jax_arrays((problem, kernel, factor))
        data = pickle.dumps((problem, kernel, factor, model))
        copied = copy.deepcopy((problem, kernel, factor, model))
    with jax.enable_x64(False):
        for found in (pickle.loads(data), copied):
            assert jax_arrays(found) == []
            assert np.asarray(found[1].length_scale).tolist() == np.asarray(third).tolist()


def asked_elsewhere(name, data):
    """In another process: the answers of what was pickled."""
    return asked(name, pickle.loads(data))


@pytest.mark.filterwarnings("ignore:A worker stopped:UserWarning")  # what it has compiled is taken for a leak
def test_processes_of_loky_give_the_same_bits():
    jobs = [joblib.delayed(asked_elsewhere)(name, made(name)[1]) for name in KINDS]
    found = joblib.Parallel(n_jobs=2, backend="loky")(jobs)
    assert [name for name, own in zip(KINDS, found, strict=True) if own != made(name)[2]] == []


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_workers_of_dask_give_the_same_bits():
    names = ["GPRegressor", "BayesPointMachine", "GPOrdinal", "graph solution", "belief propagation", "learned factor"]
    with distributed.local_client(1) as client:
        found = client.gather([client.submit(asked_elsewhere, name, made(name)[1]) for name in names])
    assert [name for name, own in zip(names, found, strict=True) if own != made(name)[2]] == []


def test_an_operator_that_was_pickled_knows_its_factor():
    _, fresh, _ = made("learned factor")
    again = pickle.loads(fresh)
    model = cv.models.latent_gaussian(np.ones(3), cv.factors.Probit(), kernel_matrix=np.eye(3), moments=again.moments)
    with pytest.raises(ValueError, match="another factor"):
        cv.infer(model, cv.EP())
