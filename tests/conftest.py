"""Every test runs in double precision, as the public entry points do."""

import os

# Most of the time here is spent compiling small programs once: quick code generation is worth more than quick code.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0 --xla_cpu_multi_thread_eigen=false",
)
# Two test processes share two cores: more threads would only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import pytest


@pytest.fixture(autouse=True)
def _double_precision():
    with jax.enable_x64(True):
        yield
