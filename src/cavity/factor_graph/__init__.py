"""Graphs of mixed variables and any factors."""

from cavity.factor_graph.graph import FactorGraph

__all__ = ["FactorGraph"]
