"""`cavity infer`: marginals, log evidence or the most probable states of a discrete graphical model in a file."""

import math
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from cavity._core import checks
from cavity.cli.errors import check_target, in_a_sentence, printable
from cavity.cli.fit import print_notes, shown
from cavity.cli.infer_result import (
    APPROXIMATIONS,
    MAXIMISERS,
    METHODS,
    InferenceAnswer,
    approximated,
    by_max_product,
    exactly,
    most_probable,
    named_clusters,
)
from cavity.cli.options import Overwrite
from cavity.discrete import DiscreteGraph
from cavity.discrete.evidence import Contradiction
from cavity.discrete.io.uai import write_map, write_mar, write_pr
from cavity.reports import SweepProgress, Table, UnitProgress, show
from cavity.reports.html import png, write_whole
from cavity.reports.network import check_drawable, least_certain, network_figure

TASKS = ("MAR", "PR", "MAP")


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
        form = checked_choices(approximation, clusters, task, method, max_seconds, plot)
        check_readable(model)
        reads = [model]
        if evidence is not None:
            check_readable(evidence)
            reads.append(evidence)
        if out is not None:
            check_target("--out", out, overwrite, *reads)
        if plot is not None:
            check_target("--plot", plot, overwrite, *reads, *([out] if out is not None else []))
        graph = DiscreteGraph.read(model, evidence=evidence)
        if plot is not None:
            check_drawable(graph)
        try:
            answer = answered(graph, form, clusters, task, method, max_seconds, console)
        except Contradiction as error:
            raise ValueError(f"{model}: {error}") from None
        if out is not None:
            write_whole(out, result_text(answer, task))
        with in_a_sentence("Stopped; the drawing is not written." if out is None else f"Stopped; {out} is written."):
            if plot is not None and answer.marginals is not None:
                drawn = network_figure(graph, answer.marginals, printable(f"{model.name}: {answer.method}"))
                write_whole(plot, png(drawn))
        print_inference(graph, answer, form, clusters, top, [path for path in (out, plot) if path is not None], console)


def checked_choices(
    approximation: str | None,
    clusters: str | None,
    task: str,
    method: str,
    max_seconds: float | None,
    plot: Path | None,
) -> str:
    """The approximation, after refusing options that are unknown or do not go together."""
    checks.choice("--task", task, TASKS)
    checks.choice("--method", method, tuple(METHODS))
    form = checks.choice(
        "--approximation", approximation or ("exact" if task == "MAP" else "disconnected"), APPROXIMATIONS
    )
    if max_seconds is not None and not (math.isfinite(max_seconds) and max_seconds > 0):
        raise ValueError(f"--max-seconds must be a positive number; found {max_seconds}.")
    if task == "MAP" and form == "tree":
        raise ValueError("--task MAP is answered exactly, or by max-product with --approximation disconnected.")
    if task == "MAP" and METHODS[method] not in (None, *MAXIMISERS):
        raise ValueError(f"--task MAP does not go with --method {method}; use auto, ep or damped-ep.")
    if clusters is not None and (form != "disconnected" or task == "MAP"):
        raise ValueError("--clusters is an approximation of its own: it goes without --approximation and --task MAP.")
    if form == "exact" and (method != "auto" or max_seconds is not None):
        raise ValueError("An exact answer has no sweeps: --method and --max-seconds do not go with it.")
    if plot is not None and plot.suffix.lower() != ".png":
        raise ValueError(f"--plot must name a .png file; found {plot}.")
    if plot is not None and task == "MAP":
        raise ValueError("--plot draws marginals, which --task MAP does not have.")
    return form


def check_readable(path: Path) -> None:
    """Whether it is a file that can be opened, found out before the work."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is not a file.")
    with open(path, "rb"):
        pass


def answered(
    graph: DiscreteGraph,
    form: str,
    clusters: str | None,
    task: str,
    method: str,
    max_seconds: float | None,
    console: Console,
) -> InferenceAnswer:
    """The answer, with a bar while it is being found."""
    if form == "exact":
        with UnitProgress("exact inference", 1, console=console) as bar:
            bar.begin("maxima" if task == "MAP" else "sums")
            return most_probable(graph) if task == "MAP" else exactly(graph)
    kept = form if clusters is None else named_clusters(graph, clusters)
    with SweepProgress(method, console=console) as progress:
        # Listening costs time: only where there is a bar to be seen.
        listen = None if progress.progress.disable else progress
        if task == "MAP":
            return by_max_product(graph, method, max_seconds, listen)
        return approximated(graph, kept, method, max_seconds, listen)


def result_text(answer: InferenceAnswer, task: str) -> str:
    """The result in the format of the task."""
    if task == "PR":
        return write_pr(answer.log_value)
    if answer.states is not None:
        return write_map(answer.states)
    return write_mar(answer.marginals or [])


def print_inference(
    graph: DiscreteGraph,
    answer: InferenceAnswer,
    form: str,
    clusters: str | None,
    top: int,
    written: list[Path],
    console: Console,
) -> None:
    """Tables to the terminal, and where the files are."""
    show(shown(summarise_inference(graph, answer, form if clusters is None else f"clusters {clusters}")), console)
    if top:
        table = (
            least_certain(graph, answer.marginals, top) if answer.marginals is not None else states(graph, answer, top)
        )
        show(shown(table), console)
    if not answer.settled:
        print_notes(
            ["the run did not reach a fixed point; its numbers, written ones too, are not to be relied on."], console
        )
    for path in written:
        console.print(Text(f"written: {path}"), soft_wrap=True)


def summarise_inference(graph: DiscreteGraph, answer: InferenceAnswer, form: str) -> Table:
    """The model, the answer and how it was found."""
    what = "log evidence" if answer.states is None else "log weight of the states"
    rows = [
        ("model", f"{len(graph.variables)} variables, {len(graph.factors)} factors, {len(graph.evidence)} observed"),
        (what, f"{answer.log_value:.10g} (natural), {answer.log_value / math.log(10):.10g} (base 10)"),
        ("approximation", form),
        ("method", answer.method),
        ("status", answer.ending),
        ("time", f"{answer.seconds:.2f} s"),
    ]
    return Table("Inference", ("what", "value"), rows)


def states(graph: DiscreteGraph, answer: InferenceAnswer, most: int) -> Table:
    """The first variables with their most probable states; the file has all."""
    chosen = [] if answer.states is None else answer.states.tolist()
    rows = [(graph.variables.name(v), graph.variables.states(v)[state]) for v, state in enumerate(chosen[:most])]
    note = f"There are {len(chosen) - most} more variables; --out writes all of them." if len(chosen) > most else ""
    return Table("Most probable states", ("variable", "state"), rows, note)
