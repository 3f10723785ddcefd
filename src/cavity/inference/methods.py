"""Methods: each is the one loop with other parts plugged in."""

from dataclasses import dataclass

import jax

from cavity.inference.projection import Matched, Projection, Restricted
from cavity.inference.schedule import Schedule
from cavity.numerics import checks


@dataclass(frozen=True)
class Method:
    """What the loop needs to know. A pytree whose leaves are damping and tolerance: other values compile nothing anew.

    damping: the step from the old site to the new one in natural parameters, 1 for the full step.
    schedule: None leaves it to the problem; most are visited in order.
    tol: bound on the moment mismatch of every site at the state handed back; it is never loosened.
    """

    name: str
    projection: Projection
    schedule: Schedule | None
    power: float
    damping: float
    max_sweeps: int
    tol: float

    def checked(self) -> "Method":
        """Itself, after refusing what cannot be run. Not done on construction: JAX rebuilds it with other leaves."""
        if self.schedule is not None and not isinstance(self.schedule, Schedule):
            raise TypeError(f"schedule must be a Schedule such as cavity.Parallel(); found {self.schedule!r}.")
        if not isinstance(self.projection, Projection):
            raise TypeError(f"projection must be a Projection such as cavity.Cowell(); found {self.projection!r}.")
        if not checks.number("power", self.power) > 0:
            raise ValueError(f"power must be a positive number; found {self.power}.")
        if not 0 < checks.number("damping", self.damping) <= 1:
            raise ValueError(f"damping must lie in (0, 1], 1 being the full step; found {self.damping}.")
        if not isinstance(self.max_sweeps, int) or self.max_sweeps < 1:
            raise ValueError(f"max_sweeps must be a whole number of at least 1; found {self.max_sweeps!r}.")
        if not checks.number("tol", self.tol) > 0:
            raise ValueError(f"tol must be positive; found {self.tol}.")
        return self

    @property
    def single_pass(self) -> bool:
        """Whether one sweep is the whole method, so that no fixed point is sought."""
        return self.name == "ADF"


jax.tree_util.register_dataclass(
    Method, data_fields=["damping", "tol"], meta_fields=["name", "projection", "schedule", "power", "max_sweeps"]
)


def ADF(*, schedule: Schedule | None = None, projection: Projection = Matched()) -> Method:
    """Assumed-density filtering: one pass from flat sites (thesis 3.1)."""
    return Method("ADF", projection, schedule, power=1.0, damping=1.0, max_sweeps=1, tol=1e-8).checked()


def EP(
    *,
    schedule: Schedule | None = None,
    damping: float = 1.0,
    max_sweeps: int = 200,
    tol: float = 1e-8,
    projection: Projection = Matched(),
) -> Method:
    """Expectation propagation (thesis 3.2)."""
    return Method("EP", projection, schedule, power=1.0, damping=damping, max_sweeps=max_sweeps, tol=tol).checked()


def PowerEP(
    power: float,
    *,
    schedule: Schedule | None = None,
    damping: float | None = None,
    max_sweeps: int = 1000,
    tol: float = 1e-8,
) -> Method:
    """EP on fractional factors: deletes site**power, matches factor**power × cavity, scales the message by 1/power.

    damping None means min(power, 1): q then takes the tilted moments exactly, and the undamped step, 1/power times
    as long, would overshoot.
    """
    power = checks.number("power", power)
    damping = min(power, 1.0) if damping is None else damping
    return Method(
        "PowerEP", Matched(), schedule, power=power, damping=damping, max_sweeps=max_sweeps, tol=tol
    ).checked()


def RestrictedEP(
    *,
    printed: bool = False,
    schedule: Schedule | None = None,
    damping: float = 1.0,
    max_sweeps: int = 1000,
    tol: float = 1e-8,
) -> Method:
    """EP whose sites are kept proper inside the projection (3.2.1); `printed`: the thesis's v = 1e8 in place of ∞."""
    projection = Restricted(floor=1e-8 if printed else 0.0)
    return Method(
        "RestrictedEP", projection, schedule, power=1.0, damping=damping, max_sweeps=max_sweeps, tol=tol
    ).checked()
