"""Whether equal means equal, at random and with oracles of their own: tried, right, refused, wrong, crashed, hung.

    python benchmarks/fuzz_equal.py --minutes 10
    python benchmarks/fuzz_equal.py --minutes 1 --only rows --first 4711

`tests/equal_cases.py` has the trials: rows that are merged, labels of odd types, graphs that grow, variables of another
graph, matrices that are nearly symmetric, arguments in disguise. Every one may take two minutes, compiling included.
"""

import argparse
import collections
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from equal_cases import TRIALS

OUTCOMES = ("right", "refused", "wrong", "crashed", "hung")
SECONDS = 120


class Hung(BaseException):
    """A trial took too long."""


def ring(*_: Any) -> None:
    raise Hung


def outcome(trial: Any, rng: np.random.Generator) -> tuple[str, str]:
    """How a trial ends, and what there is to say of it."""
    signal.signal(signal.SIGALRM, ring)
    signal.alarm(SECONDS)
    try:
        return trial(rng), ""
    except AssertionError as error:
        return "wrong", str(error)
    except Hung:
        return "hung", ""
    except Exception as error:
        return "crashed", repr(error)
    finally:
        signal.alarm(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", default="", help="kinds of trials whose name has this word in it")
    parser.add_argument("--first", type=int, default=0, help="seed of the first trial")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    kinds = [name for name in TRIALS if options.only in name]
    print(f"| what | tried | {' | '.join(OUTCOMES)} |")
    print("|---" * (2 + len(OUTCOMES)) + "|")
    for name in kinds:
        end, seed, counts, rows = time.monotonic() + 60 * options.minutes / len(kinds), options.first, {}, []
        counts = collections.Counter()
        while time.monotonic() < end:
            found, said = outcome(TRIALS[name], np.random.default_rng([seed, len(name)]))
            counts[found] += 1
            if found in OUTCOMES[2:]:
                rows.append(f"  {found}, seed {seed}: {said[:300]}")
            seed += 1
        print(
            f"| {name} | {counts.total()} | {' | '.join(str(counts[own]) for own in OUTCOMES)} |",
            *rows[:10],
            sep="\n",
            flush=True,
        )


if __name__ == "__main__":
    main()
