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


def problem_of(case, moments):
    """The model with this factor."""
    family = cv.families.Gaussian()
    group = cv.SiteGroup(DENSITY, case.data, family, moments)
    return cv.Problem(family.from_mean(0.0, 1.0), (group,), cv.posteriors.Shared(family))


def truth(case):
    """(mean, variance, log evidence) where nothing is unknown."""
    edges = np.unique(np.clip(np.concatenate([np.linspace(-12, 12, 49), [case.low, case.high]]), -12, 12))
    half = 0.5 * np.diff(edges)
    x = (0.5 * (edges[1:] + edges[:-1]) + half * POINTS[:, None]).ravel()
    w = (half * WEIGHTS[:, None]).ravel() * norm.pdf(x) * np.exp(-0.5 * (x - case.y) ** 2)
    if case.kind == "impossible":
        w = np.where((x > case.low) & (x < case.high), 0.0, w)
    mean = w @ x / w.sum()
    return mean, w @ (x - mean) ** 2 / w.sum(), np.log(w.sum())


def is_right(case, solution, tolerance):
    """Whether a converged solution has the numbers of the model: no member of KINDS[2:] ever has."""
    if not case.is_known:
        return False
    found = (solution.mean, solution.covariance, solution.log_evidence)
    return bool(np.allclose(np.array(found, float), truth(case), rtol=0, atol=tolerance))


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
