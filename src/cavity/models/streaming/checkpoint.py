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
from cavity.inference.methods import Method
from cavity.inference.status import Status
from cavity.models.streaming.chunks import Portion
from cavity.models.streaming.pass_state import Course
from cavity.models.streaming.visits import Met, Sums, Tally
from cavity.storage import StorageError

KIND = "stream"


def fingerprint(first: Portion, size: int, factor: Factor, prior: Sums, method: Method) -> dict[str, Any]:
    """What a run must share with a checkpoint to go on from it, by name.

    Tolerance and the number of sweeps are left out: more of them may be asked for when a run goes on.
    """
    leaves = [np.asarray(leaf, float).tolist() for leaf in jax.tree.leaves(factor)]
    schedule = None if method.schedule is None else repr(method.schedule)
    return {
        "columns": first.X.shape[1],
        "machines": len(first.y),
        "likelihood": [type(factor).__name__, leaves],
        "prior": digest(prior.shift, prior.precision),
        "method": [method.single_pass, method.power, float(method.damping), repr(method.projection), schedule],
        "portions": size,
        "first rows": digest(first.X, first.y, first.weights),
    }


def digest(*arrays: Any) -> str:
    """A name for the contents of arrays."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array, "<f8").tobytes())
    return found.hexdigest()


def write(
    path: Path, own: dict[str, Any], progress: dict[str, Any], checksums: list[float], courses: tuple[Course, ...]
) -> None:
    """Write a checkpoint, complete or not at all."""
    arrays: dict[str, Any] = {"checksums": np.asarray(checksums, float)}
    told = []
    for number, course in enumerate(courses):
        leaves = jax.tree.leaves(course.tally)
        arrays |= {f"machine{number}/{place}": np.asarray(leaf) for place, leaf in enumerate(leaves)}
        arrays[f"machine{number}/residuals"] = np.asarray(course.residuals, float)
        fields = {name: getattr(course, name) for name in ("stage", "constant", "sequential")}
        told.append(
            {
                **fields,
                "mismatch": repr(course.mismatch),
                "status": str(course.status),
                "history": list(course.history),
            }
        )
    storage.save(path, KIND, {"fingerprint": own, "progress": progress, "machines": told}, arrays)


def read(path: Path, own: dict[str, Any]) -> tuple[dict[str, Any], list[float], tuple[Course, ...]]:
    """What `write` wrote, if it belongs to a run with this fingerprint: progress, checksums and courses."""
    kind, header, arrays = storage.load(path)
    if kind != KIND:
        raise StorageError(f"{path} holds {kind!r}, which is not the checkpoint of a stream.")
    try:
        theirs = header["fingerprint"]
        odd = [name for name in own if json.dumps(theirs[name]) != json.dumps(own[name])]
        if odd:
            raise StorageError(f"{path} belongs to another run: it differs in {', '.join(odd)}.")
        courses = []
        for number, told in enumerate(header["machines"]):
            parts = [arrays[f"machine{number}/{place}"] for place in range(2 * len(Sums._fields) + len(Met._fields))]
            leaves = [jnp.asarray(part) for part in parts]
            tally = Tally(Sums(*leaves[:3]), Sums(*leaves[3:6]), Met(*leaves[6:]))
            residuals = tuple(arrays[f"machine{number}/residuals"].tolist())
            mismatch, status, history = float(told["mismatch"]), Status(told["status"]), tuple(told["history"])
            fields = {name: told[name] for name in ("stage", "constant", "sequential")}
            courses.append(
                Course(tally, residuals=residuals, mismatch=mismatch, status=status, history=history, **fields)
            )
        return header["progress"], arrays["checksums"].tolist(), tuple(courses)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"{path} is damaged: it does not describe a stream ({error}).") from None
