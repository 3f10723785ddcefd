"""Factors that bring their operator: `just_in_time` and `every_time`, to be connected like any other factor."""

import os
from typing import Any

import jax

from cavity._core.pytrees import static
from cavity.factors.base import Factor, factor
from cavity.factors.wrappers import WithMoments
from cavity.learned.active_learning import JustInTime, OperatorReport
from cavity.learned.oracle_moments import EveryTime
from cavity.learned.oracles import Oracle
from cavity.learned.sampling import DRAWS
from cavity.learned.simulation import Sampler, Simulator, Slots
from cavity.moments.base import Moments


@factor
class LearnedFactor(WithMoments):
    """A factor with the operator that learns its messages. Made by `just_in_time`."""

    moments: JustInTime = static()

    def report(self) -> OperatorReport:
        """What the operator has asked and done so far, in all runs."""
        return self.moments.report()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what was learned to a file, for `load`; the factor itself is not in it. See `JustInTime.save`."""
        self.moments.save(path)


def just_in_time(
    factor_or_sampler: Factor | Sampler,
    inputs: Slots | None = None,
    outputs: Slots | None = None,
    *,
    oracle: Moments | Oracle | None = None,
    draws: int = DRAWS,
    tol_kl: float = 1e-5,
    key: jax.Array | None = None,
) -> LearnedFactor:
    """A factor that learns to send messages while it is used, and asks an oracle where it is unsure.

    It can stand wherever a factor can; short for `moments=JustInTime(...)` beside the factor.

    Args:
        factor_or_sampler: a factor; or a program `sampler(rng, *inputs) → outputs` that takes a NumPy generator and an
            array of draws for each input, and returns one for each output (a tuple where there are several).
        inputs: of a sampler, in its order: names, or families by name, or how many.
        outputs: the same of what it returns. As a factor it connects inputs, then outputs.
        oracle: as `JustInTime` takes it, like what follows.
        draws: of one answer that is sampled.
        tol_kl: expected KL divergence beyond which it is unsure.
        key: of the oracle's draws and of audits.

    Returns:
        A factor with `report()` and `save(path)`.

    Raises:
        TypeError, ValueError: an argument is of the wrong kind or out of range, in one sentence.

    Examples:
        >>> import cavity
        >>> walk = cavity.learned.just_in_time(lambda rng, x: x + rng.normal(size=x.shape), inputs=1, outputs=1)
        >>> graph = cavity.FactorGraph()
        >>> graph.add(walk, graph.gaussian(0.0, 1.0), graph.gaussian(1.0, 1.0))
    """
    inner = as_factor(factor_or_sampler, inputs, outputs)
    moments = JustInTime(oracle, draws=draws, tol_kl=tol_kl, key=key)
    moments.oracle.check(inner)
    return LearnedFactor(inner, moments)


def every_time(
    factor_or_sampler: Factor | Sampler,
    inputs: Slots | None = None,
    outputs: Slots | None = None,
    *,
    oracle: Moments | Oracle | None = None,
    draws: int = DRAWS,
    key: jax.Array | None = None,
) -> WithMoments:
    """A factor each of whose messages is sampled or integrated anew: what `just_in_time` is to be compared with.

    Args:
        factor_or_sampler: as `just_in_time` takes it, like all that follows.
        inputs: of a sampler.
        outputs: of a sampler.
        oracle: who is asked.
        draws: of one answer that is sampled.
        key: of the draws.

    Returns:
        A factor.

    Raises:
        TypeError, ValueError: an argument is of the wrong kind or out of range, in one sentence.

    Examples:
        >>> import cavity
        >>> walk = cavity.learned.every_time(lambda rng, x: x + rng.normal(size=x.shape), inputs=1, outputs=1)
        >>> graph = cavity.FactorGraph()
        >>> graph.add(walk, graph.gaussian(0.0, 1.0), graph.gaussian(1.0, 1.0))
    """
    inner = as_factor(factor_or_sampler, inputs, outputs)
    moments = EveryTime(oracle, draws=draws, key=key)
    moments.oracle.check(inner)
    return WithMoments(inner, moments)


def load(
    path: str | os.PathLike[str],
    factor_or_sampler: Factor | Sampler,
    inputs: Slots | None = None,
    outputs: Slots | None = None,
    **options: Any,
) -> LearnedFactor:
    """A factor that begins with what another has learned and saved.

    Args:
        path: of the file that `save` wrote.
        factor_or_sampler: the factor or sampler it was about. A file holds numbers only, and no program.
        inputs: of a sampler, as `just_in_time` takes them.
        outputs: of a sampler.
        options: as `just_in_time` takes them; `tol_kl` is the saved one unless given.

    Returns:
        A factor with `report()` and `save(path)`.

    Raises:
        StorageError: the file is of another kind, or damaged.
    """
    inner = as_factor(factor_or_sampler, inputs, outputs)
    return LearnedFactor(inner, JustInTime.load(path, **options))


def as_factor(factor_or_sampler: Factor | Sampler, inputs: Slots | None, outputs: Slots | None) -> Factor:
    """The factor that is meant: itself, or the simulator of a program."""
    if isinstance(factor_or_sampler, Factor):
        if inputs is not None or outputs is not None:
            raise TypeError("inputs and outputs are those of a sampler; a factor knows its own.")
        return factor_or_sampler
    if not callable(factor_or_sampler):
        raise TypeError(f"a factor or a sampler is needed; found {type(factor_or_sampler).__name__}.")
    if inputs is None or outputs is None:
        raise TypeError("a sampler needs its inputs and outputs: their names, in its order.")
    return Simulator(factor_or_sampler, inputs, outputs)
