"""scikit-learn's own checks, all of them, none expected to fail: what `check_estimator` runs, one test each."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from cavity.estimators import BayesPointMachine, GPClassifier, GPOrdinal, GPRegressor

pytestmark = pytest.mark.filterwarnings("ignore")


@parametrize_with_checks([BayesPointMachine(), GPRegressor(), GPOrdinal()])
def test_checks(estimator, check):
    check(estimator)


@pytest.mark.searching
@parametrize_with_checks([GPClassifier()])
def test_checks_with_long_searches(estimator, check):
    check(estimator)
