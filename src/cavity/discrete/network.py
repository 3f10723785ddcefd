"""The graph that users meet: what it is, files of three formats, and one line for each other thing done with it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from cavity._storage.writing import write_whole
from cavity.discrete.approx.approximate import Approximation, DiscreteSolution, approximate
from cavity.discrete.approx.filtering import Filtered, boyen_koller
from cavity.discrete.approx.suggest import Suggestion, suggest
from cavity.discrete.approx.tree_schedule import tree_by_tree
from cavity.discrete.graph import TableGraph
from cavity.discrete.io import converters
from cavity.discrete.io.bif import parse_bif
from cavity.discrete.io.fg import format_fg, parse_fg
from cavity.discrete.io.tokens import Source, quoted, text_of
from cavity.discrete.io.uai import format_evidence, format_uai, parse_evidence, parse_uai
from cavity.inference.problem import Problem
from cavity.inference.schedule import Order
from cavity.inference.solution import Solution

PARSERS = {"uai": parse_uai, "fg": parse_fg, "bif": parse_bif}
#: an .fg text begins with a number
FIRST_WORDS = {"MARKOV": "uai", "BAYES": "uai", "network": "bif", "variable": "bif", "probability": "bif"}


def kind_of(text: str, path: str) -> str:
    """The format that the name of a file says, else its first word: every one of them begins in its own way."""
    suffix = Path(path.removesuffix(".gz")).suffix[1:]
    if suffix in PARSERS:
        return suffix
    start = re.match(r"(?:\s+|#[^\n]*|//[^\n]*|/\*.*?\*/)*([^\s{]{0,99})", text, re.DOTALL)
    word = start[1] if start else ""
    if word not in FIRST_WORDS and not word.isdecimal():
        wanted = "a file must begin as a .uai, .fg or .bif file does, or its name end so"
        raise ValueError(f"line 1: the format is not known from the first word {quoted(word)}; {wanted}.")
    return FIRST_WORDS.get(word, "fg")


class DiscreteGraph(TableGraph):
    """p(x) ∝ ∏ t(x_scope) over variables with finitely many states.

    Build it with `add_variable` and `add_factor`, many at a time with `cardinalities` and `add_factors`, or read it
    from a file with `read`. `given` returns the graph with evidence.

    Args:
        cardinalities: numbers of states of variables without names; more can be added.

    Examples:
        >>> import cavity as cv
        >>> graph = cv.DiscreteGraph()
        >>> rain = graph.add_variable(["no", "yes"], "rain")
        >>> grass = graph.add_variable(["dry", "wet"], "grass")
        >>> graph.add_factor(["rain"], [0.8, 0.2])
        >>> graph.add_factor(["rain", "grass"], [[0.9, 0.1], [0.2, 0.8]])
        >>> cv.exact(graph.given({"grass": "wet"})).marginals[rain].round(3).tolist()
        [0.333, 0.667]
    """

    @classmethod
    def read(
        cls,
        source: Source,
        *,
        evidence: Source | Mapping[Any, Any] | None = None,
        kind: str | None = None,
        max_bytes: int | None = None,
    ) -> Self:
        """The graph of a .uai, .fg or .bif file (or .gz of one), or of such a text: a string with a newline.

        Args:
            source: path of the file, or the text.
            evidence: variable → state, or an `.evid` file or text; no file is looked for.
            kind: "uai", "fg" or "bif", where the suffix and the first word do not say it.
            max_bytes: refuse a file that unpacks to more, or whose tables take more; None: more than 64 MiB and than 32
                times its size.

        Returns:
            The graph.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: with the line of the first word that is wrong.

        Examples:
            >>> import cavity as cv
            >>> cv.DiscreteGraph.read("MARKOV 2 2 2\\n1 2 0 1\\n4 1 2 3 1", evidence={0: 1})
            DiscreteGraph(2 variables, 1 factors, 1 observed)
        """
        if kind is not None and kind not in PARSERS:
            raise ValueError(f"kind must be {', '.join(PARSERS)} or None; found {kind!r}.")
        text, path, limit = text_of(source, max_bytes)
        try:
            graph = PARSERS[kind or kind_of(text, path)](text, cls, limit)
        except ValueError as error:
            raise ValueError(f"{path}: {error}" if path else str(error)) from None
        if evidence is None or isinstance(evidence, Mapping):
            return graph.given(evidence) if evidence else graph
        text, path, _ = text_of(evidence, max_bytes)
        try:
            return graph.given(parse_evidence(text, graph.cardinalities))
        except ValueError as error:
            raise ValueError(f"{path or 'evidence'}: {error}") from None

    def write(self, path: Source) -> None:
        """Write a .uai or .fg file, with all digits.

        Evidence goes into `<path>.evid` beside a .uai file, and into factors of a .fg file.

        Args:
            path: of the file; its suffix says the format.

        Raises:
            ValueError: if the suffix is another one, or a double cannot hold a weight.

        Examples:
            >>> import pathlib, tempfile
            >>> import cavity as cv
            >>> path = pathlib.Path(tempfile.mkdtemp()) / "one.uai"
            >>> cv.DiscreteGraph([2, 2]).write(path)
            >>> cv.DiscreteGraph.read(path)
            DiscreteGraph(2 variables, 0 factors)
        """
        target = Path(path)
        if target.suffix not in (".uai", ".fg"):
            raise ValueError(f"path must end in .uai or .fg; found {str(target)!r}.")
        write_whole(target, format_uai(self) if target.suffix == ".uai" else format_fg(self))
        if self.evidence and target.suffix == ".uai":
            write_whole(target.with_name(f"{target.name}.evid"), format_evidence(self.evidence))

    def to_uai(self) -> str:
        """The text of the `.uai` file: soft evidence becomes factors, evidence is not part of it.

        Returns:
            The text.

        Raises:
            ValueError: if a double cannot hold a weight.

        Examples:
            >>> import cavity as cv
            >>> cv.DiscreteGraph([2, 2]).to_uai().split()
            ['MARKOV', '2', '2', '2', '0']
        """
        return format_uai(self)

    @classmethod
    def from_networkx(cls, network: Any) -> Self:
        """Spins ±1 on an undirected networkx graph, p(s) ∝ exp(Σ hᵢ sᵢ + Σ Jᵢⱼ sᵢ sⱼ).

        Args:
            network: with the edge attribute `coupling` (Jᵢⱼ), and the node attribute `field` (hᵢ, 0 where missing).

        Returns:
            The graph; its variables have the nodes' names and the states "-1" and "+1".

        Raises:
            ImportError: if networkx is not installed.
            ValueError: if the network is directed or has multiple edges or loops, or a coupling is missing.

        Examples:
            >>> import networkx
            >>> import cavity as cv
            >>> network = networkx.Graph()
            >>> network.add_edge("a", "b", coupling=0.5)
            >>> cv.DiscreteGraph.from_networkx(network)
            DiscreteGraph(2 variables, 1 factors)
        """
        return converters.from_networkx(network, cls)

    def to_networkx(self) -> Any:
        """The bipartite networkx graph of nodes ("variable", i) and ("factor", a).

        Returns:
            A `networkx.Graph`; variables have the attributes `name` and `states`, factors `scope` and `log_values`.

        Raises:
            ImportError: if networkx is not installed.

        Examples:
            >>> import cavity as cv
            >>> graph = cv.DiscreteGraph([2, 2])
            >>> graph.add_factor([0, 1], [[2.0, 1.0], [1.0, 2.0]])
            >>> sorted(graph.to_networkx().edges)
            [(('variable', 0), ('factor', 0)), (('variable', 1), ('factor', 0))]
        """
        return converters.to_networkx(self)

    @classmethod
    def from_pgmpy(cls, model: Any) -> Self:
        """The graph of a discrete pgmpy model.

        Args:
            model: a `DiscreteBayesianNetwork`, `DiscreteMarkovNetwork` or `FactorGraph` of pgmpy.

        Returns:
            The graph; variables and states keep their names as text.

        Raises:
            ImportError: if pgmpy is not installed.
            ValueError: if the model is none of these, or a variable has no table.
        """
        return converters.from_pgmpy(model, cls)

    def to_pgmpy(self) -> Any:
        """The same distribution as a `DiscreteMarkovNetwork` of pgmpy; evidence becomes factors.

        Returns:
            The network.

        Raises:
            ImportError: if pgmpy is not installed.
            ValueError: if a double cannot hold a weight.
        """
        return converters.to_pgmpy(self)

    def approximate(self, form: Any = "disconnected", *, groups: Any = None) -> Approximation:
        """The graph with what is to stand for q; `infer` takes it.

        Args:
            form: "disconnected" (loopy belief propagation), "tree", a `Tree` with edges of your own, or `Clusters`.
            groups: sets of factors, by number, that are joined into one each and then integrated exactly.

        Returns:
            The approximation, a model for `infer`.

        Raises:
            ValueError: if the form is unknown, or the groups overlap or name factors that are not there.

        Examples:
            >>> import cavity as cv
            >>> graph = cv.DiscreteGraph([2, 2, 2])
            >>> for pair in ([0, 1], [1, 2], [0, 2]):
            ...     graph.add_factor(pair, [[2.0, 1.0], [1.0, 2.0]])
            >>> graph.approximate("tree").problem().groups[0].size, graph.approximate().problem().groups[0].size
            (1, 3)
        """
        return approximate(self, form, groups)

    def suggest(self, cost: float = 1e7) -> list[Suggestion]:
        """Trees and groupings that can be afforded, with what each costs and may gain, the most promising first.

        Args:
            cost: entries of tables that one sweep may read, or that exact inference may make.

        Returns:
            A list of `Suggestion`.

        Raises:
            ValueError: if the evidence has probability zero.

        Examples:
            >>> import cavity as cv
            >>> graph = cv.DiscreteGraph([2, 2])
            >>> graph.add_factor([0, 1], [[2.0, 1.0], [1.0, 2.0]])
            >>> [own.name for own in graph.suggest()]
            ['tree', 'exact', 'disconnected']
        """
        return suggest(self, cost)

    def tree_by_tree(self) -> Order:
        """A schedule for loopy belief propagation: forests of factors one after another, each inward and outward.

        On a tree whose variables have equally many states one sweep is exact.

        Returns:
            The schedule, for `EP(schedule=…)`.

        Examples:
            >>> import cavity as cv
            >>> graph = cv.DiscreteGraph([2, 2, 2])
            >>> graph.add_factors([[0, 1], [1, 2]], [[[2.0, 1.0], [1.0, 2.0]]] * 2)
            >>> graph.tree_by_tree()
            Order(sites=((1, 0, 0, 1),))
        """
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

        Returns:
            A `Filtered`.

        Raises:
            ValueError: if the slices do not hold every variable once, a factor reaches further than one slice back, or
                the evidence has probability zero.

        Examples:
            >>> import cavity as cv
            >>> chain = cv.DiscreteGraph([2, 2, 2])
            >>> chain.add_factor([0], [0.9, 0.1])
            >>> for pair in ([0, 1], [1, 2]):
            ...     chain.add_factor(pair, [[0.8, 0.2], [0.2, 0.8]])
            >>> chain.filter([[0], [1], [2]]).marginals[2][0].round(3).tolist()
            [0.644, 0.356]
        """
        return boyen_koller(self, slices, clusters, memory)

    def problem(self) -> Problem:
        """The disconnected approximation, whose EP is loopy belief propagation."""
        return Approximation(self).problem()

    def interpret(self, solution: Solution) -> DiscreteSolution:
        """The solution of this graph's problem, with its marginals and pairs; `infer(graph)` returns it."""
        return Approximation(self).interpret(solution)
