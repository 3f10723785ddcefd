"""What an experiment is: a claim of a document, independent pieces of work, and what follows from their results."""

import dataclasses
import importlib.metadata
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from cavity.reports import Figure, Table

Size = Literal["tiny", "quick", "full"]
Verdict = Literal["holds", "holds in part", "does not hold", "illustration"]
VERDICTS: tuple[Verdict, ...] = ("holds", "holds in part", "does not hold", "illustration")

#: XLA_FLAGS of processes that compile more than they run; later versions have no fusion emitters to switch off
QUICK_CODE = "--xla_backend_optimization_level=0 --xla_cpu_multi_thread_eigen=false"
if tuple(map(int, importlib.metadata.version("jaxlib").split(".")[:2])) < (0, 11):
    QUICK_CODE += " --xla_cpu_use_fusion_emitters=false"


@dataclasses.dataclass(frozen=True)
class Config:
    """size: "full" supports a verdict; "quick" shows that it runs; "tiny" is for tests. seed: of all data."""

    size: Size = "full"
    seed: int = 0

    def pick(self, full: int, quick: int, tiny: int) -> int:
        """The number that belongs to the size."""
        return {"full": full, "quick": quick, "tiny": tiny}[self.size]


@dataclasses.dataclass(frozen=True)
class Unit:
    """A piece of work that needs no other. options: what `run_unit` is told, JSON-able."""

    name: str
    seed: int
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What the results say. numbers: JSON-able, by name. sentence: the verdict in words."""

    tables: tuple[Table, ...]
    numbers: Mapping[str, Any]
    verdict: Verdict
    sentence: str


Results = Mapping[str, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One figure or table of a document.

    claim: what the document says, in our words. `units` lists the work, `run_unit` does one piece and returns a
    JSON-able dict, `summarise` and `draw` read the results of all, by the name of their unit.
    """

    name: str
    document: str
    title: str
    claim: str
    units: Callable[[Config], list[Unit]]
    run_unit: Callable[[Unit, Config], Mapping[str, Any]]
    summarise: Callable[[Results, Config], Outcome]
    draw: Callable[[Results, Outcome, Config], Figure]


def make_unit(config: Config, number: int, name: str, **options: Any) -> Unit:
    """A unit with a seed of its own, which follows from the run's seed and the unit's number."""
    return Unit(name, int(np.random.SeedSequence([config.seed, number]).generate_state(1)[0]), options)


def plain(value: Any) -> Any:
    """The value as JSON can hold it: NumPy becomes Python, and what is not finite becomes None."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def array(values: Any) -> np.ndarray:
    """Numbers read back from JSON: None is nan again."""
    return np.asarray(values, dtype=float)


def joined(results: Results, prefix: str, key: str) -> np.ndarray:
    """The arrays `key` of all units whose name begins with `prefix`, one after another."""
    return np.concatenate([array(result[key]) for name, result in results.items() if name.startswith(prefix)])


def median(values: np.ndarray) -> float:
    """Median of what is a number; nan if nothing is."""
    found = values[~np.isnan(values)]
    return float(np.median(found)) if found.size else math.nan


def share(flags: np.ndarray) -> float:
    """The part of true entries; nan if there are none."""
    return float(np.mean(flags)) if np.size(flags) else math.nan


def grade(checks: Mapping[str, bool]) -> Verdict:
    """All checks true: holds; some: holds in part; none: does not hold."""
    if all(checks.values()):
        return "holds"
    return "holds in part" if any(checks.values()) else "does not hold"


#: title of the table that says which parts of a claim were met
PARTS = "Parts of the claim"


def check_table(checks: Mapping[str, bool]) -> Table:
    """Which parts of the claim were met."""
    return Table(PARTS, ("part", "met"), [(text, bool(met)) for text, met in checks.items()])
