"""scikit-learn's own checks, all of them, none expected to fail."""

import pytest
from sklearn.utils.estimator_checks import check_estimator

from cavity.estimators import BayesPointMachine, GPClassifier, GPOrdinal, GPRegressor


@pytest.mark.parametrize("estimator", [GPClassifier(), BayesPointMachine(), GPRegressor(), GPOrdinal()], ids=repr)
@pytest.mark.filterwarnings("ignore")
def test_check_estimator(estimator):
    results = check_estimator(estimator, on_skip=None)
    assert {row["check_name"] for row in results if row["status"] == "skipped"} <= {"check_array_api_input"}
