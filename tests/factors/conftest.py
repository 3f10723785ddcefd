"""Rows of likelihoods.csv and the measure of error that the likelihood tests share."""

import csv
from pathlib import Path

import numpy as np
import pytest

TABLE = Path(__file__).parents[1] / "tables" / "likelihoods.csv"


class Rows:
    """Columns of the rows of one kind as arrays; `select` keeps some of them."""

    def __init__(self, columns):
        self.columns = columns
        self.y, self.a, self.b, self.power = (columns[:, k] for k in range(4))
        self.cavity, self.true, self.terms = columns[:, 4:6], columns[:, 6:11], columns[:, 11]
        self.mean, self.variance = self.cavity[:, 0] / self.cavity[:, 1], 1 / self.cavity[:, 1]

    def select(self, keep):
        return Rows(self.columns[keep])

    def errors(self, tilted):
        """Errors of (log Z, d1, d2, nu, tau), relative to the true value, with two exceptions.

        Where tau or nu is less than a thousandth of the terms of opposite sign it is the sum of, the error is measured
        against those terms: `terms` of the table for tau (and, times the tilted variance, d2), |d1|/V + |tau m| for nu.
        A true value below 1e-300, as it stands or in units of the cavity's deviation, may be 0.
        """
        found = np.column_stack([np.reshape(part, (len(self.y), -1)) for part in tilted])
        d1, tau = self.true[:, 1], self.true[:, 4]
        ratio = 1 / (1 + self.variance * tau)
        size = np.abs(self.true)
        gathered = np.abs(d1) / ratio + np.abs(tau * self.mean)
        size[:, 3] = np.where(size[:, 3] < 1e-3 * gathered, gathered, size[:, 3])
        crossing = np.abs(tau) < 1e-3 * np.nan_to_num(self.terms)
        size[:, 4] = np.where(crossing, self.terms, size[:, 4])
        size[:, 2] = np.where(crossing, self.terms * ratio, size[:, 2])
        unit = self.variance[:, None] ** np.array([0, 0.5, 1, 0.5, 1])
        return np.abs(found - self.true) / np.maximum(size, 1e-300 / np.minimum(unit, 1))


@pytest.fixture(scope="session")
def likelihoods():
    """The rows of the given kinds."""
    with TABLE.open(newline="") as file:
        table = list(csv.reader(file))[1:]

    def rows(*kinds):
        chosen = [row[1:] for row in table if row[0] in kinds]
        return Rows(np.array([[float(v) if v else np.nan for v in row] for row in chosen]))

    return rows
