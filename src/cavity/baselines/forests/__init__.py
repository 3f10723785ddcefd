"""Forests that learn to pass messages: rivals of the operators in `cavity.learned`."""

from cavity.baselines.forests.columns import message_columns, polynomials, regression_parameters
from cavity.baselines.forests.leaf_models import MessageForest
from cavity.baselines.forests.mondrian import MondrianForest
from cavity.baselines.forests.standard import averaged_trees

__all__ = [
    "MessageForest",
    "MondrianForest",
    "averaged_trees",
    "message_columns",
    "polynomials",
    "regression_parameters",
]
