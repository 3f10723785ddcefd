"""A graph of discrete variables and table factors."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cavity.discrete.tables import Table, Tables, TableStore, log_weights
from cavity.discrete.variables import Variables

if TYPE_CHECKING:
    from cavity.discrete.approx.approximate import Approximation
    from cavity.discrete.approx.filtering import Filtered
    from cavity.discrete.approx.suggest import Proposal
    from cavity.discrete.queries import DiscreteSolution
    from cavity.inference.problem import Problem
    from cavity.inference.schedule import Order
    from cavity.inference.solution import Solution


class DiscreteGraph:
    """p(x) ∝ ∏ t(x_scope) over variables with finitely many states.

    Build it with `add_variable` and `add_factor`, many at a time with `cardinalities` and `add_factors`, or read it
    from a file with `read`. `given` returns the graph with evidence; it shares the tables.
    """

    def __init__(self, cardinalities: Iterable[int] = ()) -> None:
        self.variables = Variables(cardinalities)
        self.factors = TableStore()
        self.evidence: dict[int, int] = {}
        self.likelihoods: dict[int, np.ndarray] = {}

    @property
    def cardinalities(self) -> np.ndarray:
        """Number of states of every variable."""
        return self.variables.cardinalities

    def add_variable(self, states: int | Sequence[str] = 2, name: str | None = None) -> int:
        """A variable with so many states, or with states of these names; its number."""
        return self.variables.add(states, name)

    def add_factor(self, scope: Sequence[Any], values: Any, *, log: bool = False) -> None:
        """A factor: axis j of `values` belongs to variable j of `scope` (numbers or names). Zeros are allowed.

        log: whether the values are logarithms, −inf for zero.
        """
        if isinstance(scope, str) or not isinstance(scope, Iterable):
            raise ValueError(f"scope must be a list of variables; found {scope!r}.")
        numbers = [self.variables.number(variable) for variable in scope]
        self.add_factors(np.array([numbers], np.int64).reshape(1, len(numbers)), np.asarray(values)[None], log=log)

    def add_factors(self, scopes: Any, values: Any, *, log: bool = False) -> None:
        """Factors of one shape: scopes (n, m) by number, values (n, K₁, …, K_m)."""
        scopes = np.asarray(scopes)
        log_values = log_weights("values", values, log)
        if scopes.ndim != 2 or (scopes.size and scopes.dtype.kind not in "iu"):
            raise ValueError(f"scopes must be whole numbers, one row a factor; found shape {scopes.shape}.")
        if log_values.ndim != scopes.shape[1] + 1 or len(log_values) != len(scopes):
            raise ValueError(
                f"values must have shape {(len(scopes), *['K'] * scopes.shape[1])}; found {log_values.shape}."
            )
        if scopes.size and (scopes.min() < 0 or scopes.max() >= len(self.variables)):
            wrong = scopes[(scopes < 0) | (scopes >= len(self.variables))][0]
            raise ValueError(
                f"scopes name the variable {wrong}; variables are numbered 0 to {len(self.variables) - 1}."
            )
        ordered = np.sort(scopes, axis=1)
        if (twice := (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)).any():
            raise ValueError(f"a scope names a variable twice: {scopes[twice][0].tolist()}.")
        wanted = self.cardinalities[scopes]
        if (differ := (wanted != log_values.shape[1:]).any(axis=1)).any():
            shape = tuple(wanted[differ][0].tolist())
            raise ValueError(
                f"values over {scopes[differ][0].tolist()} must have shape {shape}; found {log_values.shape[1:]}."
            )
        self.factors.add(scopes.astype(np.int64), log_values)

    def given(
        self, evidence: Mapping[Any, Any] | None = None, *, likelihoods: Mapping[Any, Any] | None = None
    ) -> DiscreteGraph:
        """The same graph with this evidence in place of what it had.

        evidence: variable → state, by number or name. likelihoods: variable → weights of its states (soft evidence).
        """
        clamped = copy.copy(self)
        clamped.evidence, clamped.likelihoods = {}, {}
        for name, found in (("evidence", evidence), ("likelihoods", likelihoods)):
            if not isinstance(found, Mapping | None):
                raise ValueError(f"{name} must be a dict by variable; found {type(found).__name__}.")
        for variable, state in (evidence or {}).items():
            number = self.variables.number(variable)
            clamped.evidence[number] = self.variables.state(number, state)
        for variable, weights in (likelihoods or {}).items():
            number = self.variables.number(variable)
            found = log_weights(f"likelihood of {self.variables.name(number)}", weights, log=False)
            if found.shape != (self.cardinalities[number],):
                raise ValueError(
                    f"likelihood of {self.variables.name(number)} must have {self.cardinalities[number]} weights; "
                    f"found shape {found.shape}."
                )
            clamped.likelihoods[number] = found
        return clamped

    @classmethod
    def read(
        cls,
        source: str | os.PathLike[str],
        *,
        evidence: str | os.PathLike[str] | Mapping[Any, Any] | None = None,
        kind: str | None = None,
    ) -> DiscreteGraph:
        """The graph of a .uai, .fg or .bif file (or .gz of one), or of such a text: a string with a newline.

        evidence: variable → state, or an `.evid` file or text; no file is looked for. kind: where the suffix and the
        first word do not say it.
        """
        from cavity.discrete.io.files import read_graph

        return read_graph(source, evidence, kind)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Into a .uai or .fg file, numbers in full.

        Evidence goes into `<path>.evid` beside a .uai file, and into factors of a .fg file.
        """
        from cavity.discrete.io.files import write_graph

        write_graph(self, path)

    def to_uai(self) -> str:
        """The text of the `.uai` file: soft evidence becomes factors, evidence is not part of it."""
        from cavity.discrete.io.uai import format_uai

        return format_uai(self)

    @classmethod
    def from_networkx(cls, network: Any) -> DiscreteGraph:
        """Spins ±1 on an undirected networkx graph, with edge attributes `coupling` and node attributes `field`."""
        from cavity.discrete.converters import from_networkx

        return from_networkx(network)

    def to_networkx(self) -> Any:
        """The bipartite networkx graph of nodes ("variable", i) and ("factor", a)."""
        from cavity.discrete.converters import to_networkx

        return to_networkx(self)

    @classmethod
    def from_pgmpy(cls, model: Any) -> DiscreteGraph:
        """The graph of a discrete pgmpy model: a Bayesian network, a Markov network or a factor graph."""
        from cavity.discrete.converters import from_pgmpy

        return from_pgmpy(model)

    def to_pgmpy(self) -> Any:
        """The same distribution as a DiscreteMarkovNetwork of pgmpy."""
        from cavity.discrete.converters import to_pgmpy

        return to_pgmpy(self)

    def approximate(self, form: Any = "disconnected", *, groups: Any = None) -> Approximation:
        """The graph with what is to stand for q; `infer` takes it.

        Args:
            form: "disconnected" (loopy belief propagation), "tree", a `Tree` with edges of your own, or `Clusters`.
            groups: sets of factors, by number, that are joined into one each and then integrated exactly.
        """
        from cavity.discrete.approx.approximate import approximate

        return approximate(self, form, groups)

    def propose(self, cost: float = 1e7) -> list[Proposal]:
        """Trees and groupings that can be afforded, with what each costs and may gain, the most promising first.

        Args:
            cost: entries of tables that one sweep may read, or that exact inference may make.
        """
        from cavity.discrete.approx.suggest import propose

        return propose(self, cost)

    def tree_by_tree(self) -> Order:
        """A schedule for loopy belief propagation: forests of factors one after another, each inward and outward.

        On a tree whose variables have equally many states one sweep is exact.
        """
        from cavity.discrete.approx.tree_schedule import tree_by_tree

        return tree_by_tree(self)

    def filter(
        self, slices: Sequence[Sequence[Any]], *, clusters: Sequence[Sequence[Any]] | None = None, memory: float = 2e9
    ) -> Filtered:
        """One pass through time slices, after Boyen & Koller: marginals given the evidence up to each slice.

        A factor belongs to the latest slice it touches and may touch only that one and the one before. Every step sums
        the old slice out exactly, and keeps a product over the variables of the new one, or over clusters of them.

        Args:
            slices: the variables of every slice, by number or name, each variable in exactly one.
            clusters: sets of variables within a slice that are kept joint; all of a slice in one set is exact.
            memory: bytes that the tables of one step may take.
        """
        from cavity.discrete.approx.filtering import boyen_koller

        return boyen_koller(self, slices, clusters, memory)

    def problem(self) -> Problem:
        """The disconnected approximation, whose EP is loopy belief propagation."""
        return self.approximate().problem()

    def interpret(self, solution: Solution) -> DiscreteSolution:
        """The solution of this graph's problem, with its marginals and pairs; `infer(graph)` returns it."""
        return self.approximate().interpret(solution)

    def without_factors(self) -> DiscreteGraph:
        """The variables and the evidence alone."""
        bare = copy.copy(self)
        bare.factors = TableStore()
        return bare

    def tables(self) -> tuple[Tables, ...]:
        """The factors, one entry a shape."""
        return self.factors.by_shape()

    def __iter__(self) -> Iterator[Table]:
        """The factors one by one, as they were added."""
        return iter(self.factors)

    def flat_unary(self) -> np.ndarray:
        """Log weights of every variable alone, one variable after another: its own factors, evidence and likelihood."""
        cards = self.cardinalities
        starts = np.concatenate([[0], np.cumsum(cards)])
        flat = np.zeros(starts[-1])
        for own in self.tables():
            if len(own.shape) == 1:
                index = starts[own.scopes[:, 0]][:, None] + np.arange(own.shape[0])
                np.add.at(flat, index, own.log_values)
        for number, log_likelihood in self.likelihoods.items():
            flat[starts[number] : starts[number + 1]] += log_likelihood
        for number, state in self.evidence.items():
            kept = flat[starts[number] + state]
            flat[starts[number] : starts[number + 1]] = -np.inf
            flat[starts[number] + state] = kept
        return flat

    def __repr__(self) -> str:
        seen = f", {len(self.evidence)} observed" if self.evidence else ""
        return f"DiscreteGraph({len(self.variables)} variables, {len(self.factors)} factors{seen})"
