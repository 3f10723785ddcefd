"""How a command ends when something is wrong: one sentence on standard error and an exit code, no traceback."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.text import Text

#: exit codes: a user's mistake, and an interruption from the keyboard
MISTAKE, STOPPED = 2, 130
#: characters of a sentence
LONGEST = 500


class Stop(BaseException):
    """Ctrl-C. Not a KeyboardInterrupt: a run of EP keeps those for itself and hands back its last sweep."""


def fail(sentence: str, code: int = MISTAKE) -> NoReturn:
    """One sentence on standard error, and the exit code of a user's mistake."""
    Console(stderr=True).print(Text(printable(sentence)), soft_wrap=True)
    raise typer.Exit(code)


def printable(text: str) -> str:
    """Text of a user's file without the characters that would steer the terminal."""
    return "".join(mark if mark.isprintable() else f"\\x{ord(mark):02x}" for mark in text)


def one_sentence(error: Exception) -> str:
    """What an error says, in one line; where a cell or a name in it is very long, without the middle."""
    said = " ".join(str(error).split())
    return said if len(said) <= LONGEST else f"{said[: LONGEST - 100]} … {said[-99:]}"


@contextmanager
def in_a_sentence(
    stopped: str = "Stopped; nothing was written.",
    too_large: str = "There is not enough memory for so many rows; --kernel linear needs far less.",
) -> Iterator[None]:
    """Mistakes named inside the block, files that cannot be used and Ctrl-C end the command with a sentence.

    stopped: what is said after Ctrl-C. too_large: where memory does not suffice.
    """

    def stop(number: int, frame: Any) -> None:
        raise Stop

    listening = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, stop) if listening else None
    try:
        yield
    except (Stop, KeyboardInterrupt):
        fail(stopped, STOPPED)
    except ValueError as error:
        fail(one_sentence(error))
    except OSError as error:
        place = f"{error.filename}: " if error.filename is not None else ""
        fail(f"{place}{error.strerror or error}.")
    except (MemoryError, RuntimeError) as error:  # JAX says it by a RuntimeError; to name its own would import it
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        fail(too_large)
    finally:
        if listening:
            signal.signal(signal.SIGINT, before)


def check_target(option: str, path: Path, overwrite: bool, *others: Path) -> None:
    """Whether a file can be written there, found out before the work.

    others: files the command reads or writes as well; none of them may be the same.
    """
    if any(path.resolve() == other.resolve() for other in others):  # links followed
        raise ValueError(f"{option} must not name a file the command reads or writes already; found {path}.")
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        what = "a folder" if target.is_dir() else "a device, a pipe or a socket"
        raise ValueError(f"{option} must name a file; {path} is {what}.")
    if not target.parent.is_dir():
        raise ValueError(f"{option} must name a file in a folder that exists; found {path}.")
    if not os.access(target.parent, os.W_OK):
        raise ValueError(f"{option} must name a file in a folder that can be written to; found {path}.")
    if os.path.lexists(path) and not overwrite:  # a link that leads nowhere as well
        raise ValueError(f"{option}: {path} exists already; name another file or add --overwrite.")
