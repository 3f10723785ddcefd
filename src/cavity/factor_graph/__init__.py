"""Graphs of mixed variables and any factors."""

from cavity.factor_graph.graph import FactorGraph
from cavity.factor_graph.variables import Marginal, Variable

__all__ = ["FactorGraph", "Marginal", "Variable"]
