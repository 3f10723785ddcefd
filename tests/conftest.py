"""Every test runs in double precision, as the public entry points do."""

import ctypes
import gc
import importlib.metadata
import os
from pathlib import Path

# Most of the time here is spent compiling small programs once: quick code generation is worth more than quick code
# (but for long searches, see the Makefile), and a program cut in parts for threads to compile takes longer on the one
# core it has.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_cpu_multi_thread_eigen=false --xla_cpu_parallel_codegen_split_count=1"
    + (" --xla_backend_optimization_level=0" if os.environ.get("OPTIMISED_CODE") != "1" else "")
    # later versions of XLA do not know this one
    + (" --xla_cpu_use_fusion_emitters=false" if importlib.metadata.version("jaxlib") < "0.11" else ""),
)
# What one process has compiled the other need not, and the next run need not either.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / "build" / "jax-cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.05")
# Nobody reads where in the sources an operation of these programs came from.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")

import jax
import pytest

# What is traced lives long: looking through all of it for garbage every 700 objects is a twentieth of the time.
gc.set_threshold(100_000, 20, 50)

#: compiled programs are forgotten when a process has grown to this many bytes
LARGEST_PROCESS = 3_000_000_000


#: compiled programs kept between runs take this many bytes at most
LARGEST_CACHE = 4_000_000_000


def pytest_sessionstart(session):
    """Compiled programs that were not used for longest are dropped; one process looks before the others begin."""
    folder = Path(os.environ["JAX_COMPILATION_CACHE_DIR"])
    if hasattr(session.config, "workerinput") or not folder.is_dir():
        return
    files = sorted((path.stat().st_mtime, path.stat().st_size, path) for path in folder.iterdir())
    excess = sum(size for _, size, _ in files) - LARGEST_CACHE
    for _, size, path in files:
        if excess <= 0:
            return
        path.unlink(missing_ok=True)
        excess -= size


#: what `make test` leaves to `make test-long`: files and folders under tests/
LONG = (
    # experiments in small, and the pages' code
    "docs/test_docs.py",
    "docs/test_examples.py",
    "reproductions",
    # fuzzers, and many random problems against an answer of their own
    "factor_graph/test_distributions.py",
    "factor_graph/test_random_trees.py",
    "inference/test_derivatives.py",
    "inference/test_every_model.py",
    "inference/test_evidence_digits.py",
    "inference/test_evidence_of_probabilities.py",
    "inference/test_status.py",
    "models/test_clutter.py",
    "models/test_mixture_weights.py",
    "test_damaged_files.py",
    "test_equal.py",
    # batteries of scikit-learn
    "estimators/test_checks.py",
    # processes of their own: kills, forks, interruptions, clusters, first answers
    "_cli/test_cache.py",
    "_core/test_compiling.py",
    "_core/test_kept_programs.py",
    "_core/test_processes.py",
    "_core/test_saved_objects.py",
    "_core/test_tiers.py",
    "distributed",
    "models/streaming/test_checkpoint.py",
    "test_compiled_programs.py",
)


def pytest_collection_modifyitems(items):
    """Mark what takes long by where it stands."""
    root = Path(__file__).parent
    for item in items:
        place = item.path.relative_to(root).as_posix()
        if any(place == own or place.startswith(f"{own}/") for own in LONG):
            item.add_marker(pytest.mark.long)


@pytest.fixture(autouse=True)
def _double_precision():
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True)
def _bounded_memory():
    """Thousands of compiled programs would take more memory than a small machine has.

    What is freed has to be handed back as well: a process that stays large would forget everything after every test.
    """
    yield
    statm = Path("/proc/self/statm")
    if statm.exists() and int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") > LARGEST_PROCESS:
        jax.clear_caches()
        gc.collect()
        hand_back = getattr(ctypes.CDLL(None), "malloc_trim", None)  # the C library of GNU has it
        if hand_back is not None:
            hand_back(0)
