"""Write normal.csv: moments and sites of truncated normals to double precision, computed with 450 digits by mpmath.

    python tests/tables/make_normal_tables.py

Columns by kind of row; every number is the repr of the double nearest to the true value at the doubles given.

    one_sided   z                        log_z  d1    shrink       b            odds      excess
    interval    a, b                     log_z  mean  above_lower  below_upper  variance  precision_gain
    probit      y, nu, tau               log_z  d1    d2           site_nu      site_tau
    truncation  lower, upper, nu, tau    log_z  d1    d2           site_nu      site_tau

with (nu, tau) the natural parameters of the cavity, d1 and d2 the derivatives of log_z in its mean.

450 digits because the largest loss is that of 1/variance − 1 for bounds near 38 standard deviations (1 minus 1e-310),
and differences of distribution functions at 1e8 standard deviations lose fewer.
"""

import csv
import math
from pathlib import Path

import mpmath as mp
import numpy as np

TABLE = Path(__file__).with_name("normal.csv")
HEADER = ["kind", "x1", "x2", "x3", "x4", "y1", "y2", "y3", "y4", "y5", "y6"]
mp.mp.dps = 450


def pdf(x):
    return mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi) if mp.isfinite(x) else mp.mpf(0)


def upper(x):
    """1 − Φ(x), to full relative accuracy in the upper tail."""
    return mp.erfc(x / mp.sqrt(2)) / 2 if mp.isfinite(x) else mp.mpf(x < 0)


def one_sided(z):
    z = mp.mpf(z)
    cdf = upper(-z)
    a = pdf(z) / cdf
    b = a * (a + z)
    return mp.log(cdf), a, 1 - b, b, b / (1 - b), a + z


def interval(a, b):
    """log Z, mean, mean − a, b − mean, variance, 1/variance − 1 of N(0, 1) restricted to (a, b)."""
    a, b = mp.mpf(a), mp.mpf(b)
    z = upper(a) - upper(b) if a > 0 else upper(-b) - upper(-a)
    weighted = [x * pdf(x) if mp.isfinite(x) else mp.mpf(0) for x in (a, b)]
    mean = (pdf(a) - pdf(b)) / z
    variance = 1 + (weighted[0] - weighted[1]) / z - mean**2
    return mp.log(z), mean, mean - a, b - mean, variance, 1 / variance - 1


def site(mean, variance, tilted_mean, tilted_variance):
    """Natural parameters of tilted / cavity, after the first two derivatives of log Z in the cavity mean."""
    d1 = (tilted_mean - mean) / variance
    d2 = (tilted_variance - variance) / variance**2
    return d1, d2, tilted_mean / tilted_variance - mean / variance, 1 / tilted_variance - 1 / variance


def probit(y, nu, tau):
    mean, variance = mp.mpf(nu) / mp.mpf(tau), 1 / mp.mpf(tau)
    scale = mp.sqrt(1 + variance)
    log_z, a, _, b, *_ = one_sided(y * mean / scale)
    tilted_mean = mean + variance * y * a / scale
    return log_z, *site(mean, variance, tilted_mean, variance - variance**2 * b / scale**2)


def truncation(lower, upper, nu, tau):
    mean, variance = mp.mpf(nu) / mp.mpf(tau), 1 / mp.mpf(tau)
    scale = mp.sqrt(variance)
    log_z, shift, _, _, shrink, _ = interval((lower - mean) / scale, (upper - mean) / scale)
    return log_z, *site(mean, variance, mean + scale * shift, variance * shrink)


def margins():
    tail = [*np.linspace(-math.sqrt(2000), math.sqrt(2000), 121), -2.999, 2.999, -3.001, 1e-9, -1e-9, 1e-300]
    far = [s * m * 10.0**k for s in (-1, 1) for k in range(2, 8) for m in (1.0, 3.3)] + [1e8, -1e8]
    return sorted({float(z) for z in [*tail, *far]})


def bounds():
    pairs = set()
    for centre in (0.0, 1e-6, -0.3, 1.0, -3.7, 8.0, 37.0, -1e2, 1e3, -1e5, 1e8):
        for width in [m * 10.0**k for k in range(-8, 9) for m in (1.0, 3.0)]:
            pairs.add((centre - width / 2, centre + width / 2))
    # From one bound, by how far the density falls across the interval: this crosses every switch between the forms.
    for near in (0.0, 0.1, 1.0, 6.0, 30.0, 1e3, 1e8):
        for fall in (1e-6, 0.1, 1.0, 5.0, 20.0, 40.0, 49.9, 50.1, 80.0, 700.0):
            far = near + 2 * fall / (near + math.sqrt(near * near + 2 * fall))
            pairs |= {(near, far), (-far, -near)}
    for below in (1e-3, 0.4, 1.2, 1.49, 1.51, 2.6, 5.03, 12.07, 36.93):
        for ratio in (1.0, 1.0 + 1e-9, 1.3, 4.0, 30.0):
            pairs |= {(-below, below * ratio), (-below * ratio, below)}
    for bound in (-1e8, -1e3, -36.6, -9.9, -2.3, -0.1, 0.0, 0.1, 2.3, 9.9, 36.6, 1e3, 1e8):
        pairs |= {(bound, math.inf), (-math.inf, bound)}
    pairs.add((-math.inf, math.inf))
    return sorted((a, b) for a, b in pairs if a < b)


def natural(mean, variance):
    return mean / variance, 1 / variance


def probit_sites():
    margins = (-1e8, -1e4, -300.0, -30.1, -7.7, -2.9, -0.6, 0.0, 0.7, 3.1, 9.3, 30.3)
    for variance in (1e-12, 1e-4, 0.3, 1.0, 1e4, 1e12):
        for z in margins:
            for y in (1.0, -1.0):
                yield y, *natural(y * z * math.sqrt(1 + variance), variance)


def truncation_sites():
    for variance in (1e-12, 1.7, 1e12):
        s = math.sqrt(variance)
        for z in (-1e8, -1e4, -30.1, -3.3, -0.4, 0.0, 0.6, 3.7, 12.3, 29.9):
            yield 0.0, math.inf, *natural(z * s, variance)
            yield -math.inf, 0.0, *natural(-z * s, variance)
        for z in (-29.7, -2.2, 0.8, 6.1, 28.3):
            yield 1.6 * s, math.inf, *natural((1.6 + z) * s, variance)
            yield -math.inf, 2.3 * s, *natural((2.3 - z) * s, variance)
        for width in (1e-8, 1e-5, 1e-2, 0.9, 3.0, 17.0, 1e3, 1e8):
            for centre in (0.3, -4.1, 29.3, -1e3):
                yield (centre - width / 2) * s, (centre + width / 2) * s, *natural(1.2 * s, variance)
    yield -math.inf, math.inf, 0.3, 0.7


def main():
    rows = [("one_sided", (z,), one_sided) for z in margins()]
    rows += [("interval", pair, interval) for pair in bounds()]
    rows += [("probit", inputs, probit) for inputs in probit_sites()]
    rows += [("truncation", inputs, truncation) for inputs in truncation_sites()]
    with TABLE.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(HEADER)
        for kind, inputs, function in rows:
            blank = [""] * (4 - len(inputs))
            table.writerow([kind, *map(repr, inputs), *blank, *(repr(float(v)) for v in function(*inputs))])


if __name__ == "__main__":
    main()
