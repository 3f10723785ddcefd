"""Methods, one file each; every one is a `Method`: a way to solve a problem."""

from cavity.inference.methods.base import Method
from cavity.inference.methods.convergent import ConvergentEP
from cavity.inference.methods.ladder import Auto
from cavity.inference.methods.sweeps import ADF, EP, PowerEP, RelaxedEP, RestrictedEP, Sweeps

__all__ = ["ADF", "EP", "Auto", "ConvergentEP", "PowerEP", "RelaxedEP", "RestrictedEP"]
__all__ += ["Method", "Sweeps"]
