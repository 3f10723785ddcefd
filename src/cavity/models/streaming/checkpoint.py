"""Checkpoints of a stream: how far it is and what q is made of, in one file; the sites are in the files beside it."""

import hashlib
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity import storage
from cavity.factors.base import Factor
from cavity.inference.status import Status
from cavity.inference.update_rule import UpdateRule
from cavity.models.streaming.chunks import Chunk
from cavity.models.streaming.pass_state import PassState
from cavity.models.streaming.shard import NaturalSums
from cavity.storage import StorageError

KIND = "stream"
#: fields of a `PassState` that a header can hold as they are
PLAIN = ("stage", "constant", "sequential")
#: what a run's progress is made of
PROGRESS = {"sweep", "position", "rows", "seconds", "resumed"}


def fingerprint(first: Chunk, size: int, factor: Factor, prior: NaturalSums, method: UpdateRule) -> dict[str, Any]:
    """What a run must share with a checkpoint to go on from it, by name.

    Tolerance and the number of sweeps are left out: more of them may be asked for when a run goes on.
    """
    leaves = [np.asarray(leaf, float).tolist() for leaf in jax.tree.leaves(factor)]
    schedule = None if method.schedule is None else repr(method.schedule)
    return {
        "columns": first.X.shape[1],
        "models": len(first.y),
        "likelihood": [type(factor).__name__, leaves],
        "prior": digest(prior.shift, prior.precision),
        "method": [method.single_pass, method.power, float(method.damping), repr(method.projection), schedule],
        "chunk": size,
        "first rows": digest(first.X, first.y, first.weights),
    }


def digest(*arrays: Any) -> str:
    """A name for the contents of arrays."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array, "<f8").tobytes())
    return found.hexdigest()


def write(
    path: Path, own: dict[str, Any], progress: dict[str, Any], checksums: list[float], states: tuple[PassState, ...]
) -> None:
    """Write a checkpoint, complete or not at all."""
    arrays: dict[str, Any] = {"checksums": np.asarray(checksums, float)}
    models = []
    for number, state in enumerate(states):
        leaves = [*jax.tree.leaves(state.totals), state.residuals]
        arrays |= {f"model{number}/{place}": np.asarray(leaf) for place, leaf in enumerate(leaves)}
        texts = {"mismatch": repr(state.mismatch), "status": str(state.status), "history": list(state.history)}
        models.append({name: getattr(state, name) for name in PLAIN} | texts)
    storage.save(path, KIND, {"fingerprint": own, "progress": progress, "models": models}, arrays)


def read(path: Path, own: dict[str, Any]) -> tuple[dict[str, Any], list[float], tuple[PassState, ...]]:
    """What `write` wrote, if it belongs to a run with this fingerprint: progress, checksums and states."""
    kind, header, arrays = storage.load(path)
    if kind != KIND:
        raise StorageError(f"{path} holds {kind!r}, which is not the checkpoint of a stream.")
    try:
        theirs = header["fingerprint"]
        odd = [name for name in own if json.dumps(theirs[name]) != json.dumps(own[name])]
        if odd:
            raise StorageError(f"{path} belongs to another run: it differs in {', '.join(odd)}.")
        states = []
        structure = jax.tree.structure(PassState.initial(NaturalSums.zero(1)).totals)
        for number, model in enumerate(header["models"]):
            *leaves, residuals = (arrays[f"model{number}/{place}"] for place in range(structure.num_leaves + 1))
            plain = {name: model[name] for name in PLAIN}
            states.append(
                PassState(
                    structure.unflatten(jnp.asarray(leaf) for leaf in leaves),
                    residuals=tuple(residuals.tolist()),
                    mismatch=float(model["mismatch"]),
                    status=Status(model["status"]),
                    history=tuple(model["history"]),
                    **plain,
                )
            )
        progress = header["progress"]
        counts = [progress["sweep"], progress["position"], progress["rows"] or 0, *progress["resumed"]]
        if set(progress) != PROGRESS or not all(type(count) is int and count >= 0 for count in counts):
            raise ValueError(f"progress {progress}")
        return progress, arrays["checksums"].tolist(), tuple(states)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"{path} is damaged: it does not describe a stream ({error}).") from None
