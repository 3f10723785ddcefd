"""What a run returns: q, sites, evidence, and a truthful account of how it ended."""

import dataclasses
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity._core.precision import float64, is_traced, to_numpy
from cavity._core.pytrees import pytree_dataclass, static
from cavity.inference._evidence import leave_one_out
from cavity.inference._outcome import SILENT, StatusRule, outcome_of
from cavity.inference._visit import Report, State
from cavity.inference.check import Check, check, from_draws
from cavity.inference.energy import Energy, energy
from cavity.inference.problem import Problem
from cavity.inference.status import CODES, Attempt, Result, Status
from cavity.inference.update_rule import UpdateRule
from cavity.posteriors.base import Posterior


@pytree_dataclass
class Solution(Result):
    """The result of `infer`. What comes by group is a tuple with one entry per group, one row per site.

    A pytree, which `jit` and `vmap` hand on. `model.interpret(solution)` adds what only the model knows, such as the
    marginals of a graph by name or predictions; outside `jit` and `vmap`, `infer(model)` has done this already.

    Attributes:
        problem: what was solved.
        q: the posterior as its strategy stores it; `view` looks at it.
        sites: natural parameters of the sites, by group.
        log_scales: log sᵢ of every site (thesis 3.39), by group.
        log_evidence: estimate of log p(D) (3.40).
        code: the number of the `status`.
        sweeps: sweeps made.
        residuals: the largest mismatch met while visiting the sites, sweep by sweep.
        mismatch: the largest moment mismatch over all sites, measured at this very state.
        site_mismatch: the same for every site, by group.
        skipped: visits that left a site alone because its cavity was improper, over the whole run.
        nonfinite: visits that left a site alone because its factor gave no finite moments.
        unsure: visits that left a site alone because its moments were not known well enough, as those of a learned
            factor before it has asked.
        shortened: visits whose step was shortened to keep q proper.
        evaluations: factor evaluations spent on visits; measuring the state returned costs one more pass.
        info: what the moments strategy reported for every site, by group.
        seconds: wall time of the run.
        memory: what the projection remembers of every site, by group; of relaxed EP the strengths of relaxation.
        moments: what the moments strategies had learned, by group; empty where they do not learn.
        method: the method that answered; as text, its words.
        attempts: what an `Auto` run tried, and why it fell back.

    Examples:
        >>> import cavity as cv
        >>> solution = cv.infer(cv.models.clutter([0.3, 1.8, 2.1, 2.4, -3.0]))
        >>> print(solution.status, solution.log_evidence.round(3))
        converged -12.257
        >>> print(solution.mean.round(3), solution.covariance.round(3), solution.sites[0].shape)
        1.769 0.669 (5, 2)
    """

    problem: Problem
    q: Any
    sites: tuple[Any, ...]
    log_scales: tuple[Any, ...]
    log_evidence: Any
    code: Any
    sweeps: Any
    residuals: Any
    mismatch: Any
    site_mismatch: tuple[Any, ...]
    skipped: Any
    nonfinite: Any
    unsure: Any
    shortened: Any
    evaluations: Any
    info: tuple[dict[str, Any], ...]
    seconds: Any = float("nan")
    memory: tuple[Any, ...] = ()
    moments: tuple[Any, ...] = ()
    method: Any = None
    attempts: tuple[Attempt, ...] = static(default=())

    @property
    def status(self) -> Any:  # type: ignore[override]
        """A `Status`; for a stack of solutions an array of their names."""
        if is_traced(self.code) or np.ndim(self.code) > 0:
            return self.code if is_traced(self.code) else np.array([str(s) for s in CODES])[np.asarray(self.code)]
        return CODES[int(self.code)]

    @property
    def strengths(self) -> tuple[Any, ...]:
        """Strength b of every site's relaxation, by group; 0 where moments are matched as in EP."""
        return tuple(
            own[..., 0] if np.shape(own)[-1:] == (1,) else np.zeros(np.shape(sites)[:-1])
            for own, sites in zip(self.memory or self.sites, self.sites, strict=True)
        )

    @property
    @float64
    def negative(self) -> Any:
        """How many sites have a negative precision or exponent. Allowed, but a sign of a hard posterior."""
        counts = [
            jnp.sum(group.family.is_negative(jnp.asarray(own)), axis=-1)
            for group, own in zip(self.problem.groups, self.sites, strict=True)
        ]
        return sum(counts[1:], counts[0])

    @float64
    def view(self, name: str) -> Any:
        """A named view of q, such as "mean", "covariance" or "variance"; `solution.variance` is the same.

        Args:
            name: of the view; which there are depends on the posterior.

        Returns:
            An array; for a stack of solutions with the stack's axes in front.

        Raises:
            AttributeError: the posterior has no view of this name; the sentence lists those it has.
        """

        def look(prior: Any, q: Any) -> jax.Array:
            views = self.problem.posterior.views(prior, q)
            if name not in views:
                raise AttributeError(f"This solution has no {name}; it has {', '.join(views)}.{self._where(name)}")
            return views[name]()

        for _ in range(np.ndim(self.code)):
            look = jax.vmap(look)
        return to_numpy(look(self.problem.prior, self.q))

    def _where(self, name: str) -> str:
        """The end of an error message: where a view may be found that this bare solution does not have."""
        known = type(self) is not Solution or name not in ("marginals", "pair", "predict")
        return "" if known else f" A view that only the model knows is in graph.interpret(solution).{name}"

    def __getattr__(self, name: str) -> Any:
        """Views of q that only some posteriors have, such as `variance` or `concentration`."""
        if name.startswith("_") or name in type(self).__dataclass_fields__ or hasattr(type(self), name):
            return object.__getattribute__(self, name)  # raises what was raised before
        return self.view(name)

    @property
    def mean(self) -> Any:
        """Posterior mean."""
        return self.view("mean")

    @property
    def covariance(self) -> Any:
        """Posterior covariance: a number for a scalar, a matrix for a vector."""
        return self.view("covariance")

    @property
    def loo_log_predictive(self) -> tuple[Any, ...]:
        """log p(yᵢ | all data but i), every site's own, by group, from the cavities of this state."""
        found = to_numpy(leave_one_out(self.problem, self.q, self.sites, self.moments))
        return self.problem.raise_failures(found)

    @property
    def power(self) -> float:
        """The power of the factors whose tilted distributions q was matched with: 1 but for Power EP."""
        return getattr(self.method, "power", 1.0)

    @float64
    def energy(self) -> Energy:
        """The EP energy of this state with its gradients, for the power of the run: −log evidence at a fixed point.

        Returns:
            An `Energy`: the value, its slopes in sites and marginals, and the largest slope as a norm.
        """

        def look(problem: Problem, sites: tuple[Any, ...], moments: tuple[Any, ...]) -> Energy:
            return energy(problem, sites, power=self.power, moments=moments)

        for _ in range(np.ndim(self.code)):
            look = jax.vmap(look)
        return self.problem.raise_failures(to_numpy(look(self.problem, self.sites, self.moments)))

    @float64
    def sample(self, key: jax.Array, draws: int) -> Any:
        """Independent draws from q.

        Args:
            key: random key, as `jax.random.key(0)` makes it.
            draws: how many.

        Returns:
            The draws, along the first axis of an array; of a graph a tuple of such arrays, one per family.
        """
        prior, q = jax.tree.map(jnp.asarray, (self.problem.prior, self.q))
        return self.problem.posterior.sample(checks.random_key("key", key), prior, q, draws)

    @float64
    def log_density(self, x: Any) -> Any:
        """log q(x).

        Args:
            x: values laid out as `sample` returns them.

        Returns:
            One number per value.
        """
        return self.problem.posterior.log_density(self.problem.prior, self.q, jax.tree.map(jnp.asarray, x))

    def check(self, draws: int = 4000, key: jax.Array | None = None) -> Check:
        """An estimate of how far this answer is from the exact one, by importance sampling of the exact posterior.

        Its verdict is about the log evidence: "EP agrees", "EP is off", or "inconclusive", as in high dimension. It
        takes factors that have a log density. Corrected moments come with it.

        Args:
            draws: importance draws, at least 100.
            key: random key; a fixed one is used when None.

        Returns:
            A `Check`: the verdict with its sentence, the estimates with their errors, and the weighted draws.

        Raises:
            ValueError: the solution is a stack, `draws` is no whole number of at least 100, or q and the prior are both
                improper.
            MissingDensity: a factor has no log density.
            TypeError: the posterior does not support it, as that of a tree.
        """
        return check(self, draws, key)

    def to_arviz(self, draws: int = 1000, key: jax.Array | None = None) -> Any:
        """An arviz.InferenceData with draws from q, log tᵢ of every site, and log evidence, status and method.

        Needs the extra `cavity[arviz]` and factors that have a log density. For draws of the exact posterior see
        `check().to_arviz()`.

        Args:
            draws: from q, in one chain.
            key: random key; a fixed one is used when None.

        Returns:
            The `arviz.InferenceData`, its variables named as the model names them.

        Raises:
            ValueError: the solution is a stack.
            MissingDensity: a factor has no log density.
            ImportError: ArviZ is not installed.
        """
        if np.ndim(self.code) > 0:
            raise ValueError(f"to_arviz takes one solution at a time; found a stack of shape {np.shape(self.code)}.")
        x = self.sample(jax.random.key(0) if key is None else key, draws)
        attributes = {"log_evidence": float(self.log_evidence), "status": str(self.status), "method": str(self.method)}
        return from_draws(self.problem, x, self.by_name(jax.tree.map(np.asarray, x)), attributes)

    def by_name(self, x: Any) -> Any:
        """Draws as the model's user calls them: as they are, or a dictionary by variable."""
        return x

    def ended(self, status: Status) -> "Solution":
        """The same state, marked as where this stopped the run; a claim of convergence stays."""
        return self if self.converged else dataclasses.replace(self, code=np.asarray(CODES.index(status)))

    def interrupted(self) -> "Solution":
        """The same state, marked as where an interruption stopped the run."""
        return self.ended(Status.INTERRUPTED)

    def __str__(self) -> str:
        if is_traced(self.code) or np.ndim(self.code) > 0:
            return f"Solution of {np.shape(self.code)} problems"
        left = "".join(f"{attempt.method}: {attempt.reason}. " for attempt in self.attempts if attempt.reason)
        return (
            f"{left}{self.status} after {int(self.sweeps)} sweeps, mismatch {float(self.mismatch):.1e}, "
            f"log evidence {float(self.log_evidence):.6g}. {self.status.sentence}"
        )


@dataclasses.dataclass(frozen=True, eq=False)
class ModelSolution(Solution):
    """A solution as a model interprets it: the same fields, with what the model knows beside them.

    It lives on the host and is no pytree, so that names never travel through a compiled program.
    """

    @classmethod
    def of_graph(cls, solution: Solution, names: np.uint32, **known: Any) -> Self:
        """The solution with what a graph knows.

        Args:
            solution: as it was found.
            names: the checksum of the graph's names.
            known: the fields of this class.

        Raises:
            ValueError: if the problem that was solved is of a graph with other names, or the same in another order.
        """
        if solution.problem.names is not None and (np.asarray(solution.problem.names) != names).any():
            raise ValueError("this solution is of another graph, or of this one before variables were added.")
        return cls.of(solution, **known)

    @classmethod
    def of(cls, solution: Solution, **known: Any) -> Self:
        """The solution with what a model knows."""
        own = {field.name: getattr(solution, field.name) for field in dataclasses.fields(Solution)} | known
        return cls(**{name: to_numpy(value) for name, value in own.items()})


def as_solution(
    problem: Problem,
    method: UpdateRule,
    state: State,
    report: Report,
    evidence: jax.Array,
    unfinished: Status = Status.MAX_SWEEPS,
    seconds: float = float("nan"),
) -> Solution:
    """The solution for a state, with the status that its own measurement supports, `unfinished` where it is silent."""
    costs = tuple(method.projection.tilts * group.moments.evaluations(group.family) for group in problem.groups)
    rule = StatusRule.of(problem.posterior, method)
    outcome = outcome_of(rule, method.tol, costs, state.q, report, state.counts, state.residuals)
    if unfinished is Status.RUNNING:
        code: Any = np.asarray(CODES.index(Status.RUNNING))
    else:
        library = jnp if is_traced(outcome.code) else np
        code = library.asarray(outcome.code)
        code = library.where(code == SILENT, CODES.index(unfinished), code)
    return Solution(
        problem=problem,
        q=problem.posterior.kept(state.q),
        sites=state.sites,
        memory=state.memory,
        moments=state.moments,
        log_scales=state.log_scales,
        log_evidence=evidence,
        code=code,
        sweeps=state.sweep,
        residuals=outcome.residuals,
        mismatch=outcome.mismatch,
        site_mismatch=outcome.site_mismatch,
        skipped=state.counts.improper_cavity,
        nonfinite=state.counts.nonfinite,
        unsure=state.counts.unsure,
        shortened=state.counts.shortened,
        evaluations=outcome.evaluations,
        info=report.info,
        seconds=np.asarray(seconds),
        method=method,
    )


def status_code(
    posterior: Posterior, method: UpdateRule, q: Any, report: Report, unfinished: Status, left_out: Any = False
) -> jax.Array:
    """The place in `CODES` of the status, from what was measured at the final q; the first that applies.

    Args:
        posterior: the strategy that stores q.
        method: the method that ran.
        q: at the end.
        report: what was measured there.
        unfinished: the status where the report names none.
        left_out: whether visits were left out, in a single pass for good.

    Returns:
        A number, also under `jit`: `list(Status)[code]` is the status.

    Examples:
        >>> import cavity as cv
        >>> problem, method = cv.models.clutter([0.1, 2.3, 1.9]), cv.EP()
        >>> state = cv.stepping.init(problem, method)
        >>> report = cv.stepping.measure(problem, method, state)
        >>> code = cv.stepping.status_code(problem.posterior, method, state.q, report, cv.Status.MAX_SWEEPS)
        >>> print(list(cv.Status)[int(code)])
        max_sweeps
    """
    code = StatusRule.of(posterior, method)(method.tol, q, report, left_out)
    return jnp.where(code == SILENT, CODES.index(unfinished), code)
