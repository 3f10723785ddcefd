"""The update rule: what a sweep does at every site, as compiled programs know it."""

from cavity._core import checks
from cavity._core.pytrees import pytree_dataclass, static
from cavity.inference.projection import Matched, Projection
from cavity.inference.schedule import Schedule

#: residuals that compiled programs have room for at least
ROOM = 1024
MATCHED = Matched()

#: a step that would make q improper is halved at most this often before it is given up
MAX_HALVINGS = 20


@pytree_dataclass
class UpdateRule:
    """How sites are updated, in which order, and what counts as agreement.

    Other values of damping, tolerance, relaxation weight and, up to 1024, `max_sweeps` do not recompile anything.

    projection: from a tilted distribution to a message. power: of the factors that are integrated; 1 but for Power EP.
    schedule: None leaves it to the problem; most are visited in order.
    damping: the step from the old site to the new one in natural parameters, 1 for the full step.
    max_sweeps: how many are made; of a compiled rule, how many residuals there is room for.
    tol: bound on the moment mismatch of every site at the state returned; it is never loosened.
    single_pass: whether one sweep is the whole method, so that no fixed point is sought.
    """

    projection: Projection = MATCHED
    schedule: Schedule | None = static(default=None)
    power: float = static(default=1.0)
    damping: float = 1.0
    max_sweeps: int = static(default=200)
    tol: float = 1e-8
    single_pass: bool = static(default=False)

    def __post_init__(self) -> None:
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

    def as_compiled(self) -> "UpdateRule":
        """The rule alone, without the name of a method, so that methods that differ in nothing else share programs.

        The caller of a program counts the sweeps; the program only needs room for their residuals.
        """
        room = max(ROOM, 1 << (self.max_sweeps - 1).bit_length())
        return UpdateRule(self.projection, self.schedule, self.power, self.damping, room, self.tol, self.single_pass)
