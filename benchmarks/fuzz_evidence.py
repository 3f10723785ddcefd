"""Log evidence, means and variances against 60 digits on random models: tried, right, said so, refused, wrong.

Numbers are large, small and far from 0: features scaled 1e-10 to 1e10, noise down to 1e-10 of the signal, data up to
1e9 standard deviations from 0, weights and counts up to 1e9, Gamma shapes up to 1e11.

python benchmarks/fuzz_evidence.py [cases of each kind, 300 by default] [seed]
"""

import collections
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from evidence_cases import KINDS, outcome
from model_cases import MODELS


def main(cases: int = 300, seed: int = 0) -> None:
    """Print one row per kind, and every case that is wrong."""
    print("| kind | tried | right | said so | refused | wrong | largest error over what is allowed | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for number, kind in enumerate((*KINDS, *MODELS)):
        counts, worst, began, wrong = collections.Counter(), 0.0, time.perf_counter(), []
        for case in range(cases):
            found = outcome(kind, [seed, number, case])
            counts[found.verdict] += 1
            if found.verdict in ("right", "wrong"):
                worst = max(worst, found.error)
            if found.verdict == "wrong":
                wrong.append(found.note)
        row = " | ".join(str(counts[word]) for word in ("right", "said so", "refused", "wrong"))
        print(f"| {kind.__name__} | {cases} | {row} | {worst:.2g} | {time.perf_counter() - began:.0f} |", flush=True)
        for note in wrong:
            print("   ", note)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
