"""Compiled programs in files, so that no process has to compile what another has.

They lie in a folder of the user's cache, or in the one that `CAVITY_CACHE` names; `CAVITY_CACHE=off` keeps nothing. A
compiled program is code that will be run, so the folder must belong to this user (or to root) and nobody else may be
able to write to it, and the same is asked of every file that is read. Every machine, version of Python's packages and
version of the library has a folder of its own inside. A file begins with a digest of its name and contents: what is
damaged, cut short or of other origin is deleted and compiled anew. Files are written under another name and renamed, so
processes side by side see whole ones.

Nothing here raises or warns, but for one warning about a folder that cannot be trusted.
"""

import contextlib
import hashlib
import math
import operator
import os
import platform
import stat
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import jaxlib
from platformdirs import user_cache_path

from cavity._version import __version__

#: where programs are kept, or "off"
VARIABLE = "CAVITY_CACHE"
#: bytes of all files together; beyond, those used least recently are deleted until a share is left
LARGEST, KEPT_SHARE = 10**9, 0.75
#: bytes written by a process between two looks at the size of the folder
BETWEEN_LOOKS = LARGEST // 16
#: seconds after which what nobody uses is deleted: programs of other versions, and files left behind half-written
OLD, ABANDONED = 30 * 86400.0, 3600.0
PROGRAM, PARTIAL = ".program", ".partial"
#: bytes of the digest that a file begins with
DIGEST = 32
#: what names the kind of processor in Linux's list, on x86 and on ARM; the rest of it changes or does not matter
PROCESSOR = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags", "Features", "CPU ")


class KeptFile(NamedTuple):
    """A file with a program, or a part of one. used: when it was last read or written, in seconds."""

    path: Path
    size: int
    used: float


class ProgramFolder:
    """Programs by their keys, as JAX's compilation cache asks for them.

    Args:
        root: the folder of all machines and versions, which has been checked.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / version_and_machine()
        #: bytes written since the size was looked at; None before the first program is written
        self.written: int | None = None
        self.writable = True

    def get(self, key: str) -> bytes | None:
        """The program of this key, if there is a whole one that can be trusted."""
        path = self.path / f"{key}{PROGRAM}"
        try:
            with open(path, "rb", opener=open_no_link) as file:
                found = file.read() if is_ours_alone(os.fstat(file.fileno())) else b""
        except OSError:
            return None
        content, whole = found[DIGEST:], found[:DIGEST] == digest(key, found[DIGEST:])
        with contextlib.suppress(OSError):  # where nothing may be written, what is there can be used all the same
            if whole:
                os.utime(path)
            else:
                path.unlink()
        return content if whole else None

    def put(self, key: str, program: bytes) -> None:
        """Keep a program; where that fails, as on a full disk, this process keeps none from then on."""
        if not self.writable:
            return
        try:
            self._write(key, digest(key, program) + program)
        except OSError:
            self.writable = False

    def _write(self, key: str, content: bytes) -> None:
        """The file as a whole or not at all; others are deleted first where there are too many."""
        self.path.mkdir(mode=0o700, exist_ok=True)
        if self.written is None or self.written > BETWEEN_LOOKS:
            delete_old(self.root, self.path)
            self.written = 0
        handle, partial = tempfile.mkstemp(suffix=PARTIAL, dir=self.path)  # which nobody else can read
        try:
            with open(handle, "wb") as file:
                file.write(content)
            os.replace(partial, self.path / f"{key}{PROGRAM}")
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(partial)
            raise
        self.written += len(content)


def digest(key: str, program: bytes) -> bytes:
    """What tells a whole file of this name from anything else; no secret, so no proof of who wrote it."""
    found = hashlib.blake2b(f"{key}\n".encode(), digest_size=DIGEST)
    found.update(program)
    return found.digest()


def open_no_link(path: str, flags: int) -> int:
    """As `open` does it, but a link is an error."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0))


def version_and_machine() -> str:
    """The folder of programs that this process may run: another processor may not know their instructions."""
    lines = [platform.machine(), platform.processor()]
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in map(str.strip, file):
                if not line:
                    break  # the next processor
                lines += [line] * line.startswith(PROCESSOR)
    except OSError:
        lines.append(platform.version())  # macOS names the chip in it
    machine = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]
    return f"cavity-{__version__}-jax-{jax.__version__}-jaxlib-{jaxlib.__version__}-{platform.machine()}-{machine}"


def chosen_root() -> Path | None:
    """Where programs are kept; None if nowhere."""
    named = os.environ.get(VARIABLE)
    if not named:
        return user_cache_path("cavity", appauthor=False)
    return None if named == "off" else Path(named).expanduser()


def open_folder() -> ProgramFolder | None:
    """The folder, made if it is not there; None where nothing is kept, with a warning where it cannot be trusted."""
    root = chosen_root()
    if root is None:
        return None
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = os.lstat(root)
    except OSError:
        return None
    if not stat.S_ISDIR(found.st_mode) or not is_ours_alone(found):
        warnings.warn(
            f"compiled programs are not kept in {root}: it must be a folder, not a link, of this user's, and nobody "
            f"else may write to it. Run `chmod go-w` on it, or name another folder by {VARIABLE} (or off).",
            stacklevel=2,
        )
        return None
    return ProgramFolder(root)


def is_ours_alone(found: os.stat_result) -> bool:
    """Whether this user, or root, owns it and nobody else may write to it. Windows gives everybody a place apart."""
    if not hasattr(os, "geteuid"):
        return True
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def kept_files(root: Path) -> Iterator[KeptFile]:
    """All files of the folder and of those in it, programs and parts of them; nothing else is ever deleted."""
    for folder in folders(root):
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.endswith((PROGRAM, PARTIAL)):
                        with contextlib.suppress(OSError):  # deleted in between
                            found = entry.stat(follow_symlinks=False)
                            yield KeptFile(Path(entry.path), found.st_size, found.st_mtime)
        except OSError:
            continue


def folders(root: Path) -> list[Path]:
    """The folders of machines and versions."""
    try:
        return [path for path in root.glob("cavity-*-jax-*") if path.is_dir() and not path.is_symlink()]
    except OSError:
        return []


def delete_old(root: Path, own: Path) -> None:
    """Keep the folder within its bound: first what nobody will ask for again, then what was used least recently."""
    now, files = time.time(), sorted(kept_files(root), key=operator.attrgetter("used"))
    size = sum(map(operator.attrgetter("size"), files))
    excess = size - KEPT_SHARE * LARGEST if size > LARGEST else 0.0
    for file in files:
        bound = ABANDONED if file.path.suffix == PARTIAL else OLD if file.path.parent != own else math.inf
        if now - file.used > bound or excess > 0:
            delete([file])
            excess -= file.size
    remove_empty(set(folders(root)) - {own})


def delete(files: list[KeptFile]) -> None:
    """Delete files; what others have deleted, or may not be deleted, is passed over."""
    for file in files:
        with contextlib.suppress(OSError):
            file.path.unlink()


def remove_empty(those: set[Path]) -> None:
    """Remove these folders where nothing is left in them."""
    for folder in those:
        with contextlib.suppress(OSError):
            folder.rmdir()


def clear(root: Path) -> None:
    """Delete all programs of all versions."""
    delete(list(kept_files(root)))
    remove_empty(set(folders(root)))
