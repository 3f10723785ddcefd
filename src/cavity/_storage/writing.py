"""Files that appear under their names when they are complete, and that replace nothing but files."""

import contextlib
import errno
import os
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which appears under its name, or replaces what is there, when the block is complete.

    Symbolic links are followed: the file they lead to is written, the links stay. A file that is replaced hands on its
    mode and, where the system allows it, its owner. Folders, devices, pipes and sockets are refused.
    """
    part, old = None, None
    try:
        target = Path(os.path.realpath(path))
        with contextlib.suppress(FileNotFoundError):
            old = target.stat()
        if old is not None and not stat.S_ISREG(old.st_mode):
            what = "it is a folder" if stat.S_ISDIR(old.st_mode) else "it is not a regular file"
            raise OSError(errno.EINVAL, what)
        part = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
        mode = 0o666 if old is None else stat.S_IMODE(old.st_mode)
        # Created with no more rights than it will have: a private file is private from its first byte.
        with open(part, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            if old is not None:
                with contextlib.suppress(OSError, AttributeError):
                    os.chown(part, old.st_uid, old.st_gid)
                os.chmod(part, mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    except BaseException as error:
        if part is not None:
            with contextlib.suppress(OSError):
                part.unlink()
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def write_whole(path: Path, content: str | bytes) -> None:
    """Bytes, or text in UTF-8, to exactly this path: the file appears, or is replaced, when it is complete."""
    with whole_file(path) as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)
