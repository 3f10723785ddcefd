"""Write likelihoods.csv: tilted moments and sites of the likelihood factors, computed by mpmath.

    python tests/tables/make_likelihood_tables.py

Columns: kind, y (the data of the site), a and b (parameters of the factor), power, nu and tau (the cavity), then log_z,
d1, d2, site_nu, site_tau and tau_terms. Every number is the repr of the double nearest to the true value at the doubles
given.

    kind                 a            b
    step, probit         label noise
    logistic             label noise
    poisson
    student_t            scale        df
    ordinal              scale                 thresholds −1, 0.2, 2.5

tau_terms (step and probit only) is what site_tau would be if the sizes of the two terms of opposite sign in it were
added: r [r b₀ + (1 − r) |c₀|] / V in the words of `cavity.factors.binary`. Where a label is wrong, site_tau
crosses zero; the rows "crossing" lie there.

Step and probit come from their closed forms with 450 digits, the others from Gauss–Legendre sums of 20 nodes on panels
that grow by a factor 1.7 from every place where the integrand has structure, with 40 digits. `main` checks both: the
distribution function at 1e8 against its asymptotic series, the sums against mpmath's own quadrature.
"""

import csv
import itertools
import math
from pathlib import Path

import mpmath as mp
import numpy as np

TABLE = Path(__file__).with_name("likelihoods.csv")
HEADER = ["kind", "y", "a", "b", "power", "nu", "tau", "log_z", "d1", "d2", "site_nu", "site_tau", "tau_terms"]
THRESHOLDS = (-1.0, 0.2, 2.5)
EXACT, SUMS = 450, 40


def upper(x):
    """1 − Φ(x), to full relative accuracy in the upper tail."""
    return mp.erfc(x / mp.sqrt(2)) / 2


def natural(mean, variance):
    return mean / variance, 1 / variance


def site(mean, variance, d1, d2):
    tilted, spread = mean + variance * d1, variance + variance**2 * d2
    return tilted / spread - mean / variance, 1 / spread - 1 / variance


def threshold(width, y, noise, power, nu, tau):
    """(ε + (1 − 2ε) Φ(y f/√width))^power for power 1 or width 0."""
    noise, power, nu, tau = map(mp.mpf, (noise, power, nu, tau))
    mean, variance = nu / tau, 1 / tau
    scale = mp.sqrt(variance + width)
    z = y * mean / scale
    low, high = noise**power if noise else mp.mpf(0), (1 - noise) ** power
    rise = high - low
    total = low + rise * upper(-z)
    slope, curve = rise * mp.npdf(z) / scale / total, -z * rise * mp.npdf(z) / scale**2 / total
    d1, d2 = y * slope, curve - slope**2
    r = rise * upper(-z) / total
    inner = slope / r  # d1 and −d2 of the likelihood without noise
    bend = inner * (inner + z / scale)
    terms = r * (r * bend + (1 - r) * abs(curve / r)) / (1 + variance * d2)
    log_z = mp.log(total) if z < 0 else mp.log1p(-(1 - high) - rise * upper(z))
    return log_z, d1, d2, *site(mean, variance, d1, d2), terms


def legendre(count):
    """Nodes and weights on (−1, 1), polished by Newton's method."""
    rule = []
    for start in np.polynomial.legendre.leggauss(count)[0]:
        x = mp.mpf(float(start))
        for _ in range(6):
            here, before = mp.mpf(1), mp.mpf(0)
            for k in range(count):
                here, before = ((2 * k + 1) * x * here - k * before) / (k + 1), here
            slope = count * (x * here - before) / (x * x - 1)
            x -= here / slope
        rule.append((x, 2 / ((1 - x * x) * slope**2)))
    return rule


def summed(log_t, power, nu, tau, places):
    """By sums over panels around the cavity mean and the given (place, scale) pairs."""
    mean, variance, power = mp.mpf(nu) / mp.mpf(tau), 1 / mp.mpf(tau), mp.mpf(power)
    spread = mp.sqrt(variance)
    cuts = set()
    for place, scale in [(mean, spread), *places]:
        step = min(mp.mpf(scale), spread) / 3
        cuts.add(place)
        while step < 20 * spread:
            cuts |= {place - step, place + step}
            step *= mp.mpf("1.7")

    def log_mass(f):
        return power * log_t(f) - (f - mean) ** 2 / (2 * variance)

    cuts = sorted(cuts)
    heights = [log_mass(f) for f in cuts]
    top = max(heights)
    sums = [mp.mpf(0)] * 3
    for (a, b), ends in zip(itertools.pairwise(cuts), itertools.pairwise(heights), strict=True):
        if max(ends) < top - 95:
            continue
        for x, weight in RULE:
            f = (a + b + (b - a) * x) / 2
            mass = (b - a) / 2 * weight * mp.exp(log_mass(f) - top)
            sums = [total + mass * (f - mean) ** k for k, total in enumerate(sums)]
    log_z = mp.log(sums[0]) + top - mp.log(2 * mp.pi * variance) / 2
    shift = sums[1] / sums[0]
    d1, d2 = shift / variance, (sums[2] / sums[0] - shift**2 - variance) / variance**2
    return log_z, d1, d2, *site(mean, variance, d1, d2)


def root(falling, low, high):
    while falling(low) < 0:
        low -= 2 * (high - low) + 1
    while falling(high) > 0:
        high += 2 * (high - low) + 1
    for _ in range(120):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return low


def logistic(y, noise, _, power, nu, tau):
    mean, variance, noise = mp.mpf(nu) / mp.mpf(tau), 1 / mp.mpf(tau), mp.mpf(noise)

    def log_t(f):
        clean = -mp.log1p(mp.exp(-y * f)) if y * f > -300 else y * f
        return mp.log(noise + (1 - 2 * noise) * mp.exp(clean)) if noise else clean

    def slope(extra, f):
        return power - (power + extra) / (1 + mp.exp(-f)) - (f - y * mean) / variance

    places = [(y * root(lambda f, k=k: slope(k, f), y * mean, y * mean), 1) for k in (0, 1)] + [(mp.mpf(0), 1)]
    places += [(y * mp.log(noise), 1)] if noise else []
    return summed(log_t, power, nu, tau, places)


def poisson(y, _, __, power, nu, tau):
    mean, variance = mp.mpf(nu) / mp.mpf(tau), 1 / mp.mpf(tau)
    constant = mp.loggamma(mp.mpf(y) + 1)

    def slope(extra, f):
        return power * y + extra - power * mp.exp(min(f, mp.mpf(10) ** 4)) - (f - mean) / variance

    modes = [root(lambda f, k=k: slope(k, f), mean, mean) for k in (0, 1)]
    places = [(f, 1 / mp.sqrt(1 + power * mp.exp(f))) for f in modes]
    return summed(lambda f: y * f - mp.exp(min(f, mp.mpf(50))) - constant, power, nu, tau, places)


def student_t(y, scale, df, power, nu, tau):
    mean, variance, scale, df = mp.mpf(nu) / mp.mpf(tau), 1 / mp.mpf(tau), mp.mpf(scale), mp.mpf(df)
    constant = mp.loggamma((df + 1) / 2) - mp.loggamma(df / 2) - mp.log(df * mp.pi) / 2 - mp.log(scale)
    modes = [mp.mpf(0), mean - y]
    for _ in range(200):
        modes = [(mean - y) / (1 + variance * power * (df + 1) / (df * scale**2 + x * x)) for x in modes]
    width = scale * min(mp.sqrt(df), 1 / mp.sqrt(power))

    def log_t(f):
        return constant - (df + 1) / 2 * mp.log1p((f - y) ** 2 / (df * scale**2))

    return summed(log_t, power, nu, tau, [(y + x, width) for x in [*modes, mp.mpf(0)]])


def ordinal(y, scale, _, power, nu, tau):
    mean, variance, scale = mp.mpf(nu) / mp.mpf(tau), 1 / mp.mpf(tau), mp.mpf(scale)
    edges = [-mp.inf, *map(mp.mpf, THRESHOLDS), mp.inf]
    low, high = edges[y], edges[y + 1]

    def log_t(f):
        a, b = (low - f) / scale, (high - f) / scale
        tails = [upper(x) if mp.isfinite(x) else mp.mpf(x < 0) for x in ((a, b) if a > 0 else (-b, -a))]
        return mp.log(tails[0] - tails[1])

    def slope(f):
        step = mp.mpf(10) ** -12
        return power * (log_t(f + step) - log_t(f - step)) / (2 * step) - (f - mean) / variance

    places = [(root(slope, mean, mean), scale / 4)]
    for bound in (low, high):
        if mp.isfinite(bound):
            places += [(bound, scale / 4), ((bound * variance + mean * scale**2) / (variance + scale**2), scale / 4)]
    return summed(log_t, power, nu, tau, places)


def probit_power(y, noise, _, power, nu, tau):
    mean, variance, noise = mp.mpf(nu) / mp.mpf(tau), 1 / mp.mpf(tau), mp.mpf(noise)

    def log_t(f):
        return mp.log(noise + (1 - 2 * noise) * upper(-y * f))

    def slope(f):
        step = mp.mpf(10) ** -12
        clean = (mp.log(upper(-f - step)) - mp.log(upper(-f + step))) / (2 * step)
        return power * clean - (f - y * mean) / variance

    places = [(y * root(slope, y * mean, y * mean), 0.25), (mean / (1 + variance), 0.25)]
    places += [(mp.mpf(k), 0.25) for k in (range(-8, 9, 2) if noise else [0])]
    return summed(log_t, power, nu, tau, places)


def crossing(width, noise, power, variance):
    """The margin z < 0 where site_tau changes sign."""
    scale = math.sqrt(variance + width)

    def tau_at(z):
        return threshold(width, 1, noise, power, *natural(float(z) * scale, variance))[4]

    low, high = -30.0, -0.01  # tau is positive at `high` or at none of them
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if tau_at(middle) < 0 else (low, middle)
    return high


def threshold_rows():
    tail = [20.0, 36.5, 40.0, 100.0, 3e3, 1e6, 1e8]
    margins = [-z for z in tail] + [-9.0, -5.3, -3.0, -1.7, -0.5, -1e-3, 0.0, 0.2, 1.0, 2.5, 6.0, 9.0, *tail]
    noises = (0.0, 1e-12, 1e-6, 0.01, 0.1, 0.3, 0.49)
    variances = (1e-12, 1e-5, 0.3, 1.0, 40.0, 1e6, 1e12)
    for kind, width, powers in (("step", 0, (1.0, 0.5, 0.03)), ("probit", 1, (1.0,))):
        cases = [(e, p, v, z) for e in noises for p in powers for v in variances for z in margins]
        step = 5 if kind == "step" else 3  # coprime to the number of margins, so that all of them occur
        for index, (noise, power, variance, z) in enumerate(cases[::step]):
            y = 1 if index % 2 else -1
            yield kind, y, noise, power, *natural(y * z * math.sqrt(variance + width), variance)
        for noise in noises[2:-1]:
            for power in powers:
                for variance in (1e-5, 1.0, 1e6):
                    z = crossing(width, noise, power, variance)
                    yield f"crossing {kind}", 1, noise, power, *natural(z * math.sqrt(variance + width), variance)


def sum_rows():
    inner, outer = (1e-6, 1e-2, 1.0, 30.0, 1e6), (1e-12, 1e-9, 1e9, 1e12)
    for noise, power, variances, margins in (
        (0.0, 1.0, inner, (-1e3, -40.0, -6.0, 0.5, 8.0, 20.0)),
        (0.01, 1.0, inner, (-5.0, 3.0)),
        (0.0, 0.5, inner, (-3.0, 7.0)),
        (0.01, 0.5, inner, (-8.0, 2.0)),
        (0.0, 1.0, outer, (-1e8, -1e4, 1.0)),
    ):
        for variance in variances:
            for z in margins:
                yield logistic, 1, noise, "", power, *natural(z * math.sqrt(variance), variance)
    counts = (0, 1, 7, 1000, 1000000)
    for row, mean in enumerate((-30.0, -3.0, 0.0, 1.5, 8.0)):
        for column, variance in enumerate(inner):
            power = 0.5 if (row + column) % 3 == 2 else 1.0
            yield poisson, counts[(row + 2 * column) % 5], "", "", power, *natural(mean, variance)
    far = ((1e-12, 3.0), (1e-9, -5.0), (1e9, -1e5), (1e9, 1e6), (1e12, 0.0), (1e12, 1e10), (1e12, 1e14))
    for variance, mean in far:
        for count in (0, 3):
            yield poisson, count, "", "", 1.0, *natural(mean, variance)
    cavities = ((1e-6, 8.0), (1e-2, -30.0), (1.0, -3.0), (1.0, 8.0), (1.0, -1e3), (30.0, 8.0), (1e6, -3.0))
    for scale, df, power in ((1.0, 4.0, 1.0), (0.1, 1.0, 1.0), (0.3, 2.5, 0.5), (1.0, 300.0, 1.0), (1.0, 1e6, 1.0)):
        for variance, mean in cavities:
            yield student_t, 0.3, scale, df, power, *natural(mean, variance)
    for row, mean in enumerate((-30.0, -3.0, 0.3, 8.0)):
        for column, variance in enumerate(inner):
            yield ordinal, (row + column) % 4, 0.7, "", (1.0, 0.5)[column % 2], *natural(mean, variance)
    for noise, power in ((0.0, 0.5), (0.01, 0.5), (1e-6, 3.0)):
        for variance in (1e-2, 1.0, 30.0, 1e6):
            for z in (-30.0, -4.0, 1.0, 6.0):
                yield probit_power, -1, noise, "", power, *natural(-z * math.sqrt(1 + variance), variance)


def verify():
    """Each way of computing against another one."""
    with mp.workdps(SUMS):
        x = mp.mpf(10) ** 8
        term, series = mp.mpf(1), mp.mpf(0)
        for k in range(4):
            series, term = series + term, -term * (2 * k + 1) / x**2
        tail = -x * x / 2 - mp.log(x * mp.sqrt(2 * mp.pi)) + mp.log(series)
        assert abs(mp.log(upper(x)) / tail - 1) < mp.mpf(10) ** -30
        nu, tau = -1.5, 0.5  # N(−3, 2)
        by_sums = logistic(1, 0.01, "", 0.5, nu, tau)

        def mass(f, k):
            noise = mp.mpf(0.01)
            return (f + 3) ** k * mp.npdf(f, -3, mp.sqrt(2)) * mp.sqrt(noise + (1 - 2 * noise) / (1 + mp.exp(-f)))

        total, first = (mp.quad(lambda f, k=k: mass(f, k), range(-28, 23, 2)) for k in (0, 1))
        assert abs(mp.log(total) / by_sums[0] - 1) < mp.mpf(10) ** -18
        assert abs(first / total / 2 / by_sums[1] - 1) < mp.mpf(10) ** -18


def main():
    verify()
    with TABLE.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(HEADER)
        mp.mp.dps = EXACT
        for kind, y, noise, power, nu, tau in threshold_rows():
            values = threshold(0 if "step" in kind else 1, y, noise, power, nu, tau)
            table.writerow([kind, y, repr(noise), "", *map(repr, (power, nu, tau)), *(repr(float(v)) for v in values)])
        mp.mp.dps = SUMS
        for function, y, a, b, power, nu, tau in sum_rows():
            values = function(y, a, b, power, nu, tau)
            # Sums good to 28 digits do not resolve the precision where the likelihood is nearly a straight line.
            if abs(values[4]) > 1e-16 * (mp.mpf(tau) + values[1] ** 2):
                inputs = [function.__name__, y, a, b, *map(repr, (power, nu, tau))]
                table.writerow([*inputs, *(repr(float(v)) for v in values), ""])


mp.mp.dps = SUMS
RULE = legendre(20)

if __name__ == "__main__":
    main()
