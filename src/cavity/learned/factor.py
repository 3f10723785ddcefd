"""Messages that an oracle computes every time: nothing is learned, and nothing is saved.

----

Factors that bring their operator: `just_in_time` and `every_time`, to be connected like any other factor.
"""

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from cavity._core.precision import float64
from cavity._core.pytrees import static
from cavity.factors.base import Factor, factor, is_one
from cavity.factors.wrappers import Conditioned, ObservedArguments, WithMoments
from cavity.families.base import Family, Tilted
from cavity.learned.active_learning import JustInTime, OperatorReport
from cavity.learned.message_coordinates import tilted_statistics_of
from cavity.learned.oracles import Oracle, StoredKey, join_rows
from cavity.learned.sampling import DRAWS, as_oracle
from cavity.learned.simulation import Sampler, Simulator, Slots, check_variables
from cavity.moments.base import UNSURE, Info, Moments


class EveryTime(Moments):
    """Every message sampled or integrated anew, from inside the compiled sweep: what `JustInTime` is compared with.

    The draws are the same each time (common random numbers), so that there is a fixed point to converge to. It is equal
    to itself only: compiled programs hold a callback to its oracle and its key.

    Args:
        oracle: what computes the messages, as `JustInTime` takes it.
        draws: of one answer that is sampled.
        key: of the draws.

    Raises:
        TypeError, ValueError: an argument is of the wrong kind or out of range, in one sentence.

    Examples:
        >>> import cavity
        >>> walk = cavity.learned.Simulator(lambda rng, x: x + rng.normal(size=x.shape), inputs=1, outputs=1)
        >>> graph = cavity.FactorGraph()
        >>> before, after = graph.gaussian(0.0, 1.0), graph.gaussian(1.0, 1.0)
        >>> graph.add(walk, before, after, moments=cavity.learned.EveryTime(draws=1024))
    """

    def __init__(
        self, oracle: Moments | Oracle | None = None, *, draws: int = DRAWS, key: jax.Array | None = None
    ) -> None:
        self.oracle = as_oracle(oracle, draws)
        self.key = StoredKey.of(key)
        self._failure: BaseException | None = None

    def validate(self, factor: Factor, family: Family) -> None:
        self._failure = None
        self.oracle.validate(factor)
        check_variables(factor, family)

    def tilt(
        self, state: Any, factor: Factor, family: Family, cavity: jax.Array, data: Any, power: float, key: jax.Array
    ) -> tuple[Tilted, Info]:
        if not is_one(power):
            raise TypeError("sampled messages are those of whole factors, power 1; use EP.")
        flat, rebuild = ravel_pytree(jax.tree.map(lambda leaf: jnp.asarray(leaf, float), (cavity, data, factor)))
        noisy = self.oracle.is_noisy(factor, family)

        # Callbacks come from threads that know nothing of the scope of float64: numbers travel as bytes.
        @float64
        def ask(rows: np.ndarray) -> np.ndarray:
            cavities, data, factors = jax.tree.map(np.asarray, jax.vmap(rebuild)(jnp.asarray(rows)))
            factor = jax.tree.map(lambda leaf: leaf[0], factors)
            key = self.key.restored()
            # One by one where answers are sampled: a site has the same draws whatever is asked beside it.
            single = [slice(k, k + 1) for k in range(len(rows))] if noisy else [slice(None)]
            batches = [(cavities[at], jax.tree.map(lambda leaf, at=at: leaf[at], data)) for at in single]
            found = join_rows([self.oracle.answer(factor, family, eta, own, key) for eta, own in batches])
            return np.concatenate([found.projected - cavities, found.log_z[:, None]], axis=1)

        def ask_or_note(words: Any) -> np.ndarray:
            rows = np.ascontiguousarray(words).view(np.float64).reshape(-1, flat.size)
            answers = np.full((len(rows), cavity.size + 1), np.nan)
            if self._failure is None:
                # An exception would end in JAX's runtime: it is raised when the compiled program has ended.
                try:
                    answers = ask(rows)
                except BaseException as error:
                    self._failure = error
            return answers.view(np.uint32).reshape(*np.shape(words)[:-2], -1, 2)

        shape = jax.ShapeDtypeStruct((cavity.size + 1, 2), np.uint32)
        words = jax.lax.bitcast_convert_type(flat, np.uint32)
        answer = jax.pure_callback(ask_or_note, shape, words, vmap_method="broadcast_all")
        site, log_z = jnp.split(jax.lax.bitcast_convert_type(answer, np.float64), [cavity.size])
        # An answer that was refused is not finite.
        refused = ~(jnp.isfinite(log_z[0]) & jnp.all(jnp.isfinite(site)))
        site = jnp.where(refused, 0.0, site)
        tilted = Tilted(jnp.where(refused, 0.0, log_z[0]), tilted_statistics_of(family, cavity, site), site)
        return tilted, {UNSURE: refused}

    def raise_failure(self, reached: Any) -> None:
        jax.block_until_ready(reached)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


@factor
class LearnedFactor(WithMoments):
    """A factor with the operator that learns its messages, to be used like any other factor.

    `just_in_time` and `load` make it.

    Args:
        factor: whose messages are learned.
        moments: the operator.

    Examples:
        >>> import cavity
        >>> learned = cavity.learned.just_in_time(cavity.factors.Logistic(), oracle=cavity.Quadrature())
        >>> type(learned).__name__, learned.report().queries
        ('LearnedFactor', 0)
    """

    moments: JustInTime = static()

    def report(self) -> OperatorReport:
        """What the operator has asked and done so far, in all runs.

        Returns:
            An `OperatorReport`.
        """
        return self.moments.report()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what was learned to a file of numbers, for `load`; the factor itself is not in it.

        Args:
            path: of the file, replaced where it exists.

        Raises:
            StorageError: nothing was learned yet.
        """
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
        >>> logistic = cavity.learned.just_in_time(cavity.factors.Logistic(), oracle=cavity.Quadrature())
        >>> model = cavity.models.latent_gaussian([1.0, -1.0, 1.0], logistic, X=[[1.0], [-2.0], [0.5]])
        >>> str(cavity.infer(model, cavity.EP()).status)
        'converged'
        >>> logistic.report().queries > 0
        True
        >>> walk = cavity.learned.just_in_time(lambda rng, x: x + rng.normal(size=x.shape), inputs=1, outputs=1)
        >>> graph = cavity.FactorGraph()
        >>> graph.add(walk, graph.gaussian(0.0, 1.0), graph.gaussian(1.0, 1.0))
    """
    inner = as_factor(factor_or_sampler, inputs, outputs)
    moments = JustInTime(oracle, draws=draws, tol_kl=tol_kl, key=key)
    moments.oracle.validate(inner)
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
        factor_or_sampler: as `just_in_time` takes it, like the arguments that follow.
        inputs: of a sampler.
        outputs: of a sampler.
        oracle: what computes the messages.
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
    moments.oracle.validate(inner)
    return WithMoments(inner, moments)


def load(
    path: str | os.PathLike[str],
    factor_or_sampler: Factor | Sampler,
    inputs: Slots | None = None,
    outputs: Slots | None = None,
    *,
    max_bytes: int | None = None,
    **options: Any,
) -> LearnedFactor:
    """A factor that begins with what another has learned and saved.

    Args:
        path: of the file that `save` wrote.
        factor_or_sampler: the factor or sampler it was about. A file holds numbers only, and no program.
        inputs: of a sampler, as `just_in_time` takes them.
        outputs: of a sampler.
        max_bytes: refuse a file that unpacks to more than this; None: to more than 256 MiB and 64 times its size.
        options: as `just_in_time` takes them; `tol_kl` is the saved one unless given.

    Returns:
        A factor with `report()` and `save(path)`.

    Raises:
        StorageError: the file is of another kind, damaged, or was learned from another program, which shows when this
            one is asked the same questions; a factor with a density is asked before its first run.
        TypeError: the factor and its inputs and outputs do not go together, as in `just_in_time`.

    Examples:
        >>> import os, tempfile
        >>> import cavity
        >>> logistic = cavity.learned.just_in_time(cavity.factors.Logistic(), oracle=cavity.Quadrature())
        >>> model = cavity.models.latent_gaussian([1.0, -1.0, 1.0], logistic, X=[[1.0], [-2.0], [0.5]])
        >>> solution = cavity.infer(model, cavity.EP())
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "logistic.cavity")
        ...     logistic.save(path)
        ...     again = cavity.learned.load(path, cavity.factors.Logistic(), oracle=cavity.Quadrature())
        >>> again.report().labels == logistic.report().labels
        True
    """
    inner = as_factor(factor_or_sampler, inputs, outputs)
    operator = JustInTime.load(path, max_bytes=max_bytes, **options)
    operator.oracle.validate(inner)
    if isinstance(inner, Simulator) and operator.fingerprint is not None:
        known, none = operator.fingerprint.known, np.zeros(())
        # As a graph connects it, with data of its own that say nothing.
        given = Conditioned(inner, known) if known else inner
        operator.verify(given, ObservedArguments((none,) * len(known), none) if known else none)
    return LearnedFactor(inner, operator)


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
