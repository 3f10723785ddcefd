"""A thousand clutter problems at once: `jax.vmap` of `cavity.infer` against a straightforward NumPy loop over them.

Both run EP (thesis 3.49–3.62) on the same data to the same stop, in one process. Prints times and their ratio.
"""

import argparse
import time

import jax
import numpy as np

import cavity as cv

TOL = 1e-8


def draw(count: int, n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((count, n))
    return np.where(rng.random((count, n)) < 0.5, np.sqrt(10.0) * noise, 2.0 + noise)


def normal(x: float, mean: float, variance: float) -> float:
    return np.exp(-0.5 * (x - mean) ** 2 / variance) / np.sqrt(2 * np.pi * variance)


def numpy_ep(x: np.ndarray, w: float = 0.5, prior_variance: float = 100.0) -> tuple[float, float, float]:
    """EP as one would write it from the thesis: (mean, variance, log evidence)."""
    n = len(x)
    tau, nu, log_scale = np.zeros(n), np.zeros(n), np.zeros(n)
    q_tau, q_nu = 1.0 / prior_variance, 0.0
    for _ in range(200):
        worst = 0.0
        for i in range(n):
            c_tau, c_nu = q_tau - tau[i], q_nu - nu[i]
            m, v = c_nu / c_tau, 1.0 / c_tau
            signal = (1 - w) * normal(x[i], m, v + 1)
            z = signal + w * normal(x[i], 0.0, 10.0)
            r = signal / z
            new_m = m + v * r * (x[i] - m) / (v + 1)
            new_v = v - r * v**2 / (v + 1) + r * (1 - r) * v**2 * (x[i] - m) ** 2 / (v + 1) ** 2
            worst = max(worst, abs(q_nu / q_tau - new_m) * np.sqrt(q_tau), abs(np.log(new_v * q_tau)))
            tau[i], nu[i] = 1.0 / new_v - c_tau, new_m / new_v - c_nu
            q_tau, q_nu = c_tau + tau[i], c_nu + nu[i]
            log_scale[i] = np.log(z) + 0.5 * (np.log(v) - np.log(new_v) + m**2 / v - new_m**2 / new_v)
        if worst <= TOL:
            break
    mean, variance = q_nu / q_tau, 1.0 / q_tau
    evidence = 0.5 * (np.log(variance / prior_variance) + mean**2 / variance) + log_scale.sum()
    return mean, variance, evidence


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    stack = draw(options.count, options.n, options.seed)

    with jax.enable_x64(True):
        run = jax.jit(jax.vmap(lambda x: cv.infer(cv.models.clutter(x), cv.EP(tol=TOL))))
        began = time.perf_counter()
        solution = jax.block_until_ready(run(stack))
        cold = time.perf_counter() - began
        warm = []
        for _ in range(5):
            began = time.perf_counter()
            solution = jax.block_until_ready(run(stack))
            warm.append(time.perf_counter() - began)

    began = time.perf_counter()
    with np.errstate(all="ignore"):
        plain = np.array([numpy_ep(x) for x in stack])
    loop = time.perf_counter() - began

    done = np.asarray(solution.converged) & np.isfinite(plain).all(axis=1)
    ours = np.stack([solution.mean, solution.covariance, solution.log_evidence], axis=1)
    print(f"{options.count} problems of {options.n} points; converged {np.mean(solution.converged):.1%}")
    print(f"the plain loop broke down (NaN) on {np.sum(~np.isfinite(plain).all(axis=1))}")
    print(f"largest difference of mean, variance, log evidence elsewhere: {np.abs(ours - plain)[done].max():.1e}")
    print(f"NumPy loop {loop:.2f} s; vmap cold (with compilation) {cold:.2f} s, warm {np.median(warm):.3f} s")
    print(f"ratio, warm {loop / np.median(warm):.0f}; with compilation {loop / cold:.1f}")


if __name__ == "__main__":
    main()
