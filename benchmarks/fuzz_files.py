"""Damaged files by the thousand: how many of each format were read rightly, refused in a sentence, or worse.

    python benchmarks/fuzz_files.py                      10,000 of each format
    python benchmarks/fuzz_files.py 1000 --only model    1,000 of the formats whose name has this word in it
    python benchmarks/fuzz_files.py 1 --first 4711 --only .uai      one file again

A file may take 10 seconds, or a minute where it makes other programs, which are compiled. Prints a table as it goes,
and an example of every bad end.
"""

import argparse
import sys
import tempfile
import time
import warnings
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from damaged_files import OUTCOMES, formats, tried


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=10_000)
    parser.add_argument("--only", default="")
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| format | tried | " + " | ".join(OUTCOMES) + " | seconds |")
    print("|---" * (3 + len(OUTCOMES)) + "|")
    examples = []
    with tempfile.TemporaryDirectory() as folder:
        for name, form in formats(Path(folder)).items():
            if options.only not in name:
                continue
            began = time.perf_counter()
            tally = tried(form, Path(folder), options.count, options.first)
            counts = " | ".join(f"{tally.counts[end]:,}" for end in OUTCOMES)
            seconds = time.perf_counter() - began
            print(f"| {name} | {options.count:,} | {counts} | {seconds:.0f} |", flush=True)
            examples += [f"{name}, seed {seed}, {end}: {said}" for end, (seed, said) in tally.examples.items()]
    print("\n".join(examples))


if __name__ == "__main__":
    main()
