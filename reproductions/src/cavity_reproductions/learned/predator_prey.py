"""Predators and their prey, by a program that draws births, meals and deaths: what is known of it is only that it runs.

Many ponds are looked at a few times, and both animals counted with an error. How fast the prey grows, the same in all
ponds, is not known, nor how many there were: three inputs and two outputs for every step of every pond.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

import cavity
from cavity.factors.base import Factor

#: time of a step, in so many parts; rates of meals and of deaths, and predators born of a meal
TIME, PARTS, MEALS, DEATHS, BIRTHS = 0.5, 10, 0.005, 0.5, 0.5
#: prior of the logarithms of growth, of prey and of predators: means and standard deviations
GROWTH, PREY, PREDATORS = (np.log(0.5), 0.3), (np.log(100.0), 0.4), (np.log(60.0), 0.4)
#: of the counts, in logarithms
ERROR = 0.15
#: names of what the program takes and gives
INPUTS, OUTPUTS = ("prey", "predators", "growth"), ("prey after", "predators after")


def step(rng: np.random.Generator, prey: np.ndarray, predators: np.ndarray, growth: np.ndarray) -> tuple:
    """Half a unit of time: logarithms of prey and predators after it. Neither dies out."""
    a, b, rate = np.exp(prey), np.exp(predators), np.exp(growth)
    part = TIME / PARTS
    for _ in range(PARTS):
        born, eaten = rng.poisson(rate * a * part), rng.poisson(np.minimum(MEALS * a * b, 1e9) * part)
        died = rng.poisson(DEATHS * b * part)
        a, b = np.maximum(a + born - eaten, 1.0), np.maximum(b + BIRTHS * eaten - died, 1.0)
    return np.log(a), np.log(b)


class Ponds(NamedTuple):
    """Counts seen, in logarithms, (ponds, times, 2); and the logarithm of the growth rate they were drawn with."""

    seen: np.ndarray
    growth: float


def ponds(seed: int, count: int, times: int) -> Ponds:
    """Drawn from the model."""
    rng = np.random.default_rng(seed)
    growth = rng.normal(*GROWTH)
    states = [np.stack([rng.normal(mean, sd, count) for mean, sd in (PREY, PREDATORS)], axis=1)]
    for _ in range(1, times):
        prey, predators = states[-1].T
        states.append(np.stack(step(rng, prey, predators, np.full(count, growth)), axis=1))
    exact = np.stack(states, axis=1)
    return Ponds(exact + ERROR * rng.normal(size=exact.shape), growth)


def marginals(seen: np.ndarray, factor: Factor, method: cavity.Method) -> tuple[cavity.Solution, np.ndarray]:
    """EP on the graph of all ponds: the solution, and means and variances of growth, then of states as in `seen`."""
    graph, (count, times, _) = cavity.FactorGraph(), seen.shape
    growth = graph.gaussian(GROWTH[0], GROWTH[1] ** 2, name="growth")
    # Only the first counts have a prior.
    states = [[graph.gaussian(mean, sd**2, size=count) for mean, sd in (PREY, PREDATORS)]]
    for _ in range(1, times):
        states.append([graph.gaussian(size=count) for _ in range(2)])
        graph.add(factor, *states[-2], growth, *states[-1])
    for t, pair in enumerate(states):
        for animal, own in enumerate(pair):
            graph.linear(own, variance=ERROR**2, out=seen[:, t, animal])
    found = cavity.infer(graph, method)
    rows = []
    for name in ("mean", "variance"):
        grid = [[getattr(found.marginals[own], name) for own in pair] for pair in states]
        rows.append([getattr(found.marginals[growth], name), *np.moveaxis(np.array(grid), 2, 0).ravel()])
    return found, np.array(rows)


class Reference(NamedTuple):
    """By Monte Carlo: means and variances as `marginals` orders them, their standard errors, and the log evidence."""

    moments: np.ndarray
    errors: np.ndarray
    log_evidence: float


def reference(seen: np.ndarray, particles: int, points: int, repeats: int, seed: int) -> Reference:
    """Particles for every point of a grid of growth rates, repeated to see the error."""
    runs = [on_grid(seen, particles, points, np.random.default_rng([seed, k])) for k in range(repeats)]
    moments = np.stack([run[0] for run in runs])
    return Reference(
        moments.mean(axis=0),
        moments.std(axis=0, ddof=1) / np.sqrt(repeats),
        float(logsumexp([run[1] for run in runs]) - np.log(repeats)),
    )


def on_grid(seen: np.ndarray, particles: int, points: int, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """Moments of growth and of all states, and the log evidence: a coarse grid, then a fine one where the mass is."""
    low, high = GROWTH[0] - 4 * GROWTH[1], GROWTH[0] + 4 * GROWTH[1]
    for _ in range(3):
        grid = np.linspace(low, high, points)
        logs = np.array([propagated(seen, max(particles // 20, 500), value, rng)[0] for value in grid])
        share = np.exp(logs - logs.max()) * prior_of_growth(grid)
        mean = share @ grid / share.sum()
        sd = np.sqrt(share @ (grid - mean) ** 2 / share.sum()) + 0.5 * (grid[1] - grid[0])
        low, high = mean - 4 * sd, mean + 4 * sd
    grid = np.linspace(low, high, points)
    found = [propagated(seen, particles, value, rng) for value in grid]
    weights = np.array([log_z for log_z, _, _ in found]) + np.log(prior_of_growth(grid) * (grid[1] - grid[0]))
    total = float(np.asarray(logsumexp(weights)))
    share = np.exp(weights - total)
    first = share @ np.array([[value, *mean] for value, (_, mean, _) in zip(grid, found, strict=True)])
    second = share @ np.array([[value**2, *square] for value, (_, _, square) in zip(grid, found, strict=True)])
    return np.array([first, second - first**2]), total


def prior_of_growth(value: np.ndarray) -> np.ndarray:
    """Its density."""
    return np.exp(-0.5 * ((value - GROWTH[0]) / GROWTH[1]) ** 2) / (np.sqrt(2.0 * np.pi) * GROWTH[1])


def propagated(
    seen: np.ndarray, particles: int, growth: float, rng: np.random.Generator
) -> tuple[float, np.ndarray, np.ndarray]:
    """Log evidence of all ponds for one growth rate; posterior means and second moments of their states."""
    total, means, squares = 0.0, [], []
    for pond in seen:
        first = [rng.normal(mean, sd, particles) for mean, sd in (PREY, PREDATORS)]
        paths = np.stack(first, axis=1)[:, None]
        for t, counts in enumerate(pond):
            if t:
                after = step(rng, paths[:, -1, 0], paths[:, -1, 1], np.full(particles, growth))
                paths = np.concatenate([paths, np.stack(after, axis=1)[:, None]], axis=1)
            logs = -0.5 * np.sum((paths[:, -1] - counts) ** 2, axis=1) / ERROR**2 - np.log(2 * np.pi * ERROR**2)
            total += logsumexp(logs) - np.log(particles)
            shares = np.cumsum(np.exp(logs - logsumexp(logs)))
            # Systematic resampling: whole paths are kept, a few steps long.
            picks = np.searchsorted(shares, (rng.random() + np.arange(particles)) / particles)
            paths = paths[np.minimum(picks, particles - 1)]
        means.append(paths.mean(axis=0).ravel())
        squares.append((paths**2).mean(axis=0).ravel())
    return float(total), np.concatenate(means), np.concatenate(squares)
