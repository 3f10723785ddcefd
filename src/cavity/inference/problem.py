"""A problem: a prior and a tuple of site groups. Models and graphs assemble it; inference never chooses.

A problem and its groups are JAX pytrees (arrays are leaves, strategies are static), so a stack of equal problems can be
mapped with `jax.vmap` and a new data set of the same shape does not compile again.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity._core.precision import is_traced
from cavity._core.pytrees import pytree_dataclass, static
from cavity._core.tiers import tiered_jit
from cavity.factors.base import Factor
from cavity.families.base import Family
from cavity.inference.schedule import InOrder, Schedule
from cavity.inference.update_rule import UpdateRule
from cavity.moments.base import Moments
from cavity.posteriors.base import Posterior


class SweepKernel(ABC):
    """A faster way to do what the loop does, for problems that know one.

    A kernel changes no result but for rounding. `applies` tells for which methods it is; with others the problem is
    swept by the loop. Strategies are frozen dataclasses: hashable, static under `jit`.
    """

    @abstractmethod
    def applies(self, problem: "Problem", method: UpdateRule) -> bool:
        """Whether the kernel is for this problem and method: then it sweeps and measures.

        Args:
            problem: that is to be solved; its arrays may be traced.
            method: the update rule of its sweeps.

        Returns:
            Whether it is.
        """

    @abstractmethod
    def sweep_while(
        self, problem: "Problem", method: UpdateRule, state: Any, moving: Callable[[Any], jax.Array]
    ) -> Any:
        """Sweeps while `moving`, which looks at `mismatch` and `sweep` of what it is given.

        Args:
            problem: one that the kernel `applies` to.
            method: the update rule.
            state: of the run so far.
            moving: whether to make another sweep, a traced boolean.

        Returns:
            The state after the last sweep.
        """

    @abstractmethod
    def measure(self, problem: "Problem", method: UpdateRule, state: Any) -> Any:
        """Mismatch and scale of every site at the given state.

        Args:
            problem: one that the kernel `applies` to.
            method: the update rule.
            state: of the run so far; it is not changed.

        Returns:
            What the loop's own measurement gives.
        """


IN_ORDER = InOrder()


@pytree_dataclass
class SiteGroup:
    """Factors of one kind, one site each.

    Attributes:
        factor: the term t(x; data) of the sites, one of `cavity.factors`.
        data: a pytree whose leaves have the site as leading axis.
        family: what a site's message is.
        moments: how tilted distributions are integrated.
        multiplicity: site i stands for that many equal factors: q holds so many copies of it, the cavity removes one
            and the evidence counts all. None means one each; booleans say which factors are there, see `as_mask`.
        scope: the part of q the group acts on, in the posterior's own terms.

    Examples:
        >>> import cavity as cv
        >>> import numpy as np
        >>> labels, family = np.array([1.0, -1.0]), cv.families.Gaussian()
        >>> group = cv.SiteGroup(cv.factors.Probit(), labels, family, cv.ClosedForm(), multiplicity=np.array([3, 2]))
        >>> group.size, float(group.multiplicities.sum())
        (2, 5.0)
    """

    factor: Factor
    data: Any
    family: Family = static()
    moments: Moments = static()
    multiplicity: Any = None
    scope: Any = static(default=None)

    @property
    def size(self) -> int:
        """Number of sites."""
        return jax.tree.leaves(self.data)[0].shape[0]

    @property
    def multiplicities(self) -> jax.Array:
        """Multiplicity as an array of length `size`."""
        return jnp.ones(self.size) if self.multiplicity is None else jnp.asarray(self.multiplicity, float)

    @property
    def at_most_one(self) -> bool:
        """Whether every site stands for one factor or none, which the type of `multiplicity` tells under `jit` too.

        Then a single visit moves q between two proper distributions and needs no check.
        """
        return self.multiplicity is None or getattr(self.multiplicity, "dtype", None) == np.bool_


@pytree_dataclass
class Problem:
    """prior(x) ∏ tᵢ(x), with the posterior strategy that stores q.

    Data and nothing else: names, and how new observations are predicted, stay with the model, whose `interpret` adds
    them to a solution.

    Attributes:
        prior: p(x) in the form that the posterior strategy takes, such as natural parameters.
        groups: the sites, one group for every kind of factor.
        posterior: how q is stored, one of `cavity.posteriors`.
        schedule: the order in which a method that names none visits the sites.
        sweep_kernel: a faster way to make sweeps, where there is one.
        names: a checksum of what the model calls its variables, and in which order, by which it knows its solutions
            again; None where there is no model.

    Examples:
        Three labels under Φ(θ) with θ ~ N(0, 1), whose evidence is ∫ u² (1 − u) du = 1/12:

        >>> import cavity as cv
        >>> import numpy as np
        >>> family = cv.families.Gaussian()
        >>> group = cv.SiteGroup(cv.factors.Probit(), np.array([1.0, 1.0, -1.0]), family, cv.ClosedForm())
        >>> problem = cv.Problem(family.from_mean(0.0, 1.0), (group,), cv.posteriors.Shared(family))
        >>> print(np.exp(cv.infer(problem).log_evidence).round(3))
        0.083
    """

    prior: Any
    groups: tuple[SiteGroup, ...]
    posterior: Posterior = static()
    schedule: Schedule = static(default=IN_ORDER)
    sweep_kernel: SweepKernel | None = static(default=None)
    names: Any = None

    def with_moments(self, moments: Moments) -> "Problem":
        """The same problem with every group integrated by `moments`."""
        return dataclasses.replace(
            self, groups=tuple(dataclasses.replace(group, moments=moments) for group in self.groups)
        )

    def problem(self) -> "Problem":
        """Itself: `infer` takes anything that has this method."""
        return self

    def raise_failures(self, reached: Any) -> Any:
        """What compiled programs reached, unless a user's program failed on the host meanwhile: its error is raised."""
        for group in self.groups:
            group.moments.raise_failure(reached)
        return reached

    def validate(self) -> None:
        """Refuse what cannot be run, in one sentence, before any computing; values being traced are not looked at."""
        if not self.groups:
            raise ValueError("groups is empty: a problem needs at least one group of sites.")
        for number, group in enumerate(self.groups):
            lengths = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(group.data)}
            if len(lengths) != 1 or () in lengths:
                raise ValueError(
                    f"data of group {number} must have the sites as leading axis; found {sorted(lengths)}."
                )
            if lengths == {(0,)}:
                raise ValueError(f"data of group {number} is empty.")
            if not isinstance(group.moments, Moments):
                raise TypeError(f"moments must be a strategy such as cavity.Quadrature(); found {group.moments!r}.")
            group.moments.validate(group.factor, group.family)
            if not is_traced((group.factor, group.data)):
                group.factor.validate(group.data)
            checked_multiplicity(group.multiplicity, group.size)
            for leaf in jax.tree.leaves((group.data, group.multiplicity)):
                checks.refuse_masked(f"data of group {number}", leaf)
                # JAX would read the bytes of another order as if they were in its own.
                if isinstance(leaf, np.ndarray) and not (leaf.dtype.kind in "biuf" and leaf.dtype.isnative):
                    raise ValueError(f"data of group {number} must be numbers as NumPy makes them; found {leaf.dtype}.")
        if not is_traced(self.prior) and not bool(is_valid_prior(self.prior, posterior=self.posterior)):
            raise ValueError("prior is improper: its natural parameters cannot be normalised.")


@tiered_jit(static_argnames=("posterior",))
def is_valid_prior(prior: Any, posterior: Posterior) -> jax.Array:
    """Whether the posterior can start from this prior, by one program where its operations would be some twenty."""
    return posterior.is_valid(prior)


def checked_multiplicity(multiplicity: Any, size: int) -> Any:
    """A new array of multiplicities, one for each of so many sites; None, booleans and what is traced as it is."""
    if multiplicity is None or is_traced(multiplicity):
        return multiplicity
    found = checks.real_numbers("multiplicity", multiplicity)
    if found.shape != (size,):
        raise ValueError(f"multiplicity must have one number per site, shape ({size},); found {found.shape}.")
    # Zero removes a factor, one is one factor; a cavity can not remove a whole copy of a fraction.
    wrong = ~(np.isfinite(found) & ((found == 0) | (found >= 1)))
    if wrong.any():
        raise ValueError(f"multiplicity must be 0 or at least 1; found {found[wrong][0]} at {wrong.argmax()}.")
    return np.array(multiplicity) if getattr(multiplicity, "dtype", None) == np.bool_ else found


def as_mask(multiplicity: np.ndarray) -> np.ndarray:
    """Multiplicities of 0 and 1 as booleans, by which the compiled loop knows that there are no others."""
    ones = multiplicity == 1
    return ones if (ones | (multiplicity == 0)).all() else multiplicity
