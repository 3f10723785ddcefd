"""Structures of different classes are different, also to compiled functions."""

import jax
import pytest

import cavity as cv
from cavity.factors.base import Factor, factor
from cavity.inference.projection import Matched


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (cv.factors.Gaussian(0.5), cv.factors.Logistic(0.5)),
        (cv.factors.Probit(0.1), cv.factors.Step(0.1)),
        (Matched(), cv.Cowell()),
    ],
)
def test_classes_are_told_apart(one, other):
    assert jax.tree.structure(one) != jax.tree.structure(other)
    assert jax.tree.structure(one) == jax.tree.structure(jax.tree.map(lambda leaf: 2 * leaf, one))


def test_every_class_has_its_own_program():
    """Hashes alone do not tell sixty structures apart: some of them share a place in the table of programs."""

    def numbered(own):
        @factor
        class Numbered(Factor):
            value: float

            def answer(self):
                return own + 0 * self.value

        return Numbered(1.0)

    answer = jax.jit(lambda term: term.answer())
    assert [float(answer(numbered(own))) for own in range(60)] == list(range(60))


def test_leaves_have_names_and_fields_that_are_no_leaves_stay():
    ((path, leaf),) = jax.tree_util.tree_leaves_with_path(cv.factors.Gaussian(0.5))
    assert jax.tree_util.keystr(path) == ".variance" and leaf == 0.5
    restricted = jax.tree.map(lambda leaf: leaf, cv.RestrictedEP(printed=True).projection)
    assert restricted == cv.RestrictedEP(printed=True).projection
