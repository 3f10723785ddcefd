"""Networks of discrete variables: read, answered exactly or approximately, written."""

from cavity.discrete.approx.approximate import Clusters, DiscreteSolution, Tree
from cavity.discrete.approx.filtering import Filtered
from cavity.discrete.approx.max_product import MostProbable, max_product
from cavity.discrete.approx.suggest import Suggestion
from cavity.discrete.exact.junction_tree import Exact, exact_discrete, exact_map
from cavity.discrete.network import DiscreteGraph

__all__ = ["Clusters", "DiscreteGraph", "DiscreteSolution", "Exact", "Filtered", "MostProbable", "Suggestion", "Tree"]
__all__ += ["exact_discrete", "exact_map", "max_product"]
