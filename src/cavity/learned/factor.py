"""Just-in-time factors: messages are predicted where that is safe, and asked for where it is not.

Inside the compiled sweep a site is predicted, or left as it was if the expected error is too large. Between sweeps the
host takes the sites that were left, chooses few of them that tell most about all, asks the oracle, and learns.
"""

import os
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity._core.precision import float64
from cavity._core.pytrees import static
from cavity.factors.base import Factor, factor, is_one
from cavity.families.base import Family, Tilted
from cavity.learned.message_coordinates import statistics_of
from cavity.learned.operator import Operator, Report, Sites
from cavity.learned.oracle_factor import DRAWS, check_slots, inner_and_oracle
from cavity.learned.oracles import Oracle
from cavity.learned.residual_process import ResidualProcess
from cavity.learned.saving import restore, store
from cavity.learned.simulation import Sampler, Simulator, Slots
from cavity.moments.base import Moments


@factor
class JustInTime(Factor):
    """A factor that is predicted by an operator, and learns. Made by `just_in_time`.

    knowledge: what the operator knew when a run began. known: places of arguments that are numbers.
    """

    operator: Operator = static()
    knowledge: Any = None
    known: tuple[int, ...] = static(default=())

    learns: ClassVar[bool] = True
    closed_forms: ClassVar[tuple[str, ...]] = ("families whose messages can be learned, power 1",)

    def report(self) -> Report:
        """What the operator was asked, and did."""
        return self.operator.report()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what was learned to a file, for `load`; the factor itself is not in it."""
        store(self.operator, path)

    def with_known(self, places: tuple[int, ...]) -> "JustInTime":
        return JustInTime(self.operator, None, places)

    def check(self, data: Any) -> None:
        self.operator.inner.check(data)

    def has_density(self, data: Any) -> bool:
        return self.operator.inner.has_density(data)

    def log_density(self, x: Any, data: Any) -> jax.Array:
        return self.operator.inner.log_density(x, data)

    def tilted(self, family: Family, cavity: jax.Array, data: Any, power: float) -> Tilted:
        if not is_one(power):
            return NotImplemented
        check_slots(self.operator.inner, family, self.known)
        known = self.operator.knowledge(family, data) if self.knowledge is None else self.knowledge
        found = self.operator.learner.guess(known, family, cavity, data)
        site = jnp.where(found.sure, found.site, 0.0)
        # No number at all where it is unsure: the site stays as it was, and the host is told.
        log_z = jnp.where(found.sure, found.log_z, jnp.nan)
        return Tilted(log_z, statistics_of(family, cavity, site), site)

    @float64
    def current(self, family: Family, data: Any) -> "JustInTime":
        """With the latest knowledge."""
        one = jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], data)
        return JustInTime(self.operator, self.operator.knowledge(family, one), self.known)

    @float64
    def consulted(
        self, family: Family, cavities: jax.Array, data: Any, silent: np.ndarray, ended: bool
    ) -> tuple["JustInTime", bool]:
        sites = Sites(family, cavities, jax.tree.map(jnp.asarray, data), self.known)
        if silent.any():
            self.operator.consult(sites, silent)
        ends = ended and not silent.any()
        better = ends and self.operator.settle(sites)
        wrong = self.operator.learner.audited and self.operator.audit(sites, silent, ends and not better)
        return self.current(family, data), bool(silent.any()) or better or wrong


def just_in_time(
    factor_or_sampler: Factor | Sampler,
    inputs: Slots | None = None,
    outputs: Slots | None = None,
    *,
    oracle: Moments | Oracle | None = None,
    draws: int = DRAWS,
    tol_kl: float = 1e-5,
    key: jax.Array | None = None,
) -> JustInTime:
    """A factor that learns to send messages while it is used, and asks where it is unsure.

    It can stand wherever a factor can. What it has learned serves every model it is put into.

    Args:
        factor_or_sampler: a factor; or a program `sampler(rng, *inputs) → outputs` that takes a NumPy generator and an
            array of draws for each input, and returns one for each output (a tuple where there are several).
        inputs: of a sampler, in its order: names, or families by name, or how many.
        outputs: the same of what it returns. As a factor it connects inputs, then outputs.
        oracle: who is asked. A strategy such as `cavity.Quadrature()`, or an `Oracle`. By default quadrature for a
            factor with a log density that can be integrated so, else weighted draws from the incoming messages.
        draws: of one answer that is sampled.
        tol_kl: expected KL divergence, of exact from predicted projection, beyond which the oracle is asked. An oracle
            that samples is asked as long as one more answer tells more than it already knows.
        key: of the oracle's draws and of audits.
    """
    checks.positive("tol_kl", tol_kl)
    inner, asked = inner_and_oracle(factor_or_sampler, inputs, outputs, oracle, draws)
    start = jax.random.key(0) if key is None else key
    outputs = len(inner.outputs) if isinstance(inner, Simulator) else 0
    return JustInTime(Operator(inner, asked, ResidualProcess(tol_kl, outputs, asked.is_noisy), tol_kl, start))


@float64
def load(path: str | os.PathLike[str], factor_or_sampler: Factor | Sampler, **options: Any) -> JustInTime:
    """A factor that begins with what another has learned and saved.

    Args:
        path: of the file that `JustInTime.save` wrote.
        factor_or_sampler: the factor or sampler it was about. A file holds numbers only, and no program.
        options: as `just_in_time` takes them; `tol_kl` is the saved one unless given.
    """

    def make(tol_kl: float) -> Operator:
        return just_in_time(factor_or_sampler, **dict[str, Any](tol_kl=tol_kl) | options).operator

    return JustInTime(restore(make, path))
