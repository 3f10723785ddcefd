"""Whether the answer of a latent Gaussian model has its digits, or rounding is seen in it.

Of a kernel matrix K with weighted site precisions T the answer rests on (K + T⁻¹)⁻¹, whose diagonal is τ (1 − τ Σ): an
error of K of the size ε K moves mean, variance and evidence by that product. Of weights, a latent xᵀw is a sum that
rounds, by ε |x| |w|, which a site of precision τ sees in units of τ^−½.
"""

import warnings

import numpy as np

from cavity.inference.solution import Solution
from cavity.posteriors.dense_gaussian import DenseGaussian

EPS = float(np.finfo(float).eps)
#: share of an answer that may be rounding without a word, of which the evidence per row loses a tenth; and where the
#: noise was learned, whose lower bound is for observations without any
LOST, LOST_IF_LEARNED = 1e-7, 1e-5


def lost_share(solution: Solution) -> float:
    """Which share of a latent's standard deviation, or so, may be rounding."""
    (group,), (sites,), q = solution.problem.groups, solution.sites, solution.q
    weights = np.ones(group.size) if group.multiplicity is None else np.asarray(group.multiplicity, float)
    tau = np.abs(np.asarray(sites)[:, 1])
    counts = weights > 0
    if isinstance(solution.problem.posterior, DenseGaussian):
        size = np.asarray(solution.problem.prior.covariance.diagonal())
        precise = weights * tau * np.abs(np.asarray(q.weak))
        return EPS * float(np.max(size[counts], initial=0.0) * np.max(precise[counts], initial=0.0))
    size = np.abs(np.asarray(solution.problem.prior.rows)) @ np.abs(np.asarray(q.mean))
    return EPS * float(np.max((np.sqrt(tau) * size)[counts], initial=0.0))


def warn_of_lost_digits(solution: Solution, learned: bool = False) -> None:
    """A warning where so many digits are lost that it should be known. learned: whether the likelihood was.

    Of a run that did not converge, the status says that its numbers are not to be relied on.
    """
    lost = lost_share(solution) if solution.converged else 0.0
    if lost > (LOST_IF_LEARNED if learned else LOST):
        warnings.warn(
            f"Beside the noise the latents are so large, or their prior so nearly singular, that some {lost:.0e} of "
            "mean, standard deviation and log evidence per row may be rounding: scale the columns of X and centre the "
            "observations, or allow for more noise.",
            RuntimeWarning,
            stacklevel=4,
        )
