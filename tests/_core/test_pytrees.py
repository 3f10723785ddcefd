"""Pytree dataclasses: structures of different classes are different, also to compiled functions."""

import jax
import pytest

import cavity as cv
from cavity._core.pytrees import pytree_dataclass, static
from cavity.factors.base import Factor, factor
from cavity.inference.update_rule import Matched


@pytree_dataclass
class Scaled:
    name: str = static()
    scale: float
    power: int = static(default=2)

    def __post_init__(self):
        if not isinstance(self.scale, float):
            raise TypeError("scale must be a float")


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


def test_static_fields_make_the_structure_wherever_they_stand():
    one, other = Scaled("a", 1.0), Scaled("b", 1.0)
    assert jax.tree.leaves(one) == [1.0]
    assert jax.tree.structure(one) == jax.tree.structure(Scaled("a", 3.0))
    assert jax.tree.structure(one) != jax.tree.structure(other)
    assert jax.tree.structure(one) != jax.tree.structure(Scaled("a", 1.0, 3))


def test_an_instance_is_rebuilt_from_placeholders_without_being_checked_again():
    with pytest.raises(TypeError):
        Scaled("a", None)
    rebuilt = jax.tree.map(lambda leaf: None, Scaled("a", 1.0, 3))
    assert (rebuilt.name, rebuilt.scale, rebuilt.power) == ("a", None, 3)
    assert float(jax.jit(lambda scaled: scaled.scale**scaled.power)(Scaled("a", 3.0))) == 9.0


def test_instances_are_compared_by_their_fields_or_by_identity():
    class Place:
        place: float

    Point = pytree_dataclass(Place, eq=False)

    assert Scaled("a", 1.0) == Scaled("a", 1.0) and Point(1.0) != Point(1.0)
    assert jax.tree.leaves(Point(1.0)) == [1.0]
