"""Operators of the batch experiment: learned from labels once, then asked about new messages.

A learner takes labels, the variable its messages go to and a seed, and gives a function from rows of cavities to rows
of natural parameters of that variable's projection. Kernels with random features choose a factor of their widths and
the ridge by leaving one label out, for each target, with half the features; those with incomplete Cholesky by three
random hold-outs. Where the supplement does not say which width the factor multiplies, it is all of them, squared.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity.baselines.forests import MessageForest, MondrianForest
from cavity.baselines.forests.message_forest import averaged_trees, message_columns, regression_parameters
from cavity.learned.embedding_operator import BATCH, Settings, fit_embedding, predict_projections
from cavity.learned.feature_regression import MessageMoments, leave_one_out_errors, mean_variances, median_gap
from cavity.learned.message_coordinates import Kind, Target
from cavity_reproductions.learned.incomplete_cholesky import dual_weights, incomplete_cholesky
from cavity_reproductions.learned.logistic_messages import FAMILY, Labelled
from cavity_reproductions.learned.message_kernels import (
    ExpectedProduct,
    MeanVariance,
    MessageKernel,
    OnEmbeddings,
    ProductOfProducts,
    ProductOnEmbeddings,
    SumOfProducts,
    SumOnEmbeddings,
    alone,
    moments_of,
    rows_of,
)

Predictor = Callable[[np.ndarray], np.ndarray]
Learner = Callable[[Labelled, int, int], Predictor]
#: a kernel whose squared widths are a factor times those of the median heuristic
Scaled = Callable[[MessageMoments, float], MessageKernel]

FACTORS, RIDGES = BATCH.factors, BATCH.noises
#: incomplete Cholesky: ranks in the search and at the end, hold-outs, and labels of each to train and to test with
RANKS, HOLD_OUTS, HELD = (100, 800), 3, (1000, 1500)
#: messages the widths are computed from
MOST = 2000


def times(squares: tuple[float, ...], factor: float) -> tuple[float, ...]:
    """Squared widths, scaled."""
    return tuple(square * factor for square in squares)


def mean_variance(seen: MessageMoments, factor: float) -> MessageKernel:
    squares = np.concatenate([seen.means.var(axis=0), seen.variances.var(axis=0)])
    # Some messages all have one variance; any width serves them.
    return MeanVariance(times(tuple(np.where(squares > 1e-12, squares, 1.0).tolist()), factor))


def expected_product(seen: MessageMoments, factor: float) -> MessageKernel:
    return ExpectedProduct(times(mean_variances(seen), factor))


def sum_of_products(seen: MessageMoments, factor: float) -> MessageKernel:
    return SumOfProducts(times(mean_variances(seen), factor))


def product_of_products(seen: MessageMoments, factor: float) -> MessageKernel:
    return ProductOfProducts(times(mean_variances(seen), factor))


def on_embeddings(seen: MessageMoments, factor: float) -> MessageKernel:
    squares = mean_variances(seen)
    return OnEmbeddings(squares, factor * median_gap(seen, squares))


def single_gaps(seen: MessageMoments, factor: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """σ² and γ² of each message alone."""
    squares = mean_variances(seen)
    # Where half of all pairs are equal the median is 0, and the mean has to do.
    gaps = [
        median_gap(own, (square,)) or mean_gap(own, square) for own, square in zip(alone(seen), squares, strict=True)
    ]
    return squares, times(tuple(gaps), factor)


def mean_gap(seen: MessageMoments, square: float) -> float:
    """Mean squared distance of embeddings."""
    gram = ExpectedProduct((square,)).gram(seen, seen)
    return float(2.0 * np.mean(np.diag(gram)) - 2.0 * np.mean(gram))


def sum_on_embeddings(seen: MessageMoments, factor: float) -> MessageKernel:
    return SumOnEmbeddings(*single_gaps(seen, factor))


def product_on_embeddings(seen: MessageMoments, factor: float) -> MessageKernel:
    return ProductOnEmbeddings(*single_gaps(seen, factor))


class Task(NamedTuple):
    """Labels as numbers. seen: the messages the widths are computed from."""

    target: Target
    messages: MessageMoments
    values: np.ndarray
    seen: MessageMoments


def task_of(labels: Labelled, output: int, kind: Kind, rng: np.random.Generator) -> Task:
    target, messages = Target(FAMILY, output, kind), moments_of(FAMILY, labels.cavities)
    values = np.asarray(jax.vmap(target.of)(jnp.asarray(labels.cavities), jnp.asarray(labels.of(output))))
    return Task(target, messages, values, rows_of(messages, rng.permutation(len(values))[:MOST]))


def projections(target: Target, cavities: np.ndarray, values: np.ndarray) -> np.ndarray:
    """What rows of predicted values stand for."""
    return np.asarray(jax.vmap(target.back)(jnp.asarray(cavities), jnp.asarray(values)))


def by_features(scaled: Scaled, sizes: tuple[int, int]) -> Learner:
    """Ridge regression on random features; sizes: of a map in the search and at the end."""

    def learner(labels: Labelled, output: int, seed: int) -> Predictor:
        task = task_of(labels, output, "parameters", np.random.default_rng(seed))
        first, second = jax.random.split(jax.random.key(seed))
        errors = []
        for factor in FACTORS:
            x = scaled(task.seen, factor).features(first, sizes[0])(task.messages)
            errors.append(leave_one_out_errors(jnp.asarray(x), jnp.asarray(task.values), jnp.asarray(RIDGES)))
        table = np.stack(errors)
        chosen = []
        for column in range(task.values.shape[1]):
            best, ridge = np.unravel_index(np.argmin(table[:, :, column]), table.shape[:2])
            features = scaled(task.seen, FACTORS[best]).features(jax.random.fold_in(second, column), sizes[1])
            x = features(task.messages)
            inside = x.T @ x + RIDGES[ridge] * np.eye(x.shape[1])
            chosen.append((features, np.linalg.solve(inside, x.T @ task.values[:, column])))

        def predictor(cavities: np.ndarray) -> np.ndarray:
            rows = moments_of(FAMILY, cavities)
            values = np.column_stack([features(rows) @ weights for features, weights in chosen])
            return projections(task.target, cavities, values)

        return predictor

    return learner


def by_incomplete_cholesky(scaled: Scaled) -> Learner:
    """Dual ridge regression with an incomplete factor of the Gram matrix."""

    def solved(
        kernel: MessageKernel, of: MessageMoments, values: np.ndarray, rank: int, ridges: list[float]
    ) -> list[np.ndarray]:
        diagonal = np.concatenate(
            [np.diag(kernel.gram(rows_of(of, rows), rows_of(of, rows))) for rows in in_blocks(len(of.means), 100)]
        )
        factor = incomplete_cholesky(diagonal, lambda k: kernel.gram(of, rows_of(of, np.array([k])))[:, 0], rank)
        return [dual_weights(factor, values, ridge) for ridge in ridges]

    def learner(labels: Labelled, output: int, seed: int) -> Predictor:
        rng = np.random.default_rng(seed)
        task = task_of(labels, output, "parameters", rng)
        table = np.zeros((len(FACTORS), len(RIDGES), task.values.shape[1]))
        for _ in range(HOLD_OUTS):
            order = rng.permutation(len(task.values))
            train, test = order[: HELD[0]], order[HELD[0] : sum(HELD)]
            for place, factor in enumerate(FACTORS):
                kernel = scaled(task.seen, factor)
                across = kernel.gram(rows_of(task.messages, test), rows_of(task.messages, train))
                found = solved(kernel, rows_of(task.messages, train), task.values[train], RANKS[0], list(RIDGES))
                table[place] += [np.mean((across @ own - task.values[test]) ** 2, axis=0) for own in found]
        chosen = []
        for column in range(task.values.shape[1]):
            best, ridge = np.unravel_index(np.argmin(table[:, :, column]), table.shape[:2])
            kernel = scaled(task.seen, FACTORS[best])
            chosen.append((kernel, solved(kernel, task.messages, task.values[:, column], RANKS[1], [RIDGES[ridge]])[0]))

        def predictor(cavities: np.ndarray) -> np.ndarray:
            rows, values = moments_of(FAMILY, cavities), []
            for block in in_blocks(len(cavities), 200):
                part = rows_of(rows, block)
                values.append(np.column_stack([kernel.gram(part, task.messages) @ own for kernel, own in chosen]))
            return projections(task.target, cavities, np.concatenate(values))

        return predictor

    return learner


def in_blocks(count: int, size: int) -> list[np.ndarray]:
    """Row numbers, some at a time: Gram matrices of all would be large."""
    return [np.arange(start, min(start + size, count)) for start in range(0, count, size)]


def kernel_operator(kind: Kind = "parameters", settings: Settings = BATCH) -> Learner:
    """The paper's operator."""

    def learner(labels: Labelled, output: int, seed: int) -> Predictor:
        target = Target(FAMILY, output, kind)
        now = fit_embedding(jax.random.key(seed), target, labels.cavities, labels.of(output), settings)
        return lambda cavities: np.asarray(predict_projections(now, target, jnp.asarray(cavities)).projected)

    return learner


def standard_forest(kind: Literal["breiman", "extremely randomised"]) -> Learner:
    """Breiman's forest or extremely randomised trees, on all common parameters of the messages."""

    def learner(labels: Labelled, output: int, seed: int) -> Predictor:
        task = task_of(labels, output, "parameters", np.random.default_rng(seed))
        found = averaged_trees(kind, message_columns(FAMILY, labels.cavities), task.values, seed=seed % 2**31)
        return lambda cavities: projections(task.target, cavities, found(message_columns(FAMILY, cavities)))

    return learner


def polynomial_forest(labels: Labelled, output: int, seed: int) -> Predictor:
    """The forest of Eslami et al."""
    forest = MessageForest(Target(FAMILY, output), labels.cavities, labels.of(output), seed)
    return lambda cavities: forest.predict(cavities)[0]


def mondrian_forest(labels: Labelled, output: int, seed: int) -> Predictor:
    """On the logarithmic parameters: scaled by their range, others would be nearly constant but for a few messages."""
    task = task_of(labels, output, "parameters", np.random.default_rng(seed))
    forest = MondrianForest(regression_parameters(FAMILY, labels.cavities), task.values, seed, least=5)
    return lambda cavities: projections(
        task.target, cavities, forest.predict(regression_parameters(FAMILY, cavities))[0]
    )


def silent(labels: Labelled, output: int, seed: int) -> Predictor:
    """No operator at all: the incoming message is handed back."""
    return lambda cavities: cavities[:, FAMILY.slices[output]]
