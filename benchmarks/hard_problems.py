"""Problems on which EP has a hard time: 1,080 of them, seeds fixed, a third each of clutter, classification, outliers.

    clutter      20 points, θ = 2, share of clutter w in {0.3, 0.5, 0.7}
    step         label noise ε in {0.05, 0.2, 0.4}, kernel variance 1, up to 30 % of the labels flipped
    probit       kernel amplitudes (standard deviations of the latent) from 0.1 to 100, up to 30 % flipped
    student-t    df in {1, 2, 4}, noise scale 0.1, a tenth of the observations moved far away

Latent Gaussian problems have 60, 100, 150 or 200 inputs in one to three dimensions, the two classes lie on either side
of a smooth random surface, and the length scale of the RBF kernel is log-uniform from 0.05 to 3 spreads of the inputs.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from cavity_reproductions.workbench import CLUTTER_SD, THETA

import cavity as cv

SEED = 20

#: few shapes, so that little is compiled
SIZES = (60, 100, 150, 200)
CLUTTER_POINTS = 20
NOISE_SCALE = 0.1


class Cell(NamedTuple):
    """Problems of one kind and one setting; `draw` makes one from a generator of random numbers."""

    kind: str
    setting: str
    count: int
    draw: Callable[[np.random.Generator], cv.Problem]

    @property
    def name(self) -> str:
        return f"{self.kind} {self.setting}"


def clutter(w: float) -> Callable[[np.random.Generator], cv.Problem]:
    def draw(rng: np.random.Generator) -> cv.Problem:
        signal, background = rng.normal(THETA, 1.0, CLUTTER_POINTS), rng.normal(0.0, CLUTTER_SD, CLUTTER_POINTS)
        return cv.models.clutter(np.where(rng.random(CLUTTER_POINTS) < w, background, signal), w)

    return draw


def step(label_noise: float) -> Callable[[np.random.Generator], cv.Problem]:
    def draw(rng: np.random.Generator) -> cv.Problem:
        x = inputs(rng)
        likelihood = cv.factors.Step(label_noise)
        return cv.models.latent_gaussian(flipped(rng, x), likelihood, kernel_matrix=rbf(rng, x, amplitude=1.0))

    return draw


def probit(lowest: float, highest: float) -> Callable[[np.random.Generator], cv.Problem]:
    def draw(rng: np.random.Generator) -> cv.Problem:
        x = inputs(rng)
        kernel = rbf(rng, x, log_uniform(rng, lowest, highest))
        return cv.models.latent_gaussian(flipped(rng, x), cv.factors.Probit(), kernel_matrix=kernel)

    return draw


def student_t(df: float) -> Callable[[np.random.Generator], cv.Problem]:
    def draw(rng: np.random.Generator) -> cv.Problem:
        x = inputs(rng)
        y = smooth(rng, x) + NOISE_SCALE * rng.standard_t(df, len(x))
        # Outliers sit 1 to 10 standard deviations of the latent away, on one side: they agree with each other.
        far = rng.random(len(x)) < 0.1
        y[far] += log_uniform(rng, 1.0, 10.0) * (1.0 + 0.3 * rng.standard_normal(np.sum(far)))
        return cv.models.latent_gaussian(y, cv.factors.StudentT(NOISE_SCALE, df), kernel_matrix=rbf(rng, x, 1.0))

    return draw


CELLS = (
    *(Cell("clutter", f"w = {w}", 120, clutter(w)) for w in (0.3, 0.5, 0.7)),
    *(Cell("step", f"ε = {noise}", 60, step(noise)) for noise in (0.05, 0.2, 0.4)),
    *(Cell("probit", f"amplitude {a:g}–{10 * a:g}", 60, probit(a, 10 * a)) for a in (0.1, 1.0, 10.0)),
    *(Cell("student-t", f"df = {df}", 120, student_t(float(df))) for df in (1, 2, 4)),
)


def inputs(rng: np.random.Generator) -> np.ndarray:
    """(n, 1), (n, 2) or (n, 3), every coordinate with spread 1."""
    return rng.standard_normal((rng.choice(SIZES), rng.integers(1, 4)))


def smooth(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """A random function of spread about 1 at the inputs: 100 cosines of random directions."""
    directions, phases = rng.standard_normal((x.shape[1], 100)), rng.uniform(0.0, 2 * np.pi, 100)
    return np.cos(x @ directions + phases) @ rng.standard_normal(100) * np.sqrt(2 / 100)


def flipped(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """Labels of two equally frequent classes, of which a random share up to 30 % is wrong."""
    surface = smooth(rng, x)
    labels = np.where(surface > np.median(surface), 1.0, -1.0)
    return np.where(rng.random(len(x)) < rng.uniform(0.0, 0.3), -labels, labels)


def rbf(rng: np.random.Generator, x: np.ndarray, amplitude: float) -> np.ndarray:
    """The kernel matrix with a random length scale."""
    square = np.sum((x[:, None] - x[None]) ** 2, axis=2)
    return amplitude**2 * np.exp(-0.5 * square / log_uniform(rng, 0.05, 3.0) ** 2)


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def hard_problems(share: float = 1.0) -> Iterator[tuple[str, Cell, cv.Problem]]:
    """(name, cell, problem): all, or the first share of every cell."""
    for number, cell in enumerate(CELLS):
        for index in range(round(share * cell.count)):
            yield f"{cell.name} #{index}", cell, cell.draw(np.random.default_rng([SEED, number, index])).problem()
