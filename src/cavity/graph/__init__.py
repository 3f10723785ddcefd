"""Graphs of variables and factors: built by hand or read from files, and turned into problems."""

from cavity.graph.discrete import DiscreteGraph

__all__ = ["DiscreteGraph"]
