"""Methods: each is the one loop with other parts plugged in."""

from dataclasses import dataclass, replace
from typing import Literal

from cavity._core import checks
from cavity._core.pytrees import pytree_dataclass, static
from cavity.inference.projection import Matched, Projection, Restricted
from cavity.inference.relaxed import FORMS, PENALTIES, Relaxed
from cavity.inference.schedule import Schedule

#: residuals that compiled programs have room for at least
ROOM = 1024


@pytree_dataclass
class Method:
    """What the loop needs to know.

    Other values of damping, tolerance, relaxation weight and, up to 1024, `max_sweeps` compile nothing anew.

    damping: the step from the old site to the new one in natural parameters, 1 for the full step.
    schedule: None leaves it to the problem; most are visited in order.
    tol: bound on the moment mismatch of every site at the state handed back; it is never loosened.
    """

    name: str = static()
    projection: Projection
    schedule: Schedule | None = static()
    power: float = static()
    damping: float
    max_sweeps: int = static()
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

    def as_compiled(self) -> "Method":
        """Itself as compiled programs need to know it, so that methods that differ in nothing else share them.

        Who drives a program counts the sweeps; it only has to have room for their residuals.
        """
        room = max(ROOM, 1 << (self.max_sweeps - 1).bit_length())
        return replace(self, name=self.name if self.single_pass else "EP", max_sweeps=room)

    def __str__(self) -> str:
        """The method in words; a power or damping other than the usual one is named."""
        weight = getattr(self.projection, "c", None)
        power = f"({self.power:g})" if self.power != 1 else "" if weight is None else f"({weight:g})"
        damped = f", damping {self.damping:g}" if self.damping != min(self.power, 1.0) else ""
        return f"{self.name}{power}{damped}"


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


def RelaxedEP(
    c: float,
    *,
    penalty: Literal["natural", "strength"] = "natural",
    scale_free: bool = True,
    form: Literal["mean", "message"] = "mean",
    sequential: bool = False,
    schedule: Schedule | None = None,
    damping: float = 1.0,
    max_sweeps: int = 1000,
    tol: float = 1e-8,
) -> Method:
    """EP whose sites may relax moment matching, at a price of c (relaxed EP, equation 5); large c is EP.

    penalty, scale_free, form, sequential: see `inference.relaxed.Relaxed`. For scalar Gaussian sites.
    """
    if not checks.number("c", c) >= 0:
        raise ValueError(f"c must not be negative; found {c}.")
    for name, value, known in (("penalty", penalty, PENALTIES), ("form", form, FORMS)):
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}; found {value!r}.")
    projection = Relaxed(float(c), penalty, bool(scale_free), form, bool(sequential))
    return Method(
        "RelaxedEP", projection, schedule, power=1.0, damping=damping, max_sweeps=max_sweeps, tol=tol
    ).checked()


@pytree_dataclass
class DoubleLoop:
    """Made by `ConvergentEP`."""

    power: float = static()
    max_sweeps: int = static()
    tol: float = static()

    def checked(self) -> "DoubleLoop":
        """Itself, after refusing what cannot be run."""
        self.measure.checked()
        return self

    @property
    def measure(self) -> Method:
        """The method whose fixed points are sought."""
        return Method("EP", Matched(), None, self.power, 1.0, self.max_sweeps, self.tol)

    def __str__(self) -> str:
        return "ConvergentEP" + (f"({self.power:g})" if self.power != 1 else "")


def ConvergentEP(*, power: float = 1.0, max_sweeps: int = 300, tol: float = 1e-8) -> DoubleLoop:
    """The double loop: minimises EP's energy (Power EP's, for a power other than 1) step by step and cannot diverge.

    Slow, but it ends at a fixed point of EP wherever the energy is bounded below; Newton's method is tried now and then
    to end sooner. max_sweeps: outer steps.
    """
    return DoubleLoop(checks.number("power", power), max_sweeps, tol).checked()


@dataclass(frozen=True)
class Ladder:
    """Made by `Auto`. first: the method tried first, and alone inside `vmap` or `jit`."""

    first: Method
    compromise: bool

    def checked(self) -> "Ladder":
        """Itself, after refusing what cannot be run."""
        self.first.checked()
        return self

    @property
    def tol(self) -> float:
        """Bound on the moment mismatch, the same on every rung."""
        return self.first.tol

    def __str__(self) -> str:
        return "Auto"


#: what `infer` takes: a method the loop runs, or a way of using several.
Rule = Method | DoubleLoop | Ladder


def Auto(
    *, schedule: Schedule | None = None, max_sweeps: int = 200, tol: float = 1e-8, compromise: bool = True
) -> Ladder:
    """EP, and where it fails one method after another that does not: the default.

    EP → EP shuffled and damped → the double loop from a Power EP solution, each finished by Newton's method where that
    helps: these have the same fixed points, status `converged`. Then relaxed EP (`converged_relaxed`), restricted EP
    (`converged_restricted`), which have others. `solution.rungs` says what was tried and why it was left.

    max_sweeps: of the first rung. compromise: whether fixed points other than EP's are acceptable.
    """
    return Ladder(EP(schedule=schedule, max_sweeps=max_sweeps, tol=tol), bool(compromise)).checked()
