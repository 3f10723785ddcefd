"""Forests that learn to pass messages: methods to compare the operators of `cavity.learned` with."""

from cavity.baselines.forests.message_forest import (
    MessageForest,
    averaged_trees,
    message_columns,
    polynomials,
    regression_parameters,
)
from cavity.baselines.forests.mondrian import MondrianForest

__all__ = ["MessageForest", "MondrianForest", "averaged_trees"]
__all__ += ["message_columns", "polynomials", "regression_parameters"]
