"""What several tests need: data of the thesis's kind, a reference posterior that shares nothing with the library."""

import dataclasses
import functools
from typing import Any

import jax
import numpy as np


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A family or factor whose methods are compiled as wholes, as inside the package.

    Called as they are, every operation in them is a program of its own, which takes as long to compile as the whole.
    """

    part: Any

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return compiled_method(self.part, name)


@functools.cache
def compiled_method(part: Any, name: str) -> Any:
    """The method of that name, compiled once for all tests; what is not a method is handed out as it is."""
    method = getattr(part, name)
    if not callable(method):
        return method
    return jax.jit(method, static_argnames=[name for name in ("shape",) if name in method.__annotations__])


def normal(x, mean, variance):
    """N(x; mean, variance)."""
    return np.exp(-0.5 * (x - mean) ** 2 / variance) / np.sqrt(2 * np.pi * variance)


def draw_clutter(seed: int, n: int, theta: float = 2.0, w: float = 0.5, dimension: int | None = None) -> np.ndarray:
    """Clutter data: θ plus unit noise, or N(0, 10) with probability w."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal(n if dimension is None else (n, dimension))
    is_clutter = rng.random(n) < w
    return np.where(is_clutter if dimension is None else is_clutter[:, None], np.sqrt(10.0) * noise, theta + noise)


def clutter_posterior(x: np.ndarray, w: float = 0.5, prior_variance: float = 100.0) -> tuple[float, float, float]:
    """(mean, variance, log evidence) by the trapezoidal rule.

    Every feature is at least 1/√(n + 1) wide and the integrand vanishes at both ends, so the rule converges
    exponentially: a step of 0.4 of that width leaves an error of exp(−2π²/0.4²).
    """
    step = 0.4 / np.sqrt(len(x) + 1)
    grid = np.arange(-10 * np.sqrt(prior_variance), 10 * np.sqrt(prior_variance), step)
    log_joint = -0.5 * grid**2 / prior_variance - 0.5 * np.log(2 * np.pi * prior_variance)
    for value in x:
        log_joint += np.log((1 - w) * normal(value, grid, 1.0) + w * normal(value, 0.0, 10.0))
    mass = np.exp(log_joint - log_joint.max())
    mean = np.sum(mass * grid) / np.sum(mass)
    return mean, np.sum(mass * (grid - mean) ** 2) / np.sum(mass), np.log(np.sum(mass) * step) + log_joint.max()
