"""`cavity infer`: marginals, log evidence or the most probable states of a discrete graphical model in a file."""

import contextlib
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console

import cavity
from cavity._cli.errors import check_target, in_a_sentence, printable
from cavity._cli.fit import print_notes, print_written, shown
from cavity._cli.options import Overwrite
from cavity._core import checks
from cavity._core.compiling import split_seconds
from cavity._storage.writing import write_whole
from cavity.discrete import Clusters, DiscreteGraph, exact_discrete, exact_map, max_product
from cavity.discrete.graph import Contradiction
from cavity.discrete.io.uai import write_map, write_mar, write_pr
from cavity.inference.methods import Method
from cavity.inference.status import FIXED_POINTS, Status
from cavity.moments.enumeration import LARGEST, TooManyStates
from cavity.reports import SweepProgress, Table, UnitProgress, show
from cavity.reports.figures import png
from cavity.reports.network import check_drawable, least_certain, network_figure

TASKS = ("MAR", "PR", "MAP")
#: methods by name; auto is EP, and what helps where it fails
METHODS: dict[str, Method | None] = {
    "auto": None,
    "ep": cavity.EP(),
    "damped-ep": cavity.EP(damping=0.5, max_sweeps=1000),
    "power-ep": cavity.PowerEP(0.5),
    "adf": cavity.ADF(),
}
#: methods that max-product takes
MAXIMISERS = (METHODS["ep"], METHODS["damped-ep"])
#: what stands for q
APPROXIMATIONS = ("disconnected", "tree", "exact")


class Question(NamedTuple):
    """Which questions a model is to answer, and by which means."""

    form: str
    clusters: str | None
    task: str
    method: str
    max_seconds: float | None

    def validate(self, plot: Path | None) -> None:
        """Refuse options that are unknown or do not go together."""
        checks.choice("--task", self.task, TASKS)
        checks.choice("--method", self.method, tuple(METHODS))
        checks.choice("--approximation", self.form, APPROXIMATIONS)
        if self.max_seconds is not None and not (math.isfinite(self.max_seconds) and self.max_seconds > 0):
            raise ValueError(f"--max-seconds must be a positive number; found {self.max_seconds}.")
        if self.task == "MAP" and self.form == "tree":
            raise ValueError("--task MAP is answered exactly, or by max-product with --approximation disconnected.")
        if self.task == "MAP" and METHODS[self.method] not in (None, *MAXIMISERS):
            raise ValueError(f"--task MAP does not go with --method {self.method}; use auto, ep or damped-ep.")
        if self.clusters is not None and (self.form != "disconnected" or self.task == "MAP"):
            raise ValueError(
                "--clusters is an approximation of its own: it goes without --approximation and --task MAP."
            )
        if self.form == "exact" and (self.method != "auto" or self.max_seconds is not None):
            raise ValueError("An exact answer has no sweeps: --method and --max-seconds do not go with it.")
        if plot is not None and plot.suffix.lower() != ".png":
            raise ValueError(f"--plot must name a .png file; found {plot}.")
        if plot is not None and self.task == "MAP":
            raise ValueError("--plot draws marginals, which --task MAP does not have.")


class InferenceAnswer(NamedTuple):
    """What was found.

    marginals: of every variable; None where states were asked for. states: the most probable ones. log_value: log
    evidence, or the log weight of these states. method, ending: in words. settled: whether the run ended as promised.
    """

    marginals: list[np.ndarray] | None
    states: np.ndarray | None
    log_value: float
    method: str
    ending: str
    settled: bool
    seconds: float = 0.0
    compiling: float = 0.0


def infer_command(
    model: Annotated[Path, typer.Argument(help="A .uai, .fg or .bif file, or a .gz of one.", show_default=False)],
    evidence: Annotated[Path | None, typer.Option(help="An .evid file: variables and states by number.")] = None,
    approximation: Annotated[
        str | None, typer.Option(help=f"One of {', '.join(APPROXIMATIONS)}; disconnected is loopy belief propagation.")
    ] = None,
    clusters: Annotated[
        str | None, typer.Option(help='Variables kept together, by name or number from 0, such as "0,1;2,3".')
    ] = None,
    task: Annotated[str, typer.Option(help="MAR: marginals. PR: log evidence. MAP: most probable states.")] = "MAR",
    out: Annotated[Path | None, typer.Option(help="The result in the UAI competition's format of the task.")] = None,
    method: Annotated[str, typer.Option(help=f"One of {', '.join(METHODS)}.")] = "auto",
    max_seconds: Annotated[float | None, typer.Option(help="Stop after the sweep that passes this time.")] = None,
    plot: Annotated[Path | None, typer.Option(help="A drawing of the network with its marginals (PNG).")] = None,
    top: Annotated[int, typer.Option(min=0, help="Variables in the table.")] = 10,
    overwrite: Overwrite = False,
) -> None:
    """Marginals, log evidence or the most probable states of a discrete graphical model.

    Without --out the result is only shown. The file of --task PR holds the logarithm to base 10. Files are written
    complete or not at all, and an existing one is replaced only with --overwrite.
    """
    console = Console()
    with in_a_sentence(too_large="There is not enough memory for this model with this --approximation."):
        form = approximation or ("exact" if task == "MAP" else "disconnected")
        question = Question(form, clusters, task, method, max_seconds)
        question.validate(plot)
        files = [path for path in (model, evidence) if path is not None]
        for path in files:
            check_readable(path)
        written = {option: path for option, path in (("--out", out), ("--plot", plot)) if path is not None}
        for option, path in written.items():
            check_target(option, path, overwrite, *files)
            files.append(path)
        graph = DiscreteGraph.read(model, evidence=evidence)
        if plot is not None:
            check_drawable(graph)
        try:
            answer = answered(graph, question, console)
        except Contradiction as error:
            raise ValueError(f"{model}: {error}") from None
        if out is not None:
            if task == "PR":
                text = write_pr(answer.log_value)
            else:
                text = write_mar(answer.marginals or []) if answer.states is None else write_map(answer.states)
            write_whole(out, text)
        with in_a_sentence("Stopped; the drawing is not written." if out is None else f"Stopped; {out} is written."):
            if plot is not None and answer.marginals is not None:
                drawn = network_figure(graph, answer.marginals, printable(f"{model.name}: {answer.method}"))
                write_whole(plot, png(drawn))
        print_inference(graph, answer, question, top, list(written.values()), console)


def check_readable(path: Path) -> None:
    """Whether it is a file that can be opened, found out before the work."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is not a file.")
    with open(path, "rb"):
        pass


def answered(graph: DiscreteGraph, question: Question, console: Console) -> InferenceAnswer:
    """The answer, with a bar while it is being found."""
    maximise, began = question.task == "MAP", time.perf_counter()
    if question.form == "exact":
        with UnitProgress("exact inference", 1, console=console) as bar:
            bar.begin("maxima" if maximise else "sums")
            answer = most_probable(graph) if maximise else exactly(graph)
        compiling = bar.clock.seconds
    else:
        form = question.form if question.clusters is None else named_clusters(graph, question.clusters)
        with SweepProgress(question.method, console=console) as progress:
            # Listening costs time: only where there is a bar to be seen.
            callback = None if progress.progress.disable else progress
            limits = {"max_seconds": question.max_seconds, "callback": callback}
            method = METHODS[question.method]
            try:
                answer = (
                    by_max_product(graph, method, limits) if maximise else approximated(graph, form, method, limits)
                )
            except TooManyStates:
                largest = f"more than {LARGEST} joint states, which this --approximation cannot sum over"
                raise ValueError(f"A table of the model has {largest}; --approximation exact may do it.") from None
        compiling = progress.clock.seconds
    return answer._replace(seconds=time.perf_counter() - began, compiling=compiling)


def approximated(
    graph: DiscreteGraph, form: str | Clusters, method: Method | None, limits: dict[str, Any]
) -> InferenceAnswer:
    """Marginals and log evidence by EP. limits: when to stop, and what is called after every sweep."""
    solution = cavity.infer(graph.approximate(form), method, **limits)
    status = solution.status
    if status in (Status.NONFINITE_FACTOR, Status.IMPROPER_POSTERIOR) or not np.isfinite(solution.log_evidence):
        refuse_contradiction(graph)
    marginals = [np.asarray(own, float) for own in solution.marginals]
    proper = all(np.isfinite(own).all() for own in marginals) and np.isfinite(solution.log_evidence)
    if status == Status.IMPROPER_POSTERIOR or not proper:
        raise ValueError(f"There is no result: {status}. {status.sentence} Another --approximation may do better.")
    left = "".join(f"{attempt.method}: {attempt.reason}. " for attempt in solution.attempts if attempt.reason)
    ending = (
        f"{left}{str(status).replace('_', ' ')} after {int(solution.sweeps)} sweeps, "
        f"mismatch {float(solution.mismatch):.1e}. {status.sentence}"
    )
    settled = status in (*FIXED_POINTS, Status.SINGLE_PASS)
    return InferenceAnswer(marginals, None, float(solution.log_evidence), str(solution.method), ending, settled)


def refuse_contradiction(graph: DiscreteGraph) -> None:
    """Raise `Contradiction` where the evidence has probability zero and the graph is small enough to know."""
    try:
        exact_discrete(graph)
    except Contradiction:
        raise
    except ValueError:
        return


@contextlib.contextmanager
def too_large(sentence: str) -> Iterator[None]:
    """An exact answer that needs too much memory is refused with this sentence, its {} saying how much."""
    try:
        yield
    except Contradiction:
        raise
    except ValueError as error:
        raise ValueError(sentence.format(error)) from None


def exactly(graph: DiscreteGraph) -> InferenceAnswer:
    """Marginals and log evidence to rounding."""
    with too_large("The model is too large: {} Use --approximation tree or disconnected."):
        found = exact_discrete(graph)
    ending = f"exact to rounding, width {found.width}, largest table {found.table_size} entries."
    return InferenceAnswer(found.marginals, None, found.log_evidence, "exact: sums over a junction tree", ending, True)


def most_probable(graph: DiscreteGraph) -> InferenceAnswer:
    """The most probable states, exactly."""
    with too_large("The model is too large for the exact answer: {} Use --approximation disconnected."):
        states, log_value = exact_map(graph)
    ending = "exact: no other states are more probable."
    return InferenceAnswer(None, states, log_value, "exact: maxima over a junction tree", ending, True)


def by_max_product(graph: DiscreteGraph, method: Method | None, limits: dict[str, Any]) -> InferenceAnswer:
    """The most probable states by loopy max-product."""
    found = max_product(graph, method, **limits)
    ending = f"{str(found.status).replace('_', ' ')} after {found.sweeps} sweeps. No promise that nothing is better."
    settled = found.status == Status.CONVERGED and np.isfinite(found.log_weight)
    return InferenceAnswer(None, found.states, found.log_weight, "max-product", ending, bool(settled))


def named_clusters(graph: DiscreteGraph, text: str) -> Clusters:
    """Clusters as they are written on the command line: "a,b;c,d", each variable by its name or its number from 0."""
    clusters = [[word.strip() for word in part.split(",")] for part in text.split(";")]
    if any(not word for own in clusters for word in own):
        raise ValueError(f'--clusters must be like "0,1;2,3"; found {text!r}.')
    try:
        return Clusters([[variable(graph, word) for word in own] for own in clusters])
    except ValueError as error:
        raise ValueError(f"--clusters: {error}") from None


def variable(graph: DiscreteGraph, word: str) -> int:
    """The number of a variable by its name, or by its number where no variable has that name."""
    try:
        return graph.variables.number(word)
    except ValueError:
        if not (word.isdecimal() and len(word) < 19):
            raise
        return graph.variables.number(int(word))


def print_inference(
    graph: DiscreteGraph, answer: InferenceAnswer, question: Question, top: int, written: list[Path], console: Console
) -> None:
    """Tables to the terminal, and where the files are."""
    form = question.form if question.clusters is None else f"clusters {question.clusters}"
    show(shown(summarise_inference(graph, answer, form)), console)
    if top and answer.marginals is not None:
        show(shown(least_certain(graph, answer.marginals, top)), console)
    elif top:
        show(shown(states(graph, answer, top)), console)
    if not answer.settled:
        short = "the run did not reach a fixed point; its numbers, written ones too, are not to be relied on."
        print_notes([short], console)
    print_written(written, console)


def summarise_inference(graph: DiscreteGraph, answer: InferenceAnswer, form: str) -> Table:
    """The model, the answer and how it was found."""
    what = "log evidence" if answer.states is None else "log weight of the states"
    rows = [
        ("model", f"{len(graph.variables)} variables, {len(graph.factors)} factors, {len(graph.evidence)} observed"),
        (what, f"{answer.log_value:.10g} (natural), {answer.log_value / math.log(10):.10g} (base 10)"),
        ("approximation", form),
        ("method", answer.method),
        ("status", answer.ending),
        ("time", split_seconds(answer.seconds, answer.compiling)),
    ]
    return Table("Inference", ("what", "value"), rows)


def states(graph: DiscreteGraph, answer: InferenceAnswer, most: int) -> Table:
    """The first variables with their most probable states; the file has all."""
    chosen = [] if answer.states is None else answer.states.tolist()
    rows = [(graph.variables.name(v), graph.variables.states(v)[state]) for v, state in enumerate(chosen[:most])]
    note = f"There are {len(chosen) - most} more variables; --out writes all of them." if len(chosen) > most else ""
    return Table("Most probable states", ("variable", "state"), rows, note)
