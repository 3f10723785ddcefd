"""Loopy belief propagation and tree EP on large grids of spins, and PGMax beside them where it is installed.

Couplings N(0, 0.3²), fields N(0, 0.1²), all factors at once, mismatch 1e-6. PGMax counts its iterations and knows no
tolerance: it is given as many as cavity needed, in single precision, as it comes; the ratio is of whole runs, both
warm. Largest memory is that of the process so far. Time over factors should have slope 1.
"""

import argparse
import importlib.util
import resource
import time
import types
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import cavity as cv

SPINS = np.array([1.0, -1.0])
METHOD = cv.EP(schedule=cv.Parallel(), tol=1e-6)


def edges_of(n: int) -> np.ndarray:
    """Neighbours of an n × n grid."""
    number = np.arange(n * n).reshape(n, n)
    across = np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()], axis=1)
    return np.concatenate([across, np.stack([number[:-1].ravel(), number[1:].ravel()], axis=1)])


def parameters(n: int, strength: float) -> tuple[np.ndarray, np.ndarray]:
    """Couplings and fields of an n × n grid."""
    rng = np.random.default_rng(n)
    return strength * rng.normal(size=2 * n * (n - 1)), 0.1 * rng.normal(size=n * n)


def grid(n: int, strength: float = 0.3) -> cv.DiscreteGraph:
    """p ∝ exp(Σ J s s' + Σ h s)."""
    couplings, fields = parameters(n, strength)
    graph = cv.DiscreteGraph(np.full(n * n, 2))
    graph.add_factors(np.arange(n * n)[:, None], fields[:, None] * SPINS, log=True)
    graph.add_factors(edges_of(n), couplings[:, None, None] * np.outer(SPINS, SPINS), log=True)
    return graph


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, and what came of it."""
    start = time.perf_counter()
    found = function()
    return time.perf_counter() - start, found


def gigabytes() -> float:
    """The most memory the process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def belief_propagation(sizes: list[int]) -> None:
    """A table of grids, and how time grows with the number of factors."""
    print(f"{'grid':>12} {'factors':>9} {'build':>7} {'cold':>7} {'warm':>7} {'sweeps':>7} {'a sweep':>9} {'GB':>6}")
    factors, seconds = [], []
    for n in sizes:
        build, problem = timed(lambda n=n: grid(n).problem())
        cold, _ = timed(lambda problem=problem: cv.infer(problem, METHOD))
        warm, found = min(
            (timed(lambda problem=problem: cv.infer(problem, METHOD)) for _ in range(2)), key=lambda own: own[0]
        )
        sweeps = int(found.sweeps)
        factors.append(2 * n * (n - 1))
        seconds.append(warm / sweeps)
        print(
            f"{n:>6} × {n:<5}{factors[-1]:>8} {build:7.2f} {cold:7.2f} {warm:7.2f} {sweeps:>7} "
            f"{1e3 * seconds[-1]:6.1f} ms {gigabytes():6.2f}  {found.status}",
            flush=True,
        )
    if len(sizes) > 1:
        print(
            f"seconds a sweep grow like factors to the power {np.polyfit(np.log(factors), np.log(seconds), 1)[0]:.2f}"
        )


def beside_pgmax(n: int) -> None:
    """Whole warm runs of the same number of flooding sweeps."""
    problem = grid(n).problem()
    cv.infer(problem, METHOD)
    ours, found = min((timed(lambda: cv.infer(problem, METHOD)) for _ in range(5)), key=lambda own: own[0])
    if importlib.util.find_spec("pgmax") is None:
        print(f"{n} × {n}: cavity {1e3 * ours:.0f} ms; PGMax is not installed.")
        return
    if not hasattr(jax.lib, "xla_bridge"):
        # PGMax 0.6.1 looks for the backend where newer versions of JAX do not have it.
        from jax.extend import backend

        jax.lib.xla_bridge = types.SimpleNamespace(get_backend=backend.get_backend)  # type: ignore[attr-defined]
    from pgmax import fgraph, fgroup, infer, vgroup  # type: ignore[import-not-found]

    couplings, fields = parameters(n, 0.3)
    variables = vgroup.NDVarArray(num_states=2, shape=(n, n))
    graph = fgraph.FactorGraph(variable_groups=variables)
    pairs = [[variables[divmod(int(a), n)], variables[divmod(int(b), n)]] for a, b in edges_of(n)]
    tables = couplings[:, None, None] * np.outer(SPINS, SPINS)
    graph.add_factors(fgroup.PairwiseFactorGroup(variables_for_factors=pairs, log_potential_matrix=tables))
    bp = infer.build_inferer(graph.bp_state, backend="bp")
    start = bp.init(evidence_updates={variables: (fields[:, None] * SPINS).reshape(n, n, 2)})
    sweeps = int(found.sweeps)

    def run() -> Any:
        return jax.block_until_ready(bp.run(start, num_iters=sweeps, damping=0.0, temperature=1.0))

    run()
    theirs, arrays = min((timed(run) for _ in range(5)), key=lambda own: own[0])
    beliefs = np.asarray(infer.get_marginals(bp.get_beliefs(arrays))[variables]).reshape(-1, 2)
    gap = np.abs(beliefs - grid(n).interpret(found).marginals).max()
    print(
        f"{n} × {n}, {sweeps} sweeps, warm: cavity {1e3 * ours:.0f} ms (float64, measured, with log Z), PGMax "
        f"{1e3 * theirs:.0f} ms (float32): {theirs / ours:.2f} times PGMax's speed; marginals differ by {gap:.0e}"
    )


def tree_ep(sizes: list[int]) -> None:
    """Tree EP, in blocks and all at once."""
    methods = {"in blocks": cv.EP(tol=1e-6), "at once, damped": cv.EP(schedule=cv.Parallel(), damping=0.5, tol=1e-6)}
    for n in sizes:
        build, problem = timed(lambda n=n: grid(n, 1.0).approximate("tree").problem())
        for name, method in methods.items():
            cold, _ = timed(lambda problem=problem, method=method: cv.infer(problem, method))
            warm, found = timed(lambda problem=problem, method=method: cv.infer(problem, method))
            print(
                f"tree EP {n} × {n}, {name}: build {build:.2f} s, cold {cold:.1f} s, warm {warm:.2f} s, "
                f"{int(found.sweeps)} sweeps, {found.status}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--sizes", type=int, nargs="*", default=[71, 224, 707, 1000], help="grids of belief propagation"
    )
    parser.add_argument("--trees", type=int, nargs="*", default=[10, 50], help="grids of tree EP")
    parser.add_argument("--peer", type=int, default=300, help="the grid that PGMax runs too")
    chosen = parser.parse_args()
    beside_pgmax(chosen.peer)
    belief_propagation(chosen.sizes)
    tree_ep(chosen.trees)


if __name__ == "__main__":
    main()
