"""Random trees with factors that are not Gaussian: EP ends at its fixed point and says so.

`benchmarks/fuzz_graphs.py` asks the same of as many structures as one likes.
"""

import numpy as np
import pytest
from random_trees import random_tree

import cavity as cv

#: structures with relations of every kind; each is compiled once
STRUCTURES = (1, 4, 6)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_tree_with_one_such_factor_is_answered_exactly(structure):
    for numbers in range(6):
        tree = random_tree(structure, numbers, cores=1)
        right, solution = tree.answer(), cv.infer(tree.graph, cv.EP())
        assert right is not None and solution.status == "converged"
        found = tree.told(solution)
        deviation = np.sqrt(right.variance)
        np.testing.assert_allclose((found.mean - right.mean) / deviation, 0.0, atol=1e-6)
        np.testing.assert_allclose(found.variance, right.variance, rtol=1e-6)
        assert found.log_evidence == pytest.approx(right.log_evidence, abs=1e-6)


def test_with_two_of_them_it_ends_where_ep_on_their_joint_gaussian_does():
    for numbers in range(6):
        tree = random_tree(0, numbers, cores=2)
        right, solution = tree.answer(), cv.infer(tree.graph, cv.EP())
        assert right is not None and solution.status == "converged"
        found = tree.told(solution)
        np.testing.assert_allclose((found.mean - right.mean) / np.sqrt(right.variance), 0.0, atol=1e-6)
        assert found.log_evidence == pytest.approx(right.log_evidence, abs=1e-6)
