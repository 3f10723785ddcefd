"""Forests that learn to pass messages: methods to compare the operators of `cavity.learned` with."""

from cavity.baselines.forests.message_forest import MessageForest
from cavity.baselines.forests.mondrian import MondrianForest

__all__ = ["MessageForest", "MondrianForest"]
