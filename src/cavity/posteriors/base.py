"""The contract of a posterior: how q is stored and how a change of sites is absorbed.

A posterior can rebuild q from prior and sites (`refresh`, after every sweep, because updates lose digits) and answers
what part of q a site sees (`marginals`), and what of a value (`factor_arguments`).

Sites that are visited one after another go through *windows*: `begin` opens a pass over the sites in a given order,
`open` takes out what the next few sites need, `local` and `absorb` work inside that window, `close` puts the outcome
back into the pass. A posterior without windows has one, q itself. Shapes: docs/notation.md.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from jaxtyping import Array, Bool, Float, Int, Key

Q = Pass = Window = Any


class Equations(NamedTuple):
    """One group's part of the linear equations M_i Σ_j F_ij w_j x_j + D_i x_i = g_i for changes x of all sites.

    F_ij is the covariance under q of the statistics of sites i and j, w_j the multiplicity of site j, all in the
    families' local coordinates at the marginals that the sites see. mixing: M; own: D, a matrix per site; right: g.
    """

    scope: Any
    multiplicity: Float[Array, " sites"]
    mixing: Float[Array, "sites l l"]
    own: Float[Array, "sites l l"]
    right: Float[Array, "sites l"]


class Coordinates(NamedTuple):
    """Minimal coordinates z of a Gaussian prior, independent and standard: x = centre + root z, z ~ N(0, I).

    centre has the shape of a value, root one row per entry of it. There may be fewer of z than of x.
    mean, covariance: of z under q, not finite where q is improper.
    """

    centre: Any
    root: Any
    mean: Any
    covariance: Any


class Posterior(ABC):
    """How q is stored, and how it absorbs a change of sites; `scope` says what a group of sites acts on.

    Subclasses are frozen dataclasses: hashable, static under `jit`.

    Examples:
        >>> import cavity as cv
        >>> problem = cv.models.clutter([0.3, 1.8, 2.1])
        >>> isinstance(problem.posterior, cv.posteriors.Posterior), type(problem.posterior).__name__
        (True, 'Shared')
        >>> q = problem.posterior.flat(problem.prior)
        >>> bool(problem.posterior.is_normalisable(q)), sorted(problem.posterior.views(problem.prior, q))
        (True, ['covariance', 'mean'])
    """

    #: what a value is called where draws are handed to others
    variable: ClassVar[str] = "x"

    @abstractmethod
    def refresh(self, prior: Any, groups: tuple[tuple[Any, Float[Array, "_sites _k"]], ...]) -> Q:
        """q = prior × sites, from pairs (scope, the group's weighted sites).

        Args:
            prior: in the form the posterior takes, like q made of numbers alone.
            groups: a pair for every group; weighted sites are natural parameters times the sites' multiplicity.

        Returns:
            q; `is_valid` says whether it is proper.
        """

    def flat(self, prior: Any) -> Q:
        """q = prior, as it is before any site.

        Args:
            prior: as in `refresh`.

        Returns:
            q.
        """
        return self.refresh(prior, ())

    @abstractmethod
    def marginals(self, prior: Any, q: Q, scope: Any, index: Int[Array, " sites"]) -> Float[Array, "sites k"]:
        """Natural parameters of the marginal of q that sites `index` (a vector) of a group see, one row per site.

        Args:
            prior: as in `refresh`.
            q: as in `refresh`.
            scope: of the group.
            index: numbers of the sites; they may repeat.

        Returns:
            One row per number.
        """

    def window_sizes(self, size: int, block: int) -> tuple[int, ...]:
        """Sites a window of a pass over `size` sites holds, then the windows inside it; empty where q is its own.

        Args:
            size: sites of the pass.
            block: the sites that are visited together.

        Returns:
            Sizes from the outermost window to the innermost.
        """
        return ()

    def begin(self, prior: Any, q: Q, scope: Any, order: Any, width: int) -> Pass:
        """A pass over the sites `order` (a vector), to be visited in windows of `width` sites.

        Args:
            prior: as in `refresh`.
            q: as in `refresh`.
            scope: of the group that is visited.
            order: numbers of the sites.
            width: sites of an outermost window.

        Returns:
            The pass, which holds what its windows are opened from.
        """
        return q

    def open(self, prior: Any, passed: Pass, scope: Any, number: Int[Array, ""], index: Int[Array, " sites"]) -> Window:
        """Window `number` of a pass or of a window: what its sites `index` need, all earlier ones absorbed.

        Args:
            prior: as in `refresh`.
            passed: the pass or window that it is taken out of.
            scope: of the group that is visited.
            number: from 0; windows are opened in order, each after the one before is closed.
            index: numbers of the sites in it.

        Returns:
            The window.
        """
        return passed

    def close(self, passed: Pass, number: Int[Array, ""], window: Window) -> Pass:
        """The pass, or the outer window, after its window `number`.

        Args:
            passed: as it was when the window was opened.
            number: of the window.
            window: with all changes absorbed.

        Returns:
            What the next window is opened from; after the last one of a posterior without windows, q.
        """
        return window

    @abstractmethod
    def local(self, window: Window, scope: Any, place: Any) -> Float[Array, "sites k"]:
        """`marginals` inside a window, of the sites at `place` in it, or of all of them where that is None.

        Args:
            window: as `open` or `absorb` gives it.
            scope: of the group that is visited.
            place: positions in the window, or None.

        Returns:
            Natural parameters, one row per site.
        """

    def local_cavities(
        self, window: Window, scope: Any, place: Any, removed: Float[Array, "sites k"]
    ) -> tuple[Float[Array, "sites k"], Float[Array, "sites k"]]:
        """`cavities` inside a window, of the sites at `place` in it.

        Args:
            window: as for `local`.
            scope: as for `local`.
            place: as for `local`.
            removed: natural parameters to be taken out, one row per site.

        Returns:
            Natural parameters of the marginals and of the cavities.
        """
        seen = self.local(window, scope, place)
        return seen, seen - removed

    @abstractmethod
    def absorb(self, window: Window, scope: Any, place: Any, change: Float[Array, "sites k"]) -> Window:
        """The window times the weighted changes (one row per site) of the sites at `place`.

        Where that is None all sites of the window change at once, and nothing but `close` is done with it any more.

        Args:
            window: as `open` or `absorb` gives it.
            scope: of the group that is visited.
            place: positions in the window, or None.
            change: of natural parameters, times the sites' multiplicity.

        Returns:
            The window after the change.
        """

    def can_solve(self, prior: Any, sites: int) -> bool:
        """Whether `solve` is known and affordable for so many sites.

        Args:
            prior: as in `refresh`.
            sites: of all groups.

        Returns:
            Whether it is.
        """
        return False

    def solve(self, prior: Any, q: Q, groups: tuple[Equations, ...]) -> tuple[Float[Array, "_sites _l"], ...]:
        """The changes x of all sites, by group, that solve the equations.

        Args:
            prior: as in `refresh`.
            q: where the equations were made.
            groups: the equations of every group.

        Returns:
            Local coordinates, one array per group.

        Raises:
            NotImplementedError: the posterior cannot, as `can_solve` says.
        """
        raise NotImplementedError

    @abstractmethod
    def is_valid(self, q: Q) -> Bool[Array, ""]:
        """Whether no part of q, of a window or of the prior is improper.

        A part that no factor has acted on yet, uniform over the whole line, counts as valid.

        Args:
            q: it, a window, or the prior.

        Returns:
            One boolean.
        """

    def is_normalisable(self, q: Q) -> Bool[Array, ""]:
        """Whether q can be normalised: valid, and no part of it uniform over the whole line.

        Args:
            q: it, or the prior.

        Returns:
            One boolean.
        """
        return self.is_valid(q)

    @abstractmethod
    def log_partition(self, q: Q) -> Float[Array, ""]:
        """Log normaliser of q, or of the prior when given the prior; both up to the same constant.

        Args:
            q: it, or the prior.

        Returns:
            One number.
        """

    def log_mass(self, prior: Any) -> Float[Array, ""]:
        """log ∫ prior: 0 of a density, something else where weights of single variables count as factors.

        Args:
            prior: as the problem has it.

        Returns:
            The logarithm.
        """
        return self.log_partition(self.flat(prior)) - self.log_partition(prior)

    def divergence(self, prior: Any, q: Q) -> Float[Array, ""] | None:
        """KL(q ‖ prior), the prior normalised, formed without a difference of large numbers.

        It stands for `log_partition` in the evidence. None where log partitions are of the size of the evidence anyway,
        as those of discrete variables.

        Args:
            prior: as the problem has it.
            q: the posterior.

        Returns:
            The divergence, or None.
        """
        return None

    def cavities(
        self, prior: Any, q: Q, scope: Any, index: Int[Array, " sites"], removed: Float[Array, "sites k"]
    ) -> tuple[Float[Array, "sites k"], Float[Array, "sites k"]]:
        """What sites see of q, and the same without a part of their own: the difference, where nothing better is known.

        Args:
            prior: as the problem has it.
            q: the posterior.
            scope: of the group.
            index: numbers of the sites.
            removed: natural parameters to be taken out, one row per site.

        Returns:
            Natural parameters of the marginals and of the cavities.
        """
        seen = self.marginals(prior, q, scope, index)
        return seen, seen - removed

    def kept(self, q: Q) -> Q:
        """What a solution keeps of q.

        Args:
            q: as `refresh` gives it.

        Returns:
            Something that `views` and what else is asked of a solution take for q.
        """
        return q

    def restored(self, prior: Any, kept: Q, groups: tuple[tuple[Any, Float[Array, "_sites _k"]], ...]) -> Q:
        """q as it was before `kept`.

        Args:
            prior: as in `refresh`.
            kept: of q.
            groups: as in `refresh`.

        Returns:
            q as `refresh` gives it.
        """
        return kept

    @abstractmethod
    def views(self, prior: Any, q: Q) -> dict[str, Callable[[], Float[Array, "..."]]]:
        """What users look at, computed when asked for: mean, covariance, and what else the model calls its own.

        Args:
            prior: as in `refresh`.
            q: as in `refresh`.

        Returns:
            A function without arguments for every name.
        """

    @abstractmethod
    def sample(self, key: Key[Array, ""], prior: Any, q: Q, draws: int) -> Any:
        """Independent draws from q.

        Args:
            key: made by `jax.random.key`.
            prior: as in `refresh`.
            q: as `refresh` gives it, normalisable.
            draws: how many.

        Returns:
            Values, with the draws as leading axis of every array.
        """

    @abstractmethod
    def log_density(self, prior: Any, q: Q, x: Any) -> Float[Array, "..."]:
        """log q(x).

        Args:
            prior: as in `refresh`.
            q: as `refresh` gives it, normalisable.
            x: one value, or several as `sample` gives them.

        Returns:
            One number per value.
        """

    def factor_arguments(self, prior: Any, scope: Any, index: Int[Array, " sites"], x: Any) -> Any:
        """What sites `index` (a vector) of a group see of a value x, their factors' argument: one row per site.

        Args:
            prior: as in `refresh`.
            scope: of the group.
            index: numbers of the sites.
            x: one value.

        Returns:
            The argument of `log_density`, with the sites as leading axis of every array.

        Raises:
            TypeError: the posterior does not say.
        """
        raise TypeError(f"{type(self).__name__} does not say what its sites see of a value, so it cannot be checked.")

    def coordinates(self, prior: Any, q: Q) -> Coordinates | None:
        """Minimal coordinates, or None where prior and q are not Gaussian.

        Args:
            prior: as in `refresh`.
            q: as in `refresh`.

        Returns:
            The centre and root of the prior, and z's mean and covariance under q; None where there are none.
        """
        return None
