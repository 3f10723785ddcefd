"""Graphs of variables and factors: built by hand or read from files, and turned into problems."""

from cavity.graph.approximation import Clusters, Tree
from cavity.graph.discrete import DiscreteGraph
from cavity.graph.exact import Exact, exact_discrete, exact_map
from cavity.graph.factor_graph import FactorGraph
from cavity.graph.filtering import Filtered
from cavity.graph.maximum import MostProbable, max_product
from cavity.graph.proposals import Proposal

__all__ = [
    "Clusters",
    "DiscreteGraph",
    "Exact",
    "FactorGraph",
    "Filtered",
    "MostProbable",
    "Proposal",
    "Tree",
    "exact_discrete",
    "exact_map",
    "max_product",
]
