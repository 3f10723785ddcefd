"""A simulator as a factor: only a program that draws outputs for given inputs, and no density."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cavity._core.pytrees import static
from cavity.factors.base import Factor, factor
from cavity.factors.wrappers import Conditioned, WithMoments
from cavity.families.base import Family
from cavity.learned.message_coordinates import parts_of

#: a program takes a NumPy generator and one array of draws for each input, and returns one for each output
Sampler = Callable[..., Any]
#: names of a program's inputs or outputs, or families by name, or how many there are
Slots = Sequence[str] | Mapping[str, Family] | int


class Slot(NamedTuple):
    """An input or output of a program; family: None where none was declared."""

    name: str
    family: Family | None


@factor
class Simulator(Factor):
    """The relation between a program's inputs and its outputs, the variables in this order. It has no density.

    Its messages are found by running the program: connect it with `moments=cavity.learned.JustInTime()`, which learns
    them, or `cavity.learned.EveryTime()`, which samples each of them anew.

    Args:
        sampler: the program, `sampler(rng, *inputs) → outputs`. It takes a NumPy generator and an array of draws for
            each input, and returns an array for each output (a tuple where there are several).
        inputs: in its order: names, or families by name, or how many.
        outputs: the same of what it returns.

    Raises:
        TypeError, ValueError: inputs or outputs are not names, families by name or a number, or a name occurs twice.

    Examples:
        >>> import cavity
        >>> walk = cavity.learned.Simulator(lambda rng, x: x + rng.normal(size=x.shape), inputs=1, outputs=1)
        >>> graph = cavity.FactorGraph()
        >>> before, after = graph.gaussian(0.0, 1.0), graph.gaussian(1.0, 1.0)
        >>> graph.add(walk, before, after, moments=cavity.learned.JustInTime())
    """

    sampler: Sampler = static()
    inputs: Slots = static()
    outputs: Slots = static()

    def __post_init__(self) -> None:
        if not callable(self.sampler):
            raise TypeError(f"sampler must be a program that draws; found {type(self.sampler).__name__}.")
        # A tuple of pairs can be hashed, as static fields must be.
        for name, own in zip(("inputs", "outputs"), self.slots, strict=True):
            object.__setattr__(self, name, own)
        twice = set.intersection(*({slot.name for slot in own} for own in self.slots))
        if twice:
            raise ValueError(f"{twice.pop()} names an input and an output.")

    @property
    def slots(self) -> tuple[tuple[Slot, ...], tuple[Slot, ...]]:
        """Names and families of the inputs and of the outputs, in order."""
        return as_slots("inputs", self.inputs), as_slots("outputs", self.outputs)

    def validate(self, data: Any) -> None:
        own = getattr(data, "own", data)
        if np.any(np.asarray(own, float) != 0.0):
            raise ValueError(
                "a sampler takes no data: give it the numbers it needs as arguments in place of variables."
            )

    def check_variables(self, family: Family, known: tuple[int, ...]) -> None:
        """Refuse variables that are not those of the program; known: places of arguments that are numbers."""
        inputs, outputs = self.slots
        slots = inputs + outputs
        observed = [slots[place].name for place in known if place >= len(inputs)]
        if observed:
            raise ValueError(
                f"{observed[0]} is an output of a sampler without a density and cannot be a number: make it a variable "
                "and observe that with some noise, for example by graph.normal."
            )
        free = [slot for place, slot in enumerate(slots) if place not in known]
        variables = parts_of(family)
        if len(variables) != len(free):
            names = ", ".join(slot.name for slot in slots)
            raise ValueError(f"the sampler connects {names}; found {len(variables) + len(known)} arguments.")
        for slot, own in zip(free, variables, strict=True):
            if slot.family is not None and not isinstance(own, type(slot.family)):
                raise TypeError(f"{slot.name} was declared {type(slot.family).__name__}; found {type(own).__name__}.")


def as_slots(which: str, given: Slots | tuple[Slot, ...]) -> tuple[Slot, ...]:
    """Names and families in order."""
    if isinstance(given, tuple) and given and all(isinstance(own, Slot) for own in given):
        return given  # type: ignore[return-value]
    if isinstance(given, int):
        given = [f"{which.removesuffix('s')} {number}" for number in range(given)]
    if isinstance(given, str) or not isinstance(given, Mapping | Sequence) or not len(given):
        raise TypeError(f"{which} must be names, or families by name, or their number; found {given!r}.")
    found = {str(name): own for name, own in given.items()} if isinstance(given, Mapping) else dict.fromkeys(given)
    for name, own in found.items():
        if own is not None and not isinstance(own, Family):
            raise TypeError(f"{which}[{name!r}] must be a family such as cavity.families.Gaussian(); found {own!r}.")
    if len(found) != len(given):
        raise ValueError(f"{which} names one of them twice.")
    return tuple(Slot(name, own) for name, own in found.items())  # type: ignore[arg-type]


def simulator_of(factor: Factor) -> tuple[Simulator | None, tuple[int, ...]]:
    """The simulator that a factor is, None if it is none, and the places of its arguments that are numbers."""
    places: tuple[int, ...] = ()
    if isinstance(factor, Conditioned):
        places, factor = factor.places, factor.factor
    if isinstance(factor, WithMoments):
        factor = factor.factor
    return (factor if isinstance(factor, Simulator) else None), places


def count_outputs(factor: Factor) -> int:
    """How many variables of a factor, the last ones, are drawn by a program from the others."""
    simulator, _ = simulator_of(factor)
    return 0 if simulator is None else len(simulator.slots[1])


def check_variables(factor: Factor, family: Family) -> None:
    """Refuse variables whose messages cannot be learned or sampled, or that are not a simulator's."""
    parts_of(family)
    simulator, known = simulator_of(factor)
    if simulator is not None:
        simulator.check_variables(family, known)
