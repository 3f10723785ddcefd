"""The file format: a .npz file (a zip of .npy members), one member of which is a header in JSON.

The header, UTF-8 text stored as an array of bytes under the name `__cavity__`, is

    {"format": "cavity", "version": 1, "kind": ..., "library": ..., "arrays": [names], "header": {...}}

Plain `numpy.load` opens the file too. Nothing in it is ever executed: no pickles, no object arrays, no names that are
looked up. A file is written completely or not at all; one that is read may be broken, foreign or hostile, and gives
its content or one sentence. Reading takes memory in proportion to the file: it may unpack to `SMALL` bytes or, if that
is more, to `EXPANSION` times its size, and what would unpack to more is written without packing.
"""

import io
import json
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np

from cavity._storage.writing import whole_file
from cavity._version import __version__

#: the value of "format" in every header.
FORMAT = "cavity"
#: the version that is written.
VERSION = 1
#: the versions that are read.
READABLE = (1,)
#: the member that holds the header.
HEADER = "__cavity__"
#: kinds of NumPy arrays that are stored: booleans, numbers, bytes and text of fixed width.
ARRAY_KINDS = "biufcSU"
#: a file may unpack to this many bytes, or to this many times its own size, whichever is more
SMALL, EXPANSION = 2**28, 64
#: characters of a reason for refusing a file
LONGEST = 200
#: a byte of JSON becomes at most about 25 of Python's objects: the header counts so many times
HEADER_WEIGHT = 32
#: how deep the lists and dictionaries of a header may be nested: what rebuilds a kernel recurses through them
MOST_NESTED = 200


class StorageError(ValueError):
    """A file cannot be read or written as asked; the message names it and says why."""


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
    try:
        with whole_file(target) as file:
            write_members(file, members)
    except OSError as error:
        raise StorageError(f"{target} cannot be written: {error.strerror or error}.") from error


def write_members(file: BinaryIO, members: Mapping[str, np.ndarray]) -> None:
    """The .npz file itself; `numpy.savez` would keep some names for its own arguments."""
    total = unpacked_cost({name: array.nbytes for name, array in members.items()})
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in members.items():
            entry = zipfile.ZipInfo(f"{name}.npy")  # dated 1980, so that equal contents give equal files
            entry.compress_type = zipfile.ZIP_DEFLATED if total < SMALL // 2 else zipfile.ZIP_STORED
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
    if is_nested_too_deep({"header": plain}):
        raise StorageError(f"header must not be nested more than {MOST_NESTED} deep, as kernels of many terms are.")
    if not same:
        raise StorageError("header must hold what JSON can say: lists, not tuples, and dictionaries with text as keys.")
    return plain


def is_nested_too_deep(content: Any) -> bool:
    """Whether lists and dictionaries are nested more than `MOST_NESTED` deep."""
    level = [content]
    for _ in range(MOST_NESTED + 1):
        held = (own.values() if isinstance(own, dict) else own for own in level if isinstance(own, dict | list))
        level = [item for items in held for item in items]
    return bool(level)


def unpacked_cost(sizes: Mapping[str, int]) -> int:
    """Bytes that members of these sizes take when they are read."""
    return sum(sizes.values()) + (HEADER_WEIGHT - 1) * sizes.get(HEADER, 0)


#: no stream of deflate expands by more than 1032; a member that claims more is not what it says.
DEFLATE_LIMIT = 1040
#: what zipfile, zlib and the reader of array headers raise on damaged bytes.
DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, RuntimeError, ValueError, OverflowError, KeyError)


def load(
    path: str | os.PathLike[str], max_bytes: int | None = None
) -> tuple[str, dict[str, Any], dict[str, np.ndarray]]:
    """Kind, header and arrays of a file that `save` wrote.

    Sizes are checked before memory is used for them, members against their checksums before they are interpreted.

    Args:
        path: of the file.
        max_bytes: refuse a file that unpacks to more than this; None: to more than 256 MiB and 64 times its size.
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
    # Each is let go as it is read, so that the file is not in memory twice.
    return (
        kind,
        header,
        {name: read_array(members.pop(name), f"{source}: array {name!r}") for name in dict.fromkeys(names)},
    )


def read_members(file: Any, source: Path, max_bytes: int | None) -> dict[str, bytes]:
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
            names = [entry.filename.removesuffix(".npy") for entry in entries]
            if len(set(names)) != len(names):
                raise StorageError(f"{source} is damaged: it holds two members of one name.")
            cost = unpacked_cost({name: entry.file_size for name, entry in zip(names, entries, strict=True)})
            limit = max(SMALL, EXPANSION * file.seek(0, os.SEEK_END)) if max_bytes is None else max_bytes
            if cost > limit:
                raise StorageError(f"{source} takes {cost} bytes when unpacked, above the limit max_bytes={limit}.")
            return {name: read_member(archive, entry) for name, entry in zip(names, entries, strict=True)}
    except StorageError:
        raise
    except (*DAMAGE, OSError) as error:  # a damaged offset may lead outside the file
        raise StorageError(f"{source} is damaged or unreadable: {reason(error)}.") from None


def reason(error: Exception) -> str:
    """What an exception says, in one line that is not long: damaged bytes may be quoted in it."""
    said = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return said if len(said) <= LONGEST else f"{said[:LONGEST]}…"


def read_member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """The bytes of a member, never more than it declares: read to its end, it would be unpacked whole before that."""
    with archive.open(entry) as member:
        return member.read(entry.file_size)


def read_header(data: bytes, source: Path) -> tuple[str, dict[str, Any], list[str]]:
    """Kind, header and names of arrays, if the format and version are known."""
    array = read_array(data, f"{source}: header")
    try:
        content = json.loads(array.tobytes().decode(), parse_constant=refuse_constant, parse_float=finite)
    except (ValueError, RecursionError):
        raise StorageError(f"{source} is damaged: its header is not JSON.") from None
    if is_nested_too_deep(content):
        raise StorageError(f"{source} is damaged: its header is nested more than {MOST_NESTED} deep.")
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


def refuse_constant(name: str) -> NoReturn:
    """Python reads NaN and Infinity, which are not JSON and which `save` does not write."""
    raise ValueError(name)


def finite(text: str) -> float:
    """Python reads 1e999 as infinite."""
    found = float(text)
    return found if math.isfinite(found) else refuse_constant(text)


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
        found = np.ndarray(shape, dtype, buffer=data, offset=stream.tell(), order=order).copy(order)
    except ValueError as error:  # a shape with a 0 in it, and more axes or longer ones than NumPy has
        raise StorageError(f"{what} is damaged: {error}.") from None
    if dtype.kind in "Ub" and found.size and not are_valid(np.frombuffer(data, np.uint8, offset=stream.tell()), dtype):
        raise StorageError(
            f"{what} is damaged: it holds bits that are no {'text' if dtype.kind == 'U' else 'booleans'}."
        )
    return found


def are_valid(data: np.ndarray, dtype: np.dtype[Any]) -> bool:
    """Whether bytes are characters, or truth values, as they must be for such an array: not every pattern is one."""
    if dtype.kind == "b":
        return bool((data <= 1).all())
    codes = data.view(np.dtype(np.uint32).newbyteorder(dtype.byteorder))
    return bool(((codes < 0xD800) | (codes > 0xDFFF) & (codes <= 0x10FFFF)).all())
