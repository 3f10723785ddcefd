"""Rows with weights, repeats and permutations: one set of sites for one target."""

import numpy as np
import pytest

from cavity.models._latent_gaussian.rows import split_weights, unique_rows

RNG = np.random.default_rng(4)
POINTS = RNG.integers(0, 2, (40, 3)) * 1.0
LABELS = np.sign(RNG.standard_normal(40))


def test_two_rows_by_hand():
    merged = unique_rows([[1.0, 2.0], [0.0, 5.0], [1.0, 2.0], [1.0, 2.0]], [1, -1, 1, -1], [0.5, 2.0, 1.75, 0.0])
    np.testing.assert_array_equal(merged.X, [[0.0, 5.0], [1.0, 2.0]])
    np.testing.assert_array_equal(merged.y, [-1, 1])
    np.testing.assert_array_equal(merged.sample_weight, [2.0, 2.25])
    np.testing.assert_array_equal(merged.site, [1, 0, 1, -1])
    multiplicity, exponents = split_weights(merged.sample_weight)
    np.testing.assert_array_equal(multiplicity, [2, 3])
    np.testing.assert_array_equal(exponents, [1.0, 0.75])


def test_every_row_finds_its_own_inputs_and_label():
    merged = unique_rows(POINTS, LABELS)
    np.testing.assert_array_equal(merged.X[merged.site], POINTS)
    np.testing.assert_array_equal(merged.y[merged.site], LABELS)
    assert len({(*row, label) for row, label in zip(POINTS.tolist(), LABELS, strict=True)}) == len(merged.y)
    assert split_weights(merged.sample_weight)[1] is None


def test_sites_are_sorted_as_python_sorts_tuples():
    wide = np.round(RNG.standard_normal((200, 30)), 1)
    wide[100:] = wide[:100]
    wide[:, :3] = 0.0
    labels = np.sign(RNG.standard_normal(200))
    merged = unique_rows(wide, labels)
    expected = sorted({(*row, label) for row, label in zip(wide.tolist(), labels, strict=True)})
    assert [(*row, label) for row, label in zip(merged.X.tolist(), merged.y, strict=True)] == expected


def test_weights_repeats_and_permutations_are_one():
    weights = RNG.integers(0, 4, 40)
    repeated = np.repeat(np.arange(40), weights)
    fractions = np.repeat(POINTS, 3, axis=0), np.repeat(LABELS, 3), np.repeat(weights / 3.0, 3)
    shuffled = RNG.permutation(120)
    ways = [
        unique_rows(POINTS, LABELS, weights),
        unique_rows(POINTS[repeated], LABELS[repeated]),
        unique_rows(*(part[shuffled] for part in fractions)),
    ]
    for way in ways[1:]:
        for name in ("X", "y", "sample_weight"):
            np.testing.assert_array_equal(getattr(way, name), getattr(ways[0], name))
        assert split_weights(way.sample_weight)[1] is None


def test_sums_of_fractions_do_not_depend_on_their_order():
    weights = RNG.random(40)
    order = RNG.permutation(40)
    one, other = unique_rows(POINTS, LABELS, weights), unique_rows(POINTS[order], LABELS[order], weights[order])
    np.testing.assert_array_equal(one.sample_weight, other.sample_weight)
    np.testing.assert_array_equal(one.site[order], other.site)
    multiplicity, exponents = split_weights(one.sample_weight)
    assert (multiplicity == np.ceil(one.sample_weight)).all() and exponents is not None and (exponents <= 1).all()


def test_rounding_makes_no_extra_copy():
    weights = np.full(20, 1 / 20)
    assert np.cumsum(weights)[-1] > 1
    merged = unique_rows(np.zeros((20, 1)), np.ones(20), weights)
    assert merged.sample_weight == [1.0]


def test_minus_zero_is_zero():
    assert len(unique_rows([[0.0], [-0.0]], [1.0, 1.0]).y) == 1


def test_small_weights_keep_their_size():
    merged = unique_rows([[0.0], [1.0]], [1.0, 1.0], [1e-4, 1e4 + 0.5])
    np.testing.assert_array_equal(split_weights(merged.sample_weight)[0], [1, 10001])
    np.testing.assert_allclose(merged.sample_weight, [1e-4, 1e4 + 0.5], rtol=1e-15)


def test_a_weight_of_zero_is_no_factor():
    multiplicity, exponents = split_weights([0.0, 0.5, 2.0])
    np.testing.assert_array_equal(multiplicity, [0, 1, 2])
    np.testing.assert_array_equal(exponents, [1.0, 0.5, 1.0])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (([[1.0]], [1.0], [-1.0]), "sample_weight must not be negative; found -1.0"),
        (([[1.0]], [1.0], [0.0]), "sample_weight is zero in every row"),
        (([[1.0]], [1.0, 2.0]), "y must have one entry per row of X, 1; found 2"),
        (([[1.0]], [1.0], [1.0, 1.0]), "sample_weight must have one entry per row of X, 1; found 2"),
        (([[np.nan]], [1.0]), "X must be finite"),
    ],
)
def test_bad_input_is_named(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        unique_rows(*arguments)
