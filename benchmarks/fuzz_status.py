"""Statuses of all methods on hard problems of all likelihoods, families and forms, recomputed by a referee.

`tests/hard_cases.py` makes the problems, `tests/recompute.py` and `tests/recompute_families.py` judge the sites that a
run returns, `tests/exact_evidence.py` knows the evidence of the small ones. Every second run is by the default method.
Where the evidence is known `check()` is asked too: it must not say that EP agrees where EP is off by more than 0.5.

Results go to a ledger, one JSON object a line; a second start goes on where the first was stopped. Problems come round
by round, one of every kind, so that every cell is met early. Times are those of the processor; a run that took long
enough to have compiled is made again.
"""

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import cavity as cv

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from hard_cases import KINDS
from status_verdict import METHODS, verdict_on

SEED = 21
#: seconds of the processor that a default run may take
LONG = 20.0
#: wall time after which a run is stopped
STOPPED = 120.0
#: EP's evidence is off when it differs by more than this from the exact one
OFF = 0.5
#: rounds in which `check` is run where the evidence is not known
CHECKED = 3


def method_of(round_: int, kind: int) -> str:
    """The default method every second time, the others in turn: another one for every kind."""
    others = [name for name in METHODS if name != "Auto"]
    return "Auto" if (round_ + kind) % 2 == 0 else others[(round_ // 2 + kind) % len(others)]


def timed(problem: Any, method: Any) -> tuple[cv.Solution, float]:
    """A run and its seconds of the processor."""
    began = time.process_time()
    found = cv.infer(problem, method, max_seconds=STOPPED)
    return found, time.process_time() - began


def measure(kind: str, round_: int, method: str) -> dict[str, Any]:
    """One line of the ledger."""
    small = round_ % 4 < 2
    case = KINDS[kind](np.random.default_rng([SEED, list(KINDS).index(kind), round_]), small)
    line: dict[str, Any] = {"kind": kind, "round": round_, "method": method, "small": small}
    try:
        solution, seconds = timed(case.problem, METHODS[method])
        if seconds > LONG:
            solution, seconds = timed(case.problem, METHODS[method])
    except (TypeError, ValueError) as refusal:
        return line | {"status": "refused", "why": str(refusal)}
    said = verdict_on(case, solution)
    line |= {
        "status": str(solution.status),
        "converged": bool(solution.converged),
        "answered": str(solution.method),
        "sweeps": int(solution.sweeps),
        "seconds": seconds,
        "mismatch": float(solution.mismatch),
        "recomputed": said.mismatch,
        "log_evidence": float(solution.log_evidence),
        "faults": list(said.faults),
    }
    exact = case.exact() if solution.converged else None
    if exact is not None or round_ < CHECKED:
        try:
            check = solution.check()
        except Exception as error:
            return line | {"exact": exact, "check": f"failed: {error!r}"}
        line |= {"exact": exact, "check": check.verdict, "estimate": check.log_evidence}
    return line


def missed(line: dict[str, Any]) -> bool:
    """Whether the check says that EP agrees, and it does not."""
    off = line.get("exact") is not None and abs(line["log_evidence"] - line["exact"]) > OFF
    return off and line.get("check") == cv.inference.check.AGREES


COLUMNS = [
    "tried",
    "refused",
    "converged",
    "other",
    "false",
    "untrue",
    "evidence",
    "NaN",
    "slow",
    "off",
    "missed",
    "inconclusive",
    "failed",
]


def tally(lines: list[dict[str, Any]]) -> list[int]:
    """The numbers of one row of the table."""

    def having(word: str) -> int:
        return sum(any(word in fault for fault in line.get("faults", ())) for line in lines)

    run = [line for line in lines if line["status"] != "refused"]
    off = [line for line in run if line.get("exact") is not None and abs(line["log_evidence"] - line["exact"]) > OFF]
    return [
        len(lines),
        len(lines) - len(run),
        sum(line["converged"] for line in run),
        sum(not line["converged"] for line in run),
        having("false"),
        having("untrue"),
        having("evidence"),
        having("NaN"),
        sum(line["method"] == "Auto" and line["seconds"] > LONG for line in run),
        len(off),
        sum(map(missed, off)),
        sum(line.get("check") == cv.inference.check.INCONCLUSIVE for line in off),
        sum(str(line.get("check")).startswith("failed") for line in run),
    ]


def table(lines: list[dict[str, Any]]) -> list[str]:
    """One row per kind, one per method, one for all."""
    rows = ["| cell | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    cells = [(kind, [line for line in lines if line["kind"] == kind]) for kind in KINDS]
    cells += [(f"**{name}**", [line for line in lines if line["method"] == name]) for name in METHODS]
    return rows + [f"| {name} | {' | '.join(map(str, tally(own)))} |" for name, own in [*cells, ("**all**", lines)]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=65, help="problems of every kind")
    parser.add_argument("--ledger", type=Path, default=Path("build/status.jsonl"))
    parser.add_argument("--kinds", nargs="*", help="only these, by the names of the table")
    parser.add_argument("--table", action="store_true", help="print the table of what there is, and end")
    options = parser.parse_args()
    options.ledger.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.loads(own) for own in options.ledger.read_text().splitlines()] if options.ledger.exists() else []
    done = {(line["kind"], line["round"]) for line in lines}
    rounds = range(0 if options.table else options.rounds)
    with options.ledger.open("a") as file:
        for round_ in rounds:
            for number, kind in enumerate(KINDS):
                if (kind, round_) in done or (options.kinds and kind not in options.kinds):
                    continue
                line = measure(kind, round_, method_of(round_, number))
                lines.append(line)
                file.write(json.dumps(line) + "\n")
                file.flush()
                if line.get("faults") or missed(line) or str(line.get("check")).startswith("failed"):
                    print(line, flush=True)
            print(f"{round_ + 1} rounds, {len(lines)} problems, {time.process_time():.0f} s", flush=True)
    print("\n".join(table(lines)))
    statuses = Counter(line["status"] for line in lines)
    print(", ".join(f"{count} {status}" for status, count in statuses.most_common()))


if __name__ == "__main__":
    main()
