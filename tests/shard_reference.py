"""EP for probit regression as one would write it from the thesis, for tests of EP on shards; and data for it."""

import numpy as np
from scipy.stats import norm


def draw_rows(seed: int, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels of a probit model."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.where(X @ rng.normal(size=d) + rng.normal(size=n) > 0, 1.0, -1.0)


def probit_ep(X: np.ndarray, y: np.ndarray, sweeps: int = 60) -> tuple[np.ndarray, np.ndarray, float]:
    """(mean, covariance, log evidence) of w ~ N(0, I): sequential EP with rank-one updates in natural parameters."""
    n, d = X.shape
    nu, tau, log_scale = np.zeros(n), np.zeros(n), np.zeros(n)
    for _ in range(sweeps):
        for i, (x, label) in enumerate(zip(X, y, strict=True)):
            covariance = np.linalg.inv(np.eye(d) + X.T @ (tau[:, None] * X))
            mean, variance = x @ covariance @ (X.T @ nu), x @ covariance @ x
            c_tau, c_nu = 1 / variance - tau[i], mean / variance - nu[i]
            m, v = c_nu / c_tau, 1 / c_tau
            z = label * m / np.sqrt(1 + v)
            ratio = np.exp(norm.logpdf(z) - norm.logcdf(z))
            new_m = m + label * v * ratio / np.sqrt(1 + v)
            new_v = v - v**2 * ratio * (z + ratio) / (1 + v)
            tau[i], nu[i] = 1 / new_v - c_tau, new_m / new_v - c_nu
            log_scale[i] = (
                norm.logcdf(z)
                + gaussian_log_partition(c_nu, c_tau)
                - gaussian_log_partition(c_nu + nu[i], c_tau + tau[i])
            )
    precision = np.eye(d) + X.T @ (tau[:, None] * X)
    mean = np.linalg.solve(precision, X.T @ nu)
    log_partition = 0.5 * (X.T @ nu) @ mean - 0.5 * np.linalg.slogdet(precision)[1]
    return mean, np.linalg.inv(precision), log_partition + log_scale.sum()


def gaussian_log_partition(nu: float, tau: float) -> float:
    """½ ν²/τ − ½ log τ."""
    return 0.5 * nu**2 / tau - 0.5 * np.log(tau)
