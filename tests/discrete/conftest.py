"""The network of thesis 4.2."""

import numpy as np
import pytest

from cavity import DiscreteGraph


@pytest.fixture
def six_nodes():
    """The network of thesis 4.2: two squares that share an edge, without factors of single variables."""
    rng = np.random.default_rng(4)
    edges = [(0, 1), (0, 2), (1, 3), (2, 3), (2, 4), (3, 5), (4, 5)]
    graph = DiscreteGraph(np.full(6, 2))
    for edge in edges:
        graph.add_factor(edge, rng.normal(size=(2, 2)), log=True)
    return graph
