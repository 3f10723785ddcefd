"""Fitted latent Gaussian models: what the estimators are made of. Arrays in, arrays out, nothing of scikit-learn."""

from cavity.models.machines.kernel import KernelMachine, fit_kernel_machine
from cavity.models.machines.linear import LinearMachine, absorb_rows, fit_linear_machine, refine
from cavity.models.machines.low_rank import LowRankMachine, fit_low_rank_machine

__all__ = [
    "KernelMachine",
    "LinearMachine",
    "LowRankMachine",
    "absorb_rows",
    "fit_kernel_machine",
    "fit_linear_machine",
    "fit_low_rank_machine",
    "refine",
]
