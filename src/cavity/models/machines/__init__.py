"""Fitted latent Gaussian models: what the estimators are made of. Arrays in, arrays out, nothing of scikit-learn."""

from cavity.models.machines.kernel import KernelMachine, fit_kernel_machine
from cavity.models.machines.linear import LinearMachine, absorb_rows, fit_linear_machine, refine

__all__ = ["KernelMachine", "LinearMachine", "absorb_rows", "fit_kernel_machine", "fit_linear_machine", "refine"]
