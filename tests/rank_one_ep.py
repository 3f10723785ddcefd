"""Expectation propagation for latent Gaussian models as one would write it from the thesis, for tests to compare with.

NumPy and SciPy only: nothing of the library is used. Sites are visited one after another, each followed by a rank-one
update of the covariance; double precision, arguments of moderate size.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.integrate import quad
from scipy.special import log_ndtr

#: (log Z, d log Z/dm, d² log Z/dm²) of site i under the cavity N(m, v)
LogMoments = Callable[[int, float, float], tuple[float, float, float]]

SQRT_2PI = np.sqrt(2 * np.pi)


class RankOneEP(NamedTuple):
    """q(f) = N(mean, covariance), its sites exp(nu f − ½ tau f²), log p(y), and log Z_i = log p(y_i | the others).

    With a power, log Z_i is the integral of the powered term.
    """

    mean: np.ndarray
    variance: np.ndarray
    covariance: np.ndarray
    nu: np.ndarray
    tau: np.ndarray
    log_evidence: float
    loo_log_z: np.ndarray
    sweeps: int
    converged: bool


def rank_one_ep(
    K: np.ndarray,
    log_moments: LogMoments,
    tol: float = 1e-10,
    max_sweeps: int = 500,
    order: np.ndarray | None = None,
    power: float = 1.0,
) -> RankOneEP:
    """EP with kernels (5.64–5.81) in the parameters tau_i = 1/v_i and nu_i = m_i/v_i, so that flat sites are 0, 0.

    tol: the largest change of a posterior mean, in posterior standard deviations, and of a log variance in a sweep.
    order: the sites in the order of their visits; by default 0 … n − 1.
    power: of Power EP, for moments of the powered terms: site**power is deleted, the message is raised to 1/power, and
        a site goes that share of the way to it.
    """
    n = len(K)
    visits = np.arange(n) if order is None else np.asarray(order)
    nu, tau = np.zeros(n), np.zeros(n)
    A, h = K.copy(), np.zeros(n)
    converged, sweeps = False, 0
    while not converged and sweeps < max_sweeps:
        sweeps += 1
        before = h.copy(), np.diag(A).copy()
        for i in visits:
            cavity_mean, cavity_variance = cavity_of(h[i], A[i, i], power * nu[i], power * tau[i])
            _, d1, d2 = log_moments(i, cavity_mean, cavity_variance)
            new_tau = -d2 / (1 + cavity_variance * d2)
            new_nu = d1 + new_tau * (cavity_mean + cavity_variance * d1)
            share = min(power, 1.0)
            change_tau, change_nu = share * (new_tau / power - tau[i]), share * (new_nu / power - nu[i])
            nu[i], tau[i] = nu[i] + change_nu, tau[i] + change_tau
            # (5.79–5.81), with 1/(δ + a_ii) = Δτ/(1 + Δτ a_ii), which may be 0.
            column = A[:, i].copy()
            shrink = 1 + change_tau * column[i]
            h += column * (change_nu - change_tau * h[i]) / shrink
            A -= np.outer(column, column) * (change_tau / shrink)
        A, h = posterior_from_sites(K, nu, tau)
        sd = np.sqrt(np.diag(A))
        change = max(np.max(np.abs(h - before[0]) / sd), np.max(np.abs(np.log(np.diag(A) / before[1]))))
        converged = bool(change <= tol)
    log_z, log_evidence = evidence_from_sites(K, A, h, nu, tau, log_moments, power)
    return RankOneEP(h, np.diag(A).copy(), A, nu, tau, log_evidence, log_z, sweeps, converged)


def cavity_of(mean: float, variance: float, nu: float, tau: float) -> tuple[float, float]:
    """(h_i^\\i, λ_i) of (5.64) and (5.74)."""
    cavity_variance = variance / (1 - tau * variance)
    return cavity_variance * (mean / variance - nu), cavity_variance


def posterior_from_sites(K: np.ndarray, nu: np.ndarray, tau: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A = (K⁻¹ + T)⁻¹ = (I + K T)⁻¹ K (5.72) and h = A nu (5.73); no inverse of K or of T."""
    A = np.linalg.solve(np.eye(len(K)) + K * tau, K)
    A = 0.5 * (A + A.T)
    return A, A @ nu


def evidence_from_sites(
    K: np.ndarray, A: np.ndarray, h: np.ndarray, nu: np.ndarray, tau: np.ndarray, log_moments: LogMoments, power: float
) -> tuple[np.ndarray, float]:
    """log Z_i and the logarithm of (5.76), whose terms m_i²/v_i are gathered so that no 1/tau_i is left.

    A site exp(nu f − ½ tau f²) times its cavity N(m, λ) integrates to log C = −½ log(1 + λ tau) + ½ (h²/a − m²/λ),
    with (h, a) the marginal of q. Hence log p(y) ≈ Σ (log Z_i − log C_i) + ½ nuᵀ A nu − ½ log |I + K T|. With a power,
    Z_i and C_i are those of the powered term and site, and s_i is the root of their quotient.
    """
    log_z, log_c = np.zeros(len(K)), np.zeros(len(K))
    for i in range(len(K)):
        m, v = cavity_of(h[i], A[i, i], power * nu[i], power * tau[i])
        log_z[i] = log_moments(i, m, v)[0]
        log_c[i] = -0.5 * np.log1p(v * power * tau[i]) + 0.5 * (h[i] ** 2 / A[i, i] - m**2 / v)
    log_det = np.linalg.slogdet(np.eye(len(K)) + K * tau)[1]
    return log_z, float(np.sum(log_z - log_c) / power + 0.5 * nu @ A @ nu - 0.5 * log_det)


def step(y: np.ndarray, epsilon: float = 0.0) -> LogMoments:
    """t(f) = ε + (1 − 2ε) Θ(y f) (5.14): z = y m/√v."""
    return lambda i, m, v: noisy_normal(y[i], m, v, epsilon)


def probit(y: np.ndarray, epsilon: float = 0.0) -> LogMoments:
    """t(f) = ε + (1 − 2ε) Φ(y f): the step under a cavity that is wider by 1."""
    return lambda i, m, v: noisy_normal(y[i], m, v + 1, epsilon)


def noisy_normal(y: float, m: float, total: float, epsilon: float) -> tuple[float, float, float]:
    """Z = ε + (1 − 2ε) Φ(z), d1 = y r/s, d2 = −r (r + z)/s², with s² = total, z = y m/s, r = (1 − 2ε) φ(z)/Z."""
    s = np.sqrt(total)
    z = y * m / s
    log_z = log_ndtr(z) + np.log1p(-2 * epsilon)
    if epsilon > 0:
        log_z = np.logaddexp(np.log(epsilon), log_z)
    r = (1 - 2 * epsilon) * np.exp(-0.5 * z**2 - log_z) / SQRT_2PI
    return float(log_z), float(y * r / s), float(-r * (r + z) / total)


def powered_step(y: np.ndarray, epsilon: float, power: float) -> LogMoments:
    """(ε + (1 − 2ε) Θ(y f))^u: levels ε^u and (1 − ε)^u, which are those of a step with label noise up to a factor."""
    low, high = epsilon**power, (1 - epsilon) ** power

    def moments(i: int, m: float, v: float) -> tuple[float, float, float]:
        log_z, d1, d2 = noisy_normal(y[i], m, v, low / (low + high))
        return log_z + float(np.log(low + high)), d1, d2

    return moments


def powered(log_term: Callable[[int, np.ndarray], np.ndarray], power: float) -> LogMoments:
    """t(f)^u of any smooth term, by the trapezoidal rule over 12 standard deviations of the cavity."""
    u = np.linspace(-12, 12, 1201)
    log_weight = -0.5 * u * u - np.log(SQRT_2PI) + np.log(u[1] - u[0])

    def moments(i: int, m: float, v: float) -> tuple[float, float, float]:
        sd = np.sqrt(v)
        mass = np.exp(power * log_term(i, m + sd * u) + log_weight)
        z = mass.sum()
        first, second = mass @ u / z, mass @ (u * u) / z
        return float(np.log(z)), float(first / sd), float((second - 1 - first**2) / v)

    return moments


def gaussian(y: np.ndarray, variance: float) -> LogMoments:
    """t(f) = N(y; f, variance)."""

    def moments(i: int, m: float, v: float) -> tuple[float, float, float]:
        total, gap = v + variance, y[i] - m
        return -0.5 * (gap**2 / total + np.log(2 * np.pi * total)), gap / total, -1 / total

    return moments


def logistic(y: np.ndarray) -> LogMoments:
    """t(f) = 1/(1 + exp(−y f)); Z, E[u], E[u²] for f = m + √v u by adaptive quadrature over |u| ≤ 12."""

    def moments(i: int, m: float, v: float) -> tuple[float, float, float]:
        sd = np.sqrt(v)

        def integral(power: int) -> float:
            def integrand(u: float) -> float:
                return u**power * np.exp(-0.5 * u * u - np.logaddexp(0.0, -y[i] * (m + sd * u))) / SQRT_2PI

            return quad(integrand, -12, 12, epsabs=1e-13, epsrel=1e-12, limit=200, points=[0.0])[0]

        z = integral(0)
        first, second = integral(1) / z, integral(2) / z
        return float(np.log(z)), float(first / sd), float((second - 1 - first**2) / v)

    return moments


class WeightEP(NamedTuple):
    """q(w) = N(mean, covariance), the terms' (m_i, v_i, s_i), and log p(D)."""

    mean: np.ndarray
    covariance: np.ndarray
    m: np.ndarray
    v: np.ndarray
    log_s: np.ndarray
    log_evidence: float
    sweeps: int


def weight_ep(
    X: np.ndarray, epsilon: float = 0.0, prior_variance: float = 1.0, tol: float = 1e-10, max_sweeps: int = 500
) -> WeightEP:
    """The loop of 5.3 as printed, (5.37–5.52); the rows of X are y_i x_i, s_i is kept as its logarithm.

    A prior N(0, c I) is the printed N(0, I) for the rows √c x_i, up to the scale of w.
    tol: the largest change of m_i/v_i, 1/v_i or log s_i in a sweep; the print stops at changes of 10⁻⁴.
    """
    X = np.sqrt(prior_variance) * X
    n, d = X.shape
    m, v, log_s = np.zeros(n), np.full(n, np.inf), np.zeros(n)
    mean, V = np.zeros(d), np.eye(d)
    sweeps, change = 0, np.inf
    while change > tol and sweeps < max_sweeps:
        sweeps += 1
        before = m / v, 1 / v, log_s.copy()
        for i, x in enumerate(X):
            Vx = V @ x
            V_old = V + np.outer(Vx, Vx) / (v[i] - x @ Vx)  # (5.42)
            m_old = mean + (V_old @ x) / v[i] * (x @ mean - m[i])  # (5.44)
            spread = x @ V_old @ x
            log_z, alpha, _ = noisy_normal(1.0, m_old @ x, spread, epsilon)  # (5.16–5.18)
            mean = m_old + V_old @ x * alpha  # (5.23)
            Vx = V_old @ x
            V = V_old - np.outer(Vx, Vx) * (alpha * (x @ mean) / spread)  # (5.24)
            v[i] = spread * (1 / (alpha * (x @ mean)) - 1)  # (5.47)
            m[i] = x @ m_old + (v[i] + spread) * alpha  # (5.48)
            log_s[i] = log_z + 0.5 * np.log1p(spread / v[i]) + 0.5 * spread / (x @ mean) * alpha  # (5.50)
        change = max(np.max(np.abs(new - old)) for new, old in zip((m / v, 1 / v, log_s), before, strict=True))
    B = mean @ np.linalg.solve(V, mean) - np.sum(m**2 / v)  # (5.51)
    log_evidence = 0.5 * np.linalg.slogdet(V)[1] + 0.5 * B + np.sum(log_s)  # (5.52)
    scale = np.sqrt(prior_variance)
    return WeightEP(scale * mean, prior_variance * V, m, v, log_s, float(log_evidence), sweeps)
