"""Densities and programs that misbehave in a random region of x, with what is right where they do not.

One prior x ~ N(0, 1) and one factor N(y; x, 1) up to its constant, but in [low, high], where it is something else. The
integrals are worked out by SciPy on a fine grid of panels.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from scipy.stats import norm

import cavity as cv

#: what happens in the region: nothing, an impossible factor (−∞), which is a truncation, NaN, and +∞
KINDS = ("nothing", "impossible", "nan", "infinite")
#: panels of the reference integrals, split at the ends of the region
POINTS, WEIGHTS = np.polynomial.legendre.leggauss(40)


class Misbehaviour(NamedTuple):
    """What a factor does in [low, high]; y: its datum."""

    kind: str
    low: float
    high: float
    y: float

    @property
    def data(self):
        """Numbers for `log_density` and `log_z`, one site."""
        kind = float(KINDS.index(self.kind))
        return tuple(np.array([own]) for own in (self.y, self.low, self.high, kind))

    @property
    def is_known(self):
        """Whether the region says nothing unknown."""
        return self.kind in KINDS[:2]


@st.composite
def misbehaviours(draw):
    """A region of some width not too far from the posterior."""
    low, width = draw(st.floats(-4.0, 4.0)), draw(st.floats(0.2, 3.0))
    return Misbehaviour(draw(st.sampled_from(KINDS)), low, low + width, draw(st.floats(-3.0, 3.0)))


def random_misbehaviour(rng):
    """The same for long runs."""
    low = rng.uniform(-4.0, 4.0)
    return Misbehaviour(rng.choice(KINDS), low, low + rng.uniform(0.2, 3.0), rng.uniform(-3.0, 3.0))


def log_density(x, data):
    """log t(x), unnormalised; traced, so that all kinds and regions are one compiled program."""
    y, low, high, kind = data
    values = jnp.array([-0.5 * (x - y) ** 2, -jnp.inf, jnp.nan, jnp.inf])
    return jnp.where((x >= low) & (x <= high), values[jnp.asarray(kind, int)], values[0])


DENSITY = cv.factors.from_log_density(log_density)
#: the same of the first of two variables
OF_FIRST = cv.factors.from_log_density(lambda x, data: log_density(x[0], data))


def problem_of(case, moments, variables=1):
    """The model with this factor, of one variable or of the first of two that are independent."""
    family = cv.families.Gaussian() if variables == 1 else cv.families.FullGaussian(2)
    group = cv.SiteGroup(DENSITY if variables == 1 else OF_FIRST, case.data, family, moments)
    prior = family.from_mean(0.0, 1.0) if variables == 1 else family.from_mean(np.zeros(2), np.eye(2))
    return cv.Problem(prior, (group,), cv.posteriors.Shared(family))


def truth(case):
    """(mean, variance, log evidence) where nothing is unknown, and √draws × their errors from draws of the prior."""
    edges = np.unique(np.clip(np.concatenate([np.linspace(-12, 12, 49), [case.low, case.high]]), -12, 12))
    half = 0.5 * np.diff(edges)
    x = (0.5 * (edges[1:] + edges[:-1]) + half * POINTS[:, None]).ravel()
    t = np.exp(-0.5 * (x - case.y) ** 2)
    if case.kind == "impossible":
        t = np.where((x > case.low) & (x < case.high), 0.0, t)
    prior = (half * WEIGHTS[:, None]).ravel() * norm.pdf(x)
    z = prior @ t
    mean = prior @ (t * x) / z
    variance = prior @ (t * (x - mean) ** 2) / z
    gaps = np.array([x - mean, (x - mean) ** 2 - variance])
    errors = np.sqrt([*(prior * t**2 @ gaps.T**2), prior @ (t - z) ** 2]) / z
    return np.array([mean, variance, np.log(z)]), errors


def is_right(case, solution, tolerance, draws=np.inf):
    """Whether a converged solution has the numbers of the model: no member of KINDS[2:] ever has.

    draws: from the prior that they come from; they may be off by seven standard errors, since thousands are looked at.
    """
    if not case.is_known:
        return False
    mean, variance = np.ravel(solution.mean)[0], np.ravel(solution.covariance)[0]
    right, errors = truth(case)
    off = np.abs(np.array([mean, variance, solution.log_evidence], float) - right)
    return bool((off <= tolerance + 7.0 * errors / np.sqrt(draws)).all())


class ProgramCase(NamedTuple):
    """A program that draws x + N(0, 1/4), and what it does besides."""

    name: str
    low: float
    high: float

    def __call__(self, rng, x):
        inside = (x >= self.low) & (x <= self.high)
        z = x + 0.5 * rng.normal(size=len(x))
        return PROGRAMS[self.name](x, z, inside)


def raising(x, z, inside):
    """A program that does not know a region of its input."""
    if inside.any():
        raise ValueError("outside of my table")
    return z


def in_place(x, z, inside):
    """Writes its result over its argument."""
    x[:] = z
    return x


PROGRAMS = {
    "right": lambda x, z, inside: z,
    "in place": in_place,
    "a list": lambda x, z, inside: [z],
    "whole numbers in float32": lambda x, z, inside: z.astype(np.float32),
    "no mask set": lambda x, z, inside: np.ma.array(z, mask=np.zeros(len(z), bool)),
    "raises": raising,
    "nan": lambda x, z, inside: np.where(inside, np.nan, z),
    "infinite": lambda x, z, inside: np.where(inside, np.inf, z),
    "masked": lambda x, z, inside: np.ma.array(z, mask=inside),
    "complex": lambda x, z, inside: z + 0j,
    "text": lambda x, z, inside: z.astype(str),
    "objects": lambda x, z, inside: z.astype(object),
    "None": lambda x, z, inside: None,
    "a number": lambda x, z, inside: float(z[0]),
    "too short": lambda x, z, inside: z[:-1],
    "a column": lambda x, z, inside: z[:, None],
    "two outputs": lambda x, z, inside: (z, z),
    "ragged": lambda x, z, inside: ([[1.0, 2.0], [3.0]],),
    "a dictionary": lambda x, z, inside: {"z": z},
    "a plain list": lambda x, z, inside: z.tolist(),
    "dates": lambda x, z, inside: z.astype("datetime64[s]"),
}
#: programs that are right, and those that are wrong only where x is in the region
RIGHT, REGIONAL = list(PROGRAMS)[:5], ("raises", "nan", "infinite", "masked")
