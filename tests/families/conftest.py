"""The families under test, and a few members of each that are neither tiny nor huge."""

import numpy as np
import pytest
from support import Compiled

from cavity.families import (
    Beta,
    Categorical,
    DiagonalGaussian,
    Dirichlet,
    FullGaussian,
    Gamma,
    Gaussian,
    Product,
    SphericalGaussian,
)

FULL = [0.3, -1.0, 2.0, 0.4, 0.4, 1.5]
OTHER_FULL = [1.0, 0.2, 1.2, -0.3, -0.3, 0.8]
MEMBERS = {
    "gaussian": (Gaussian(), [1.2, 0.7], [-0.4, 2.5]),
    "spherical": (SphericalGaussian(3), [0.5, -1.0, 2.0, 1.5], [0.1, 0.2, 0.3, 0.6]),
    "diagonal": (DiagonalGaussian(2), [0.5, -1.0, 1.5, 0.3], [1.0, 0.4, 0.7, 2.0]),
    "full": (FullGaussian(2), FULL, OTHER_FULL),
    "beta": (Beta(), [2.5, 0.8], [1.3, 4.0]),
    "gamma": (Gamma(), [1.7, 0.6], [3.0, 2.0]),
    "dirichlet": (Dirichlet(4), [0.6, 2.0, 1.5, 5.0], [1.0, 1.2, 3.0, 0.9]),
    "categorical": (Categorical(3), [0.1, -1.0, 2.0, 0.0, 0.0, 0.0], [0.5, 0.2, -0.4, 0.0, 0.0, 0.0]),
    "product": (Product((Gaussian(), Beta())), [1.2, 0.7, 2.5, 0.8], [-0.4, 2.5, 1.3, 4.0]),
}


@pytest.fixture(params=MEMBERS.values(), ids=MEMBERS.keys())
def member(request):
    """(family, natural parameters, natural parameters of another member)."""
    family, eta, other = request.param
    return Compiled(family), np.array(eta), np.array(other)
