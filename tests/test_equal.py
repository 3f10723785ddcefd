"""Equal means equal: a few trials of every kind that `benchmarks/fuzz_equal.py` makes thousands of."""

import equal_cases
import equal_inputs
import jax
import numpy as np
import pytest

import cavity as cv

#: trials of every kind; compiling takes most of their time
COUNTS = {"equal rows, regression": 12, "equal rows, classification": 8, "weights and repeated rows": 2,
          "labels of odd types": 30, "networks that grow": 5, "graphs that grow": 2, "variables of another graph": 40,
          "matrices nearly symmetric": 25, "arrays written to later": 6, "arguments in disguise": 40}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", equal_cases.TRIALS)
def test_what_is_taken_for_equal_is_equal(kind):
    with jax.enable_x64(False):  # as users have it
        for seed in range(COUNTS[kind]):
            assert equal_cases.TRIALS[kind](np.random.default_rng([seed, 1])) in ("right", "refused")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(set(equal_inputs.QUESTIONS) - set(equal_inputs.ESTIMATORS)))
def test_what_is_masked_or_complex_or_text_is_refused_by_name(name):
    with jax.enable_x64(False):
        for disguise in equal_inputs.OTHER:
            assert equal_inputs.outcome(name, disguise) in ("refused", "right")


def test_rows_of_which_some_have_noise_of_their_own_are_merged_one_by_one():
    """Under x·z × White the row 0 has no noise of its own, whatever the others have."""
    kernel = (cv.kernels.RBF(1.0) + cv.kernels.Linear(1.0) * cv.kernels.White(0.5)).fix()
    rows = np.array([[0.0, 0.0]] * 3 + [[1.0, 1.0]] * 2)
    model = cv.GPRegressor(kernel, noise=0.1, normalize_y=False, optimize=False).fit(rows, np.ones(5))
    assert len(model.models_[0].sites) == 3


def test_numbers_in_another_byte_order_are_refused_where_jax_would_read_them_as_its_own():
    group = cv.SiteGroup(cv.factors.Probit(), np.array([1.0, -1.0], ">f8"), cv.families.Gaussian(), cv.ClosedForm())
    problem = cv.Problem(cv.families.Gaussian().from_mean(0.0, 1.0), (group,), cv.posteriors.Shared(group.family))
    with pytest.raises(ValueError, match="data of group 0 must be numbers as NumPy makes them; found >f8"):
        cv.infer(problem, cv.EP())


def test_factors_with_the_same_bytes_in_another_shape_are_not_one_group():
    density = cv.factors.from_log_density(lambda x, y: -0.5 * (x - y) ** 2)
    graph = cv.FactorGraph()
    x = graph.gaussian(0.0, 1.0)
    for scale in (np.array([1.0, 2.0]), np.array([[1.0, 2.0]])):
        graph.add(Scaled(scale), x, data=0.5)
    graph.add(density, x, data=0.5)
    assert len(graph.problem().groups) == 3


@cv.factors.factor
class Scaled(cv.factors.Factor):
    """A Gaussian observation with a parameter of several numbers."""

    scale: np.ndarray

    def log_density(self, x, y):
        return -0.5 * (self.scale.ravel()[0] * x - y) ** 2
