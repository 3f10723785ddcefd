"""Writing a file: complete or not at all."""

import contextlib
import json
import os
import uuid
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from cavity._version import __version__
from cavity.storage.format import ARRAY_KINDS, FORMAT, HEADER, VERSION, StorageError


def save(path: str | os.PathLike[str], kind: str, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write arrays and a header to exactly this path, replacing a file that is there.

    The file appears under its name when it is complete: it is written beside it and renamed. Equal contents give equal
    files.

    Args:
        path: of the file; nothing is appended to it.
        kind: what is saved, for the reader to check.
        header: anything JSON can say: dictionaries with text as keys, lists, text, finite numbers, booleans, None.
            Numbers come back exactly. Infinite numbers and NaN, which JSON has not, belong into arrays.
        arrays: NumPy arrays by name, of booleans, numbers or text.
    """
    target = Path(path)
    if not isinstance(kind, str) or not kind:
        raise StorageError(f"kind must be a name; found {kind!r}.")
    members = {name: check_array(name, value) for name, value in arrays.items()}
    text = json.dumps(
        {
            "format": FORMAT,
            "version": VERSION,
            "kind": kind,
            "library": __version__,
            "arrays": list(members),
            "header": check_header(header),
        }
    )
    members = {HEADER: np.frombuffer(text.encode(), np.uint8), **members}
    if not target.absolute().parent.is_dir():
        raise StorageError(f"{target} cannot be written: its folder does not exist.")
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        with open(part, "xb") as file:
            write_members(file, members)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            part.unlink()
        if isinstance(error, OSError):
            raise StorageError(f"{target} cannot be written: {error.strerror or error}.") from error
        raise


def write_members(file: BinaryIO, members: Mapping[str, np.ndarray]) -> None:
    """The .npz file itself; `numpy.savez` would keep some names for its own arguments."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in members.items():
            entry = zipfile.ZipInfo(f"{name}.npy")  # dated 1980, so that equal contents give equal files
            entry.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(entry, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def check_array(name: Any, value: Any) -> np.ndarray:
    """An array of a kind that is stored, under a name that is free."""
    if not isinstance(name, str) or not name or not name.isprintable():
        raise StorageError(f"arrays must be named by text; found {name!r}.")
    if name == HEADER:
        raise StorageError(f"arrays must not use the name {HEADER!r}, which is the header's.")
    array = np.asarray(value)
    if array.dtype.kind not in ARRAY_KINDS or array.dtype.itemsize == 0:
        raise StorageError(f"arrays[{name!r}] must hold booleans, numbers or text; found dtype {array.dtype}.")
    return array


def check_header(header: Mapping[str, Any]) -> dict[str, Any]:
    """The header, if it comes back from JSON as it went in."""
    plain = dict(header)
    try:
        same = json.loads(json.dumps(plain, allow_nan=False)) == plain
    except (TypeError, ValueError, RecursionError) as error:
        raise StorageError(f"header must hold what JSON can say and finite numbers only: {error}.") from None
    if not same:
        raise StorageError("header must hold what JSON can say: lists, not tuples, and dictionaries with text as keys.")
    return plain
