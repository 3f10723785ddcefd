"""Random trees of Gaussian variables with one or two other factors: tried, refused cleanly, wrong, crashed, hung.

`tests/random_trees.py` makes them and has the right answers, which share nothing with the library. Of every structure
`--size` trees are drawn, which share a compiled program. A run that ends with another status than `converged` counts as
unanswered, and one that is `converged` with other means, variances or evidence as wrong.
"""

import argparse
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import cavity as cv

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from random_trees import random_tree

#: seconds after which a run hangs; compiling is most of what a run takes
HUNG = 300
#: what counts as right: means in standard deviations, relative variances, log evidence
RIGHT = 1e-6


class Hung(Exception):
    """A run has taken too long."""


@contextmanager
def alarm(seconds: int) -> Iterator[None]:
    """Raise `Hung` after so many seconds."""

    def ring(*_: Any) -> None:
        raise Hung

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outcome(structure: int, numbers: int, method: Any) -> tuple[str, str]:
    """What became of one tree, and a word on it."""
    tree = random_tree(structure, numbers)
    right = tree.answer()
    try:
        with alarm(HUNG):
            solution = cv.infer(tree.graph, method)
            found = tree.told(solution)
    except Hung:
        return "hung", ""
    except (TypeError, ValueError) as refusal:
        return "refused", str(refusal)
    except Exception as error:
        return "crashed", repr(error)
    if right is None:
        return "without an oracle", str(solution.status)
    gaps = (
        np.abs((found.mean - right.mean) / np.sqrt(right.variance)).max(),
        np.abs(found.variance / right.variance - 1).max(),
        abs(found.log_evidence - right.log_evidence),
    )
    said = f"{solution.status} after {solution.sweeps} sweeps, off by " + ", ".join(f"{gap:.1e}" for gap in gaps)
    if solution.status != "converged":
        return "unanswered", said
    return "right" if max(gaps) <= RIGHT else "wrong", said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="seed of the first structure")
    parser.add_argument("--structures", type=int, default=50)
    parser.add_argument("--size", type=int, default=40, help="trees of each structure")
    parser.add_argument("--method", choices=["EP", "Auto"], default="EP")
    options = parser.parse_args()
    method, counts = getattr(cv, options.method)(), Counter()
    for structure in range(options.first, options.first + options.structures):
        for numbers in range(options.size):
            kind, said = outcome(structure, numbers, method)
            counts[kind] += 1
            if kind != "right":
                print(f"structure {structure}, numbers {numbers}: {kind}: {said}", flush=True)
        print(f"{structure + 1 - options.first} structures: {dict(counts)}", flush=True)
    kinds = ("right", "unanswered", "refused", "without an oracle", "wrong", "crashed", "hung")
    print("| tried | " + " | ".join(kinds) + " |")
    print("|---" * (len(kinds) + 1) + "|")
    print(f"| {sum(counts.values())} | " + " | ".join(str(counts[kind]) for kind in kinds) + " |")


if __name__ == "__main__":
    main()
