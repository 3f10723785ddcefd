"""What the tests of the command line share: a small labelled file, and a way to call the command."""

import csv

import jax
import numpy as np
from typer.testing import CliRunner

from cavity._cli import app

#: what keeps a fit short: nothing is searched for
QUICK = ("--no-optimize", "--label-noise", "0.1")
WRONG = 3


def call(*arguments):
    """The result of `cavity ...`, in single precision as users have it."""
    with jax.enable_x64(False):
        return CliRunner().invoke(app, [str(argument) for argument in arguments])


def measurements():
    """(a, b, colour, label) of 30 rows; the label of row `WRONG` is flipped."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=30), rng.normal(100.0, 30.0, size=30)
    colour = np.array(["red", "green", "blue"])[rng.integers(0, 3, 30)]
    positive = a + 0.02 * (b - 100.0) > 0
    positive[WRONG] = ~positive[WRONG]
    return a, b, colour, np.where(positive, "yes", "no")


def write_csv(path, columns, rows, separator=","):
    """A file with a row of names."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerow(columns)
        writer.writerows(rows)
    return path


def read_csv(path):
    """The rows of a file as dictionaries."""
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def labelled_file(path):
    """The small file, numbers with all their digits."""
    a, b, colour, label = measurements()
    return write_csv(path, ["a", "b", "colour", "y"], zip(a.tolist(), b.tolist(), colour, label, strict=True))
