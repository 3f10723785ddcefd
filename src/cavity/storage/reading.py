"""Reading a file that may be broken, foreign or hostile: its content, or one sentence."""

import io
import json
import math
import os
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from cavity.storage.format import ARRAY_KINDS, FORMAT, HEADER, READABLE, StorageError

#: no stream of deflate expands by more than 1032; a member that claims more is not what it says.
DEFLATE_LIMIT = 1040
#: what zipfile, zlib and the reader of array headers raise on damaged bytes.
DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, RuntimeError, ValueError, OverflowError, KeyError)


def load(path: str | os.PathLike[str], max_bytes: int = 2**33) -> tuple[str, dict[str, Any], dict[str, np.ndarray]]:
    """Kind, header and arrays of a file that `save` wrote.

    Sizes are checked before memory is used for them, members against their checksums before they are interpreted.

    Args:
        path: of the file.
        max_bytes: refuse a file whose arrays take more than this when unpacked (8 GiB).
    """
    source = Path(path)
    try:
        with open(source, "rb") as file:
            members = read_members(file, source, max_bytes)
    except FileNotFoundError:
        raise StorageError(f"{source} does not exist.") from None
    except OSError as error:
        raise StorageError(f"{source} cannot be read: {error.strerror or error}.") from None
    if HEADER not in members:
        raise StorageError(f"{source} was not written by cavity: it has no header.")
    kind, header, names = read_header(members.pop(HEADER), source)
    if set(names) != set(members):
        odd = ", ".join(sorted(repr(name) for name in set(names) ^ set(members)))
        raise StorageError(f"{source} is damaged: what its header declares and what it holds differ in {odd}.")
    return kind, header, {name: read_array(members[name], f"{source}: array {name!r}") for name in names}


def read_members(file: Any, source: Path, max_bytes: int) -> dict[str, bytes]:
    """The unpacked members by name; their declared sizes bound what is read."""
    if not zipfile.is_zipfile(file):
        raise StorageError(f"{source} is not a file written by cavity, or its end is missing.")
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            for entry in entries:
                if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise StorageError(f"{source} is damaged: {entry.filename!r} is packed in an unknown way.")
                if entry.file_size > DEFLATE_LIMIT * (entry.compress_size + 1):
                    raise StorageError(f"{source} is damaged: {entry.filename!r} declares more bytes than it can hold.")
            total = sum(entry.file_size for entry in entries)
            if total > max_bytes:
                raise StorageError(f"{source} unpacks to {total} bytes, above the limit max_bytes={max_bytes}.")
            names = [entry.filename.removesuffix(".npy") for entry in entries]
            if len(set(names)) != len(names):
                raise StorageError(f"{source} is damaged: it holds two members of one name.")
            return {name: archive.read(entry) for name, entry in zip(names, entries, strict=True)}
    except StorageError:
        raise
    except (*DAMAGE, OSError) as error:  # a damaged offset may lead outside the file
        reason = str(error).rstrip(".") or type(error).__name__
        raise StorageError(f"{source} is damaged or unreadable: {reason}.") from None


def read_header(data: bytes, source: Path) -> tuple[str, dict[str, Any], list[str]]:
    """Kind, header and names of arrays, if the format and version are known."""
    array = read_array(data, f"{source}: header")
    try:
        content = json.loads(array.tobytes().decode(), parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        raise StorageError(f"{source} is damaged: its header is not JSON.") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise StorageError(f"{source} was not written by cavity: its header does not say so.")
    version = content.get("version")
    if version not in READABLE:
        versions = ", ".join(str(v) for v in READABLE)
        raise StorageError(
            f"{source} has format version {version!r}, written by cavity {content.get('library')!r}; "
            f"this cavity reads version {versions}."
        )
    kind, header, names = content.get("kind"), content.get("header"), content.get("arrays")
    if isinstance(kind, str) and isinstance(header, dict) and isinstance(names, list):
        return kind, header, [str(name) for name in names]
    raise StorageError(f"{source} is damaged: its header lacks kind, header or arrays.")


def refuse_constant(name: str) -> None:
    """Python reads NaN and Infinity, which are not JSON and which `save` does not write."""
    raise ValueError(name)


def read_array(data: bytes, what: str) -> np.ndarray:
    """One .npy member, if its bytes are as many as its header declares and it holds no objects."""
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        if version not in readers:
            raise StorageError(f"{what} has an unknown array format {version}.")
        shape, fortran, dtype = readers[version](stream)
    except StorageError:
        raise
    except (*DAMAGE, SyntaxError, TypeError, MemoryError, RecursionError):
        raise StorageError(f"{what} is not an array that NumPy wrote.") from None
    if dtype.kind not in ARRAY_KINDS or dtype.itemsize == 0:
        raise StorageError(f"{what} is refused: dtype {dtype} is not booleans, numbers or text.")
    declared, found = math.prod(shape) * dtype.itemsize, len(data) - stream.tell()
    if min(shape, default=0) < 0 or declared != found:
        raise StorageError(f"{what} is damaged: shape {shape} takes {declared} bytes, {found} are there.")
    order = "F" if fortran else "C"
    try:
        return np.ndarray(shape, dtype, buffer=data, offset=stream.tell(), order=order).copy(order)
    except ValueError as error:  # a shape with a 0 in it, and more axes or longer ones than NumPy has
        raise StorageError(f"{what} is damaged: {error}.") from None
