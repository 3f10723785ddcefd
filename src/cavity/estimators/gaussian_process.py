"""What the Gaussian process estimators share: their kernel, made or given, and the fit of one process."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cavity.estimators.approximation import choose, in_words
from cavity.estimators.defaults import as_given, deviations, fixed, suitable_kernel
from cavity.estimators.progress import listeners
from cavity.factors import Factor
from cavity.models.latent_gaussian import ExactGP, SparseGP, fit_exact_gp, fit_sparse_gp
from cavity.models.latent_gaussian.unique_rows import UniqueRows


class GaussianProcess:
    """Mixed into an estimator with the parameters kernel, approximation, rank, method, optimize, restarts, …"""

    kernel: Any
    approximation: Any
    rank: Any
    random_state: Any
    method: Any
    optimize: bool
    restarts: int
    verbose: Any

    def _fit_process(
        self,
        merged: UniqueRows,
        factor: Factor,
        free: tuple[str, ...],
        seed: int,
        name: str = "",
        amplitude: bool = True,
        bias: float = 0.0,
    ) -> ExactGP | SparseGP:
        """The machine of a set of sites.

        Args:
            merged: the sites.
            factor: their likelihood.
            free: its parameters that are learned, whether or not the kernel's are.
            seed: of restarts.
            name: which machine this is, for the lines of `verbose`.
            amplitude: whether the kernel for None has a variance to be learned.
            bias: variance of a constant added to the kernel for None.
        """
        kernel = suitable_kernel(self.kernel, merged.X, amplitude=amplitude, bias=bias)
        check_restarts(self.restarts, kernel)
        # Without a random_state a fit has no random numbers: points and features are those of one seed.
        fixed_seed = 0 if self.random_state is None else seed
        choice = choose(self.approximation, self.rank, kernel, merged, fixed_seed, type(self).__name__)
        known: dict[str, Any] = {
            "kernel": kernel if self.optimize or not free else fixed(kernel),
            "factor": factor,
            "copies": merged.copies,
            "exponents": merged.exponents,
            "method": self.method,
            "optimize": bool(self.optimize or free),
            "free": free,
            "deviations": deviations(self.kernel, kernel) if self.optimize else None,
            "restarts": self.restarts,
            "seed": seed,
            **listeners(self.verbose, f"{type(self).__name__}{name}"),
        }
        if choice.basis is None:
            return fit_exact_gp(merged.X, merged.y, **known)
        learn_inputs = choice.learn_inputs and self.optimize
        return fit_sparse_gp(merged.X, merged.y, basis=choice.basis, learn_inputs=learn_inputs, **known)

    def _summarise(self, machines: Sequence[Any]) -> None:
        super()._summarise(machines)  # type: ignore[misc]
        kernels = [as_given(machine.kernel) for machine in machines]
        self.kernel_ = kernels[0] if len(kernels) == 1 else kernels
        self.approximation_ = ", ".join(dict.fromkeys(in_words(machine) for machine in machines))


def check_restarts(restarts: Any, kernel: Any) -> None:
    """A whole number from 0; above it the search needs bounds to draw its starts from."""
    if isinstance(restarts, bool) or not isinstance(restarts, int | np.integer) or restarts < 0:
        raise ValueError(f"restarts must be a whole number from 0; found {restarts!r}.")
    if restarts and not np.isfinite(kernel.bounds).all():
        place = int(np.argmin(np.isfinite(kernel.bounds).all(axis=1)))
        low, high = np.exp(kernel.bounds[place])
        raise ValueError(
            f"restarts draws starts within the kernel's bounds, which must be finite and above 0; found ({low:g}, "
            f"{high:g}) for {kernel.names[place]}."
        )
