"""`cavity cache`: where compiled programs are kept, how many there are, and how to be rid of them."""

import os
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.text import Text

from cavity._cli.errors import fail, in_a_sentence
from cavity._core.kept_programs import LARGEST, PROGRAM, VARIABLE, chosen_root, clear, kept_files, version_and_machine
from cavity.reports import Table, show

#: by which JAX's users name a folder themselves
OF_JAX = "JAX_COMPILATION_CACHE_DIR"


class Contents(NamedTuple):
    """What a folder holds: programs, and bytes."""

    programs: int
    size: int


def cache_command(
    clear_all: Annotated[bool, typer.Option("--clear", help="Delete all programs that are kept.")] = False,
) -> None:
    """Show where compiled programs are kept, how many there are and how much space they take.

    With --clear they are deleted, those of other versions and machines too; what is needed is compiled anew.
    """
    console = Console()
    with in_a_sentence("Stopped."):
        root = folder_in_use()
        if clear_all:
            before = contents(root)
            clear(root)
            left = contents(root)
            if left.programs:
                fail(f"{left.programs} programs in {root} could not be deleted.")
            console.print(Text(f"deleted: {before.programs} programs, {megabytes(before.size)}"), soft_wrap=True)
            return
        own, everything = contents(root, version_and_machine()), contents(root)
        rows = [
            ("programs", everything.programs),
            ("of this version and machine", own.programs),
            ("size", f"{megabytes(everything.size)}, at most {megabytes(LARGEST)}"),
        ]
        show(Table("Compiled programs", ("what", "value"), rows), console)
        console.print(Text(f"folder: {root}"), soft_wrap=True)


def folder_in_use() -> Path:
    """The folder of the library's programs; a sentence where there is none."""
    root = chosen_root()
    if root is None:
        fail(f"No programs are kept: {VARIABLE} is off.")
    if os.environ.get(OF_JAX):
        fail(f"{OF_JAX} is set: all programs are kept there, by JAX itself, and not in {root}.")
    return root


def contents(root: Path, name: str | None = None) -> Contents:
    """The programs of all versions and machines, or of the one of this name."""
    files = [file for file in kept_files(root) if file.path.suffix == PROGRAM and name in (None, file.path.parent.name)]
    return Contents(len(files), sum(file.size for file in files))


def megabytes(size: int) -> str:
    """Bytes in words."""
    return f"{size / 1e6:.1f} MB"
