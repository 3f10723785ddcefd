"""How a saved operator knows its factor again: some questions it has asked, with their answers, are asked once more."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity._storage import StorageError
from cavity.factors.base import Factor, name_of
from cavity.families.base import Family
from cavity.families.product import Product
from cavity.learned.message_coordinates import KNOWN, divergence, parts_of
from cavity.learned.oracles import Answers, Oracle, join_rows
from cavity.learned.simulation import count_outputs, simulator_of
from cavity.moments.base import Batch

#: questions that are kept, half of them the first ones and half the last ones
KEPT = 8
#: how far answers may be apart on average, in units of what is to be expected; a refused one counts as twice as far
FAR = 3.0
#: arrays in a file; the names of those of the operator itself are others
ARRAYS = ("asked_cavities", "asked_data", "asked_projected", "asked_log_z", "asked_spread")


class Fingerprint(NamedTuple):
    """Questions to the oracle of a factor and its answers, one row each.

    family: of the variables. known: places of arguments that are numbers. outputs: variables that a program draws, 0
    for a factor with a density. data: all numbers of a site in one row.
    """

    family: Family
    known: tuple[int, ...]
    outputs: int
    cavities: np.ndarray
    data: np.ndarray
    answers: Answers

    def as_saved(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Entries of a file's header, and its arrays."""
        families = [[type(own).__name__, *vars(own).values()] for own in parts_of(self.family)]
        header = {"families": families, "known": list(self.known), "outputs": self.outputs}
        return header, dict(zip(ARRAYS, (self.cavities, self.data, *self.answers), strict=True))


def from_saved(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Fingerprint:
    """The inverse of `as_saved`.

    Raises:
        KeyError, TypeError, ValueError: entries are missing, or are none of a fingerprint.
    """
    kinds = {own.__name__: own for base in KNOWN for own in (base, *base.__subclasses__())}
    families = tuple(kinds[name](*rest) for name, *rest in header["families"])
    family = families[0] if len(families) == 1 else Product(families)
    found = [np.asarray(arrays[name], float) for name in ARRAYS]
    count, known = len(found[0]), tuple(map(int, header["known"]))
    shapes = [(count, family.size), (count, found[1].shape[-1]), (count, family.size), (count,), (count,)]
    if not count or [own.shape for own in found] != shapes or not all(np.isfinite(own).all() for own in found):
        raise ValueError("a question")
    return Fingerprint(family, known, int(header["outputs"]), found[0], found[1], Answers(*found[2:]))


def remember(held: Fingerprint | None, batch: Batch, answers: Answers, good: np.ndarray) -> Fingerprint | None:
    """The fingerprint after more answers, of which `good` could be used."""
    if not good.any() or (held is not None and held.family != batch.family):
        return held
    leaves = [np.asarray(leaf, float).reshape(len(good), -1) for leaf in jax.tree.leaves(batch.data)]
    rows = (np.asarray(batch.cavities), np.concatenate(leaves, axis=1), answers)
    rows = jax.tree.map(lambda leaf: np.asarray(leaf)[good], rows)
    if held is not None:
        rows = join_rows([(held.cavities, held.data, held.answers), rows])
    count = len(rows[0])
    kept = np.unique(np.r_[: min(KEPT // 2, count), max(0, count - KEPT // 2) : count])
    rows = jax.tree.map(lambda leaf: leaf[kept], rows)
    return Fingerprint(batch.family, simulator_of(batch.factor)[1], count_outputs(batch.factor), *rows)


def recognise(
    held: Fingerprint, path: Any, oracle: Oracle, factor: Factor, site: Any, tolerance: float, key: jax.Array
) -> None:
    """Refuse a factor that answers otherwise than the one whose answers were saved.

    The mean over questions of KL(then ‖ now) + ½ (difference of log Z)², in units of ½ (1/ESS then + 1/ESS now) for
    every number, and the tolerance.

    Args:
        held: questions and answers of the file.
        path: of the file.
        oracle: to be asked.
        factor: to be asked about.
        site: data of one site, whose structure that of the questions is.
        tolerance: KL divergence that does not matter.
        key: of the oracle's draws.

    Raises:
        StorageError: it does, or it is one of other inputs and outputs.
    """
    simulator, known = simulator_of(factor)
    name = name_of(factor) if simulator is None else getattr(simulator.sampler, "__name__", "this program")
    leaves, structure = jax.tree.flatten(site)
    sizes = [np.size(leaf) for leaf in leaves]
    same = (known, count_outputs(factor), sum(sizes)) == (held.known, held.outputs, held.data.shape[1])
    places = len(parts_of(held.family)) + len(held.known)
    if not same or (simulator is not None and places != sum(map(len, simulator.slots))):
        inputs = places - held.outputs
        raise StorageError(
            f"{path} was learned from a program or factor with {inputs} inputs, {len(held.known)} of them numbers, "
            f"{held.outputs} outputs and {held.data.shape[1]} numbers of data per site; {name} has others."
        )
    if simulator is not None:
        simulator.check_variables(held.family, known)
    columns = np.split(held.data, np.cumsum(sizes)[:-1], axis=1)
    shaped = [own.reshape(-1, *np.shape(leaf)) for own, leaf in zip(columns, leaves, strict=True)]
    found = oracle.answer(factor, held.family, held.cavities, jax.tree.unflatten(structure, shaped), key)
    then = held.answers
    distance = jax.vmap(lambda one, other: divergence(held.family, one, other))
    apart = np.asarray(distance(jnp.asarray(then.projected), jnp.asarray(found.projected)))
    apart = apart + 0.5 * (then.log_z - found.log_z) ** 2
    noise = 0.5 * (1 + held.family.size) * (then.spread + found.spread)
    ratio = np.nan_to_num(apart / (tolerance + noise), nan=2.0 * FAR, posinf=np.inf)
    if not ratio.mean() <= FAR:
        refused = f"; {np.isnan(apart).sum()} could not be answered" if np.isnan(apart).any() else ""
        raise StorageError(
            f"{path} was learned from another program or factor: to {len(ratio)} of its questions the answers of "
            f"{name} are {ratio.mean():.3g} times as far from the saved ones as sampling errors explain{refused}."
        )
