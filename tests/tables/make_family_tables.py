"""High-precision reference values of every family: `python tests/tables/make_family_tables.py` writes families.json.

Everything is computed from textbook formulas with mpmath at 80 digits, from the exact values of the stored doubles.
Each case holds eta, a second member `other`, and log partition, moments, entropy, KL(eta ‖ other), mean, covariance.
For a Dirichlet of 1000 components moments and means are kept at a few positions (`at`) and the covariance is left out.
"""

import json
import random
from pathlib import Path

import mpmath as mp

mp.mp.dps = 80
rng = random.Random(20240607)
HALF = mp.mpf(1) / 2


def exact(values):
    return [mp.mpf(v) for v in values]


def short(value):
    """Six digits: the file stays small and the double that is read back is the double used here."""
    return float(f"{value:.6g}")


def near_and_far(eta, draw):
    """Other members: unrelated, off by one part in a thousand and in 1e8, and all parameters scaled."""
    yield draw()
    for size in (1e-3, 1e-8):
        yield [v * (1 + size * rng.choice((-1, 1)) * rng.uniform(0.5, 1)) for v in eta]
    yield [v * 1.7 for v in eta]


def case(family, eta, other, a, mu, kl, entropy, mean, covariance, **more):
    number = lambda v: [number(u) for u in v] if isinstance(v, list) else float(v)  # noqa: E731
    rest = {"log_partition": a, "moments": mu, "kl": kl, "entropy": entropy, "mean": mean, "covariance": covariance}
    return {"family": family, "eta": eta, "other": other, **{k: number(v) for k, v in rest.items()}, **more}


def dirichlet(eta, other, family="Dirichlet", at=None):
    def log_beta(a):
        return mp.fsum(map(mp.loggamma, a)) - mp.loggamma(mp.fsum(a))

    a, b = exact(eta), exact(other)
    total = mp.fsum(a)
    mu = [mp.digamma(v) - mp.digamma(total) for v in a]
    mean = [v / total for v in a]
    kl = log_beta(b) - log_beta(a) + mp.fsum((x - y) * m for x, y, m in zip(a, b, mu, strict=True))
    entropy = log_beta(a) - mp.fsum((x - 1) * m for x, m in zip(a, mu, strict=True))
    n = len(a)
    keep = at or range(n)
    cov = (
        [[(mean[i] * (i == j) - mean[i] * mean[j]) / (total + 1) for j in range(n)] for i in range(n)] if not at else []
    )
    if family == "Beta":
        return case(family, eta, other, log_beta(a), mu, kl, entropy, mean[0], cov[0][0])
    picked = [mu[i] for i in keep], [mean[i] for i in keep]
    return case(family, eta, other, log_beta(a), picked[0], kl, entropy, picked[1], cov, **({"at": at} if at else {}))


def gamma(eta, other):
    (a, rate), (c, rate_c) = exact(eta), exact(other)
    part = lambda s, r: mp.loggamma(s) - s * mp.log(r)  # noqa: E731
    mu = [mp.digamma(a) - mp.log(rate), -a / rate]
    kl = part(c, rate_c) - part(a, rate) + (a - c) * mu[0] + (rate - rate_c) * mu[1]
    entropy = part(a, rate) - (a - 1) * mu[0] - rate * mu[1]
    return case("Gamma", eta, other, part(a, rate), mu, kl, entropy, a / rate, a / rate**2)


def gaussian(family, d, eta, other):
    """All Gaussians through the full matrix formulas."""

    def expand(values):
        values = exact(values)
        nu, tail = mp.matrix(values[:d]), values[d:]
        if family == "FullGaussian":
            return nu, mp.matrix(d, d) + mp.matrix([tail[i * d : (i + 1) * d] for i in range(d)])
        return nu, mp.diag(tail if len(tail) == d else tail * d)

    (nu, lam), (nu_b, lam_b) = expand(eta), expand(other)
    v, v_b = lam**-1, lam_b**-1
    m = v * nu
    gap = v_b * nu_b - m
    log_det = mp.log(mp.det(lam))
    a = HALF * ((nu.T * m)[0] - log_det + d * mp.log(2 * mp.pi))
    trace = mp.fsum((lam_b * v)[i, i] for i in range(d))
    kl = HALF * (trace - d + log_det - mp.log(mp.det(lam_b)) + (gap.T * lam_b * gap)[0])
    entropy = HALF * (d * (1 + mp.log(2 * mp.pi)) - log_det)
    second = v + m * m.T
    pairs = [-HALF * second[i, j] for i in range(d) for j in range(d)]
    diagonal = [-HALF * second[i, i] for i in range(d)]
    tail = {"FullGaussian": pairs, "SphericalGaussian": [mp.fsum(diagonal)]}.get(family, diagonal)
    mean, cov = list(m), [[v[i, j] for j in range(d)] for i in range(d)]
    if family == "Gaussian":
        mean, cov = mean[0], cov[0][0]
    return case(family, eta, other, a, list(m) + tail, kl, entropy, mean, cov)


def categorical(eta, other):
    def log_probabilities(values):
        k = len(values) // 2
        weights = [None if values[k + i] > 0 else mp.exp(mp.mpf(values[i])) for i in range(k)]
        total = mp.fsum(w for w in weights if w is not None)
        return mp.log(total), [None if w is None else mp.log(w / total) for w in weights]

    (a, p), (_, q) = log_probabilities(eta), log_probabilities(other)
    probability = [mp.mpf(0) if v is None else mp.exp(v) for v in p]
    live = [i for i, v in enumerate(p) if v is not None]
    kl = mp.inf if any(q[i] is None for i in live) else mp.fsum(probability[i] * (p[i] - q[i]) for i in live)
    entropy = -mp.fsum(probability[i] * p[i] for i in live)
    mean = mp.fsum(i * v for i, v in enumerate(probability))
    cov = mp.fsum((i - mean) ** 2 * v for i, v in enumerate(probability))
    return case("Categorical", eta, other, a, probability, kl, entropy, mean, cov)


def build():
    shape = lambda: short(10 ** rng.uniform(-6, 8))  # noqa: E731
    cases = []
    pairs = [[1e-6, 1e-6], [1e8, 1e8], [1e8, 1e-6], [1e-6, 1e8], [1.0, 1.0], [2.5, 0.3], [1e8, 1.0]]
    for eta in pairs + [[shape(), shape()] for _ in range(12)]:
        cases += [dirichlet(eta, b, "Beta") for b in near_and_far(eta, lambda: [shape(), shape()])]
        cases += [gamma(eta, b) for b in near_and_far(eta, lambda: [shape(), shape()])]
    for k, count in ((3, 5), (10, 3)):
        for _ in range(count):
            eta = [shape() for _ in range(k)]
            others = list(near_and_far(eta, lambda k=k: [shape() for _ in range(k)]))
            cases += [dirichlet(eta, b) for b in others]
    for low, high in ((-6, 8), (-1, 1)):
        draw = lambda low=low, high=high: [float(f"{10 ** rng.uniform(low, high):.3g}") for _ in range(1000)]  # noqa: E731
        cases.append(dirichlet(draw(), draw(), at=[0, 1, 499, 999]))

    def normal(d, taus):
        tau = [short(10 ** rng.uniform(-12, 12)) for _ in range(taus)]
        return [short(rng.choice((-1, 1)) * 10 ** rng.uniform(-3, 6) * tau[i % taus]) for i in range(d)] + tau

    for family, d, taus in (("Gaussian", 1, 1), ("DiagonalGaussian", 3, 3), ("SphericalGaussian", 3, 1)):
        for _ in range(8):
            eta = normal(d, taus)
            others = near_and_far(eta, lambda d=d, taus=taus: normal(d, taus))
            cases += [gaussian(family, d, eta, b) for b in others]

    def full(exponent, d=3):
        root = [[rng.gauss(0, 1) * 10 ** rng.uniform(-exponent, exponent) for _ in range(d)] for _ in range(d)]
        gram = [[short(sum(r[i] * r[j] for r in root)) for j in range(d)] for i in range(d)]
        return [short(rng.gauss(0, 10)) for _ in range(d)] + [v for row in gram for v in row]

    for exponent in (0, 0.5, 1, 1.5):
        eta = full(exponent)
        grown = [v * 1.7 for v in eta]
        close = eta[:3] + [v * (1 + 1e-8) for v in eta[3:]]
        cases += [gaussian("FullGaussian", 3, eta, b) for b in (full(exponent), grown, close)]

    for _ in range(4):
        eta = [short(rng.gauss(0, 8)) for _ in range(5)] + [float(rng.random() < 0.3) for _ in range(4)] + [0.0]
        far = [short(rng.gauss(0, 8)) for _ in range(5)] + [0.0] * 5
        close = [v + 1e-8 * rng.gauss(0, 1) for v in eta[:5]] + eta[5:]
        cases += [categorical(eta, b) for b in (far, close, [*far[:5], 1.0, *eta[6:]])]
    return cases


if __name__ == "__main__":
    out = Path(__file__).with_name("families.json")
    out.write_text("[\n" + ",\n".join(json.dumps(c) for c in build()) + "\n]\n")
