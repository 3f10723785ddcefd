"""Log evidence against 60 digits on random models with large, small and far numbers: tried, right, said so, wrong.

python benchmarks/fuzz_evidence.py [cases of each kind, 300 by default] [seed]
"""

import collections
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from evidence_cases import KINDS, allowed, verdict


def main(cases: int = 300, seed: int = 0) -> None:
    """Print one row per kind, and every case that is wrong."""
    print("| kind | tried | right | said so | wrong | raised | largest error over what is allowed | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for number, kind in enumerate(KINDS):
        counts, worst, began, wrong = collections.Counter(), 0.0, time.perf_counter(), []
        for case in range(cases):
            name, run, exact, factors = kind(np.random.default_rng([seed, number, case]))
            try:
                solution = run()
            except ValueError as error:
                counts["raised"] += 1
                wrong.append((case, str(error)))
                continue
            found = verdict(solution, exact, factors)
            counts[found] += 1
            if found == "wrong":
                wrong.append((case, float(solution.log_evidence), exact, str(solution.status)))
            if found != "said so":
                worst = max(worst, abs(float(solution.log_evidence) - exact) / allowed(exact, factors))
        row = " | ".join(str(counts[word]) for word in ("right", "said so", "wrong", "raised"))
        print(f"| {name} | {cases} | {row} | {worst:.2g} | {time.perf_counter() - began:.0f} |", flush=True)
        for case in wrong[:5]:
            print("   ", case)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
