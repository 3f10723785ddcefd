"""Which method answers hard problems: converged, at a true EP fixed point, sweeps, seconds, and claims that are false.

Every result is put to the referee of `recompute.py`, which sees the sites and nothing else of the run. Results go to a
ledger, one JSON object a line; a second start goes on where the first was stopped. `--share 0.1` takes a tenth of every
cell. Times are warm: a method meets every shape once before it is timed, and one that may call upon others the problem
itself, unless that took so long that a second run would say the same.
"""

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from hard_problems import CELLS, Cell, hard_problems

import cavity as cv

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from recompute import mismatch

#: a state is a fixed point of EP when its recomputed mismatch is at most this
FIXED_POINT = 1e-6

#: a first run of this many seconds counts, although it may have compiled
LONG = 20.0

#: runs of EP and of Auto that are timed in turn
TURNS = 3


def methods() -> dict[str, Any]:
    """Name → method."""
    return {
        "EP": cv.EP(max_sweeps=200),
        "EP, damping 0.5": cv.EP(damping=0.5, max_sweeps=200),
        "PowerEP(0.5)": cv.PowerEP(0.5),
        "RestrictedEP": cv.RestrictedEP(),
        "RelaxedEP(10)": cv.RelaxedEP(10.0),
        "ConvergentEP": cv.ConvergentEP(),
        "Auto": cv.Auto(),
    }


def measure(problem: cv.Problem, name: str, method: Any, warm: set[tuple[str, ...]], cell: Cell) -> dict[str, Any]:
    """One line of the ledger, without the problem's name."""
    shape = (name, cell.kind, str(problem.groups[0].size))
    found, seconds = timed(problem, method)
    if seconds < LONG and (shape not in warm or not isinstance(method, cv.Method)):
        found, seconds = timed(problem, method)
    warm.add(shape)
    own = own_mismatch(problem, found)
    return {
        "method": name,
        "kind": cell.kind,
        "cell": cell.name,
        "status": str(found.status),
        "converged": bool(found.converged),
        "sweeps": int(found.sweeps),
        "seconds": seconds,
        "mismatch": float(found.mismatch),
        "ep_mismatch": mismatch(problem, found.sites[0]),
        "own_mismatch": own,
        "log_evidence": float(found.log_evidence),
        "false_claim": bool(found.converged) and not own <= FIXED_POINT,
    }


def timed(problem: cv.Problem, method: Any) -> tuple[cv.Solution, float]:
    """A run and its seconds."""
    began = time.perf_counter()
    found = cv.infer(problem, method)
    return found, time.perf_counter() - began


def own_mismatch(problem: cv.Problem, found: cv.Solution) -> float:
    """The recomputed mismatch of the fixed point that the status claims."""
    return mismatch(
        problem,
        found.sites[0],
        power=found.power,
        restricted=found.status == "converged_restricted",
        strengths=found.strengths[0] if found.status == "converged_relaxed" else None,
    )


def cost_ratio(problem: cv.Problem, first: Any, second: Any) -> float:
    """Median seconds of `second`, which is warm, over those of `first`, run in turn."""
    cv.infer(problem, first)  # compiled, should this be a run that was taken up again
    times = np.zeros((TURNS, 2))
    for turn in range(TURNS):
        for number, method in enumerate((first, second)):
            began = time.perf_counter()
            cv.infer(problem, method)
            times[turn, number] = time.perf_counter() - began
    median = np.median(times, axis=0)
    return float(median[1] / median[0])


def run(share: float, ledger: Path, wanted: dict[str, Any]) -> list[dict[str, Any]]:
    """All lines there are, after adding those that are missing."""
    lines = [json.loads(line) for line in ledger.read_text().splitlines()] if ledger.exists() else []
    done = {(line["problem"], line["method"]): line for line in lines}
    total, warm, began = sum(round(share * cell.count) for cell in CELLS), set(), time.perf_counter()
    with ledger.open("a") as file:
        for number, (problem_name, cell, problem) in enumerate(hard_problems(share), 1):
            for name, method in wanted.items():
                if (problem_name, name) in done:
                    continue
                line = {"problem": problem_name} | measure(problem, name, method, warm, cell)
                if name == "Auto" and done.get((problem_name, "EP"), {}).get("converged"):
                    line["cost_ratio"] = cost_ratio(problem, methods()["EP"], method)
                done[problem_name, name] = line
                file.write(json.dumps(line) + "\n")
                file.flush()
            if number % 10 == 0 or number == total:
                print(f"{number} of {total} problems, {time.perf_counter() - began:.0f} s", flush=True)
    return list(done.values())


def table(lines: list[dict[str, Any]], wanted: dict[str, Any]) -> list[str]:
    """The table, one row a method and kind."""
    rows = [
        "| method | problems | converged | EP fixed point | median sweeps | median s | worst s | other statuses |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in wanted:
        for kind in (*dict.fromkeys(cell.kind for cell in CELLS), "all"):
            own = [line for line in lines if line["method"] == name and kind in (line["kind"], "all")]
            if not own:
                continue
            seconds = [line["seconds"] for line in own]
            done = [line for line in own if line["converged"]]
            others = Counter(line["status"] for line in own if line["status"] != "converged")
            cells = [
                name,
                f"{len(own)} {kind}",
                f"{len(done) / len(own):.3f}",
                f"{np.mean([line['ep_mismatch'] <= FIXED_POINT for line in own]):.3f}",
                f"{np.median([line['sweeps'] for line in done]):.0f}" if done else "–",
                f"{np.median(seconds):.4f}",
                f"{np.max(seconds):.2f}",
                ", ".join(f"{count} {status}" for status, count in others.most_common()) or "–",
            ]
            rows.append(f"| {' | '.join(cells)} |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="share of every cell, in (0, 1]")
    parser.add_argument("--ledger", type=Path, default=Path("build/hard.jsonl"))
    parser.add_argument("--methods", nargs="*", help="only these, by the names of the table")
    options = parser.parse_args()
    options.ledger.parent.mkdir(parents=True, exist_ok=True)
    wanted = {name: method for name, method in methods().items() if not options.methods or name in options.methods}
    lines = run(options.share, options.ledger, wanted)
    print("\n".join(table(lines, wanted)))
    false = [line for line in lines if line["false_claim"]]
    print(f"False claims of convergence: {len(false)}")
    for line in false:
        print(f"  {line['method']} on {line['problem']}: {line['status']}, recomputed {line['own_mismatch']:.1e}")
    if ratios := [line["cost_ratio"] for line in lines if "cost_ratio" in line]:
        print(
            f"Auto / EP where EP converges: median {np.median(ratios):.2f}, worst {np.max(ratios):.1f} times its time"
        )


if __name__ == "__main__":
    main()
