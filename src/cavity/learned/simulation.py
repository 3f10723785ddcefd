"""A simulator as a factor: only a program that draws outputs for given inputs, and no density.

Inputs are drawn from their own cavities and outputs by the program; a draw weighs as much as the outputs' cavities say.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cavity._core.pytrees import static
from cavity.factors.base import Factor, factor
from cavity.families.base import Family
from cavity.learned.message_coordinates import parts_of
from cavity.learned.sampling import Draws, Question, Sampled, SamplerError, log_density

#: a sampler takes a generator and one array of draws for each input, and gives one for each output
Sampler = Callable[..., Any]
#: names of a sampler's inputs or outputs, or families by name, or how many there are
Slots = Sequence[str] | Mapping[str, Family] | int


@factor
class Simulator(Factor):
    """The relation between a sampler's inputs and its outputs, the variables in this order. It has no density."""

    sampler: Sampler = static()
    inputs: tuple[str, ...] = static()
    outputs: tuple[str, ...] = static()
    families: tuple[Family | None, ...] = static()

    def check(self, data: Any) -> None:
        own = getattr(data, "own", data)
        if np.any(np.asarray(own, float) != 0.0):
            raise ValueError(
                "a sampler takes no data: give it the numbers it needs as arguments in place of variables."
            )

    def fits(self, family: Family, known: tuple[int, ...]) -> None:
        """Refuse variables that are not those of the sampler."""
        names = (*self.inputs, *self.outputs)
        observed = [names[place] for place in known if place >= len(self.inputs)]
        if observed:
            raise ValueError(
                f"{observed[0]} is an output of a sampler without a density and cannot be a number: make it a variable "
                "and observe that with some noise, for example by graph.normal."
            )
        free = [place for place in range(len(names)) if place not in known]
        slots = parts_of(family)
        if len(slots) != len(free):
            raise ValueError(f"the sampler connects {', '.join(names)}; found {len(slots) + len(known)} arguments.")
        for place, own in zip(free, slots, strict=True):
            wanted = self.families[place]
            if wanted is not None and not isinstance(own, type(wanted)):
                raise TypeError(f"{names[place]} was declared {type(wanted).__name__}; found {type(own).__name__}.")


def simulator(sampler: Sampler, inputs: Slots, outputs: Slots) -> Simulator:
    """Names and families in order."""
    first, second = slots("inputs", inputs, "input"), slots("outputs", outputs, "output")
    twice = set(first) & set(second)
    if twice:
        raise ValueError(f"{twice.pop()} names an input and an output.")
    return Simulator(sampler, tuple(first), tuple(second), (*first.values(), *second.values()))


def slots(which: str, given: Slots, word: str) -> dict[str, Family | None]:
    """Names with families, None where none was said."""
    if isinstance(given, int):
        given = [f"{word} {number}" for number in range(given)]
    if isinstance(given, str) or not isinstance(given, Mapping | Sequence) or not len(given):
        raise TypeError(f"{which} must be names, or families by name, or their number; found {given!r}.")
    found = {str(name): own for name, own in given.items()} if isinstance(given, Mapping) else dict.fromkeys(given)
    for name, own in found.items():
        if own is not None and not isinstance(own, Family):
            raise TypeError(f"{which}[{name!r}] must be a family such as cavity.families.Gaussian(); found {own!r}.")
    if len(found) != len(given):
        raise ValueError(f"{which} names one of them twice.")
    return found


class Simulated(Sampled):
    """Importance sampling of a sampler, with inputs from their cavities. inputs: how many; they come first."""

    def __init__(
        self, sampler: Sampler, inputs: int, draws: int = 4096, least_ess: float = 200.0, tries: int = 8
    ) -> None:
        super().__init__(draws, least_ess, tries)
        self.sampler, self.inputs = sampler, inputs

    def drawn(self, known: tuple[int, ...], variables: int) -> int:
        return self.inputs - len(known)

    def weighed(self, site: Question, values: list[np.ndarray], rng: np.random.Generator) -> Draws:
        arguments, free = list(values), len(values)
        for place, value in zip(site.known, site.data.values if site.known else (), strict=True):
            arguments.insert(place, np.full(self.draws, float(value)))
        families, pieces = site.families[free:], site.pieces[free:]
        outputs = self.run(rng, arguments, families)
        log_weights = np.zeros(self.draws)
        for own, cavity, found in zip(families, pieces, outputs, strict=True):
            log_weights += np.asarray(log_density(own, cavity, found))
        return Draws([*values, *outputs], log_weights)

    def run(self, rng: np.random.Generator, inputs: list[np.ndarray], families: Sequence[Family]) -> list[np.ndarray]:
        """The program's outputs, checked."""
        shown = ", ".join(np.array2string(own[:3], precision=4) for own in inputs)
        try:
            raw = self.sampler(rng, *inputs)
        except Exception as error:
            raise SamplerError(
                f"the sampler raised {type(error).__name__}: {error}. Its first inputs: {shown}."
            ) from error
        outputs = [np.asarray(own) for own in (raw if isinstance(raw, tuple | list) else (raw,))]
        wanted = [(self.draws, *own.event_shape) for own in families]
        if [own.shape for own in outputs] != wanted:
            raise SamplerError(
                f"the sampler must give arrays of shapes {wanted}; found {[own.shape for own in outputs]}. "
                f"Its first inputs: {shown}."
            )
        for own in outputs:
            bad = ~np.isfinite(own.reshape(len(own), -1)).all(axis=1)
            if bad.any():
                failed = ", ".join(np.array2string(np.asarray(values)[bad][0], precision=6) for values in inputs)
                raise SamplerError(
                    f"the sampler gave {own[bad][0]} in {bad.sum()} of {len(own)} draws, as for {failed}."
                )
        return outputs
