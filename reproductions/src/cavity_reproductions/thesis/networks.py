"""Thesis 4.2 on networks from files: belief propagation, trees and clusters against exact answers."""

import multiprocessing
import os
import time
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

import cavity
from cavity.reports import Figure, Table, figure
from cavity.reports.figures import BLUE, GREEN, VERMILION, label, shared_legend
from cavity_reproductions.base import (
    QUICK_CODE,
    Config,
    Experiment,
    Outcome,
    Results,
    Unit,
    check_table,
    grade,
    make_unit,
    share,
)
from cavity_reproductions.thesis import DOCUMENT
from cavity_reproductions.thesis.network_files import (
    CLUSTER,
    NETWORKS,
    PAIRS,
    Known,
    approximation,
    built_in,
    distances,
    stored,
)
from cavity_reproductions.workbench import infer

#: seconds after which a run is stopped at the end of its sweep, and those that a process may take to begin
LIMIT, START = 120.0, 20.0
STYLES = {"BP": (VERMILION, "x"), "tree": (BLUE, "o"), "clusters": (GREEN, "s")}
BUILT_IN = "built-in grid 3×3"
#: errors below this are not told apart: the competition's answers have six digits
DIGITS = 1e-6


def units(config: Config) -> list[Unit]:
    """One for each network and form; small runs read no files and use a network built in code."""
    if config.size != "full":
        shown = STYLES if config.size == "quick" else ("BP", "tree")
        return [make_unit(config, 470, f"{BUILT_IN}/{form}", network=BUILT_IN, form=form) for form in shown]
    return [
        make_unit(config, 470, f"{network}/{form}", network=network, form=form)
        for form in STYLES
        for network in (PAIRS if form == "clusters" else NETWORKS)
    ]


def run_unit(unit: Unit, config: Config) -> dict:
    """Status, cost and errors. Files are given to a process of their own, which is ended when its time is over."""
    options = dict(unit.options)
    if options["network"] == BUILT_IN:
        return answer(built_in(unit.seed), options["form"])
    return apart(options["network"], options["form"])


def answer(known: Known, form: str) -> dict[str, Any]:
    """What the ladder makes of a network; where the library refuses, what it says."""
    report: dict[str, Any] = {"variables": len(known.graph.variables)}
    began = time.perf_counter()
    try:
        found = infer(approximation(known.graph, form), cavity.Auto(), max_seconds=LIMIT)
    except ValueError as error:
        return report | {"status": "refused", "sentence": str(error)}
    seconds = time.perf_counter() - began
    errors = distances(found.marginals, known)
    return report | {
        "status": str(found.status),
        "plain EP": found.attempts[0].status,
        "sweeps": int(found.sweeps),
        "seconds": seconds,
        "mean": errors.mean(),
        "largest": errors.max(),
        "log_z": float(found.log_evidence) - known.log_z,
    }


def apart(network: str, form: str) -> dict[str, Any]:
    """`answer` in a new process: compilation cannot be interrupted otherwise."""
    known = stored(network)
    # The networks have factors of many shapes: most of the time is compilation.
    os.environ.setdefault("XLA_FLAGS", QUICK_CODE)
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=send_answer, args=(sender, known, form), daemon=True)
    process.start()
    sender.close()
    try:
        if receiver.poll(START + LIMIT):
            return receiver.recv()
        return {"variables": len(known.graph.variables), "status": "timed out"}
    except EOFError:
        return {"variables": len(known.graph.variables), "status": "crashed"}
    finally:
        process.kill()
        process.join()


def send_answer(sender: Connection, known: Known, form: str) -> None:
    """What the new process does."""
    sender.send(answer(known, form))


def by_network(results: Results) -> dict[str, dict[str, Any]]:
    """Reports by network and form."""
    found: dict[str, dict[str, Any]] = {}
    for name, report in results.items():
        network, _, form = name.rpartition("/")
        found.setdefault(network, {})[form] = report
    return found


def settled(report: Any) -> bool:
    """Whether a run ended at a fixed point."""
    return report["status"] == "converged"


def compared(networks: dict[str, dict[str, Any]], form: str) -> dict[str, float]:
    """Of the networks on which this form and BP both settle: on how many each is closer."""
    closer, equal, further = 0, 0, 0
    for forms in networks.values():
        if form in forms and settled(forms[form]) and settled(forms["BP"]):
            own, other = (max(forms[name]["mean"], DIGITS) for name in (form, "BP"))
            closer, further = closer + (own < 0.9999 * other), further + (own > 1.0001 * other)
            equal += 0.9999 * other <= own <= 1.0001 * other
    return {"closer": closer, "equal": equal, "further": further}


def summarise(results: Results, config: Config) -> Outcome:
    networks = by_network(results)
    numbers = {name: {form: dict(report) for form, report in forms.items()} for name, forms in networks.items()}
    rows = [
        (
            name.partition("/")[2] or name,
            report["variables"],
            form,
            report["status"],
            *(report.get(key) for key in ("plain EP", "sweeps", "seconds", "mean", "largest", "log_z")),
        )
        for name, forms in networks.items()
        for form, report in forms.items()
    ]
    note = (
        "Error of a marginal: total variation distance; mean and largest over the variables not observed, of the last "
        f"state also where a run did not settle. Method: cavity.Auto(), {LIMIT:g} seconds at most; plain EP: how its "
        f"first attempt ended; timed out: killed {START:g} seconds later, mostly while compiling. Times are cold: new "
        "processes compile without optimisation, on two shared cores. "
        "The competition's answers (uai, except the small grids) have six digits: errors of marginals below 1e-6, "
        f"and of log Z below 1e-5 of its size, are theirs. Clusters: of {CLUSTER} variables, grown along edges, the "
        "factors between two clusters joined; tried where all factors are of two binary variables at most."
    )
    tables = [
        Table(
            "Every network",
            ("network", "variables", "form", "status", "plain EP", "sweeps", "seconds", "mean", "largest", "log Z"),
            rows,
            note,
        )
    ]
    refusals = [
        (name.partition("/")[2], form, report["sentence"])
        for name, forms in networks.items()
        for form, report in forms.items()
        if report["status"] == "refused"
    ]
    if refusals:
        tables.append(Table("Refused", ("network", "form", "what it says"), refusals))
    forms = list(dict.fromkeys(form for own in networks.values() for form in own))
    rates = {form: share(np.array([settled(own[form]) for own in networks.values() if form in own])) for form in forms}
    rivals = {form: compared(networks, form) for form in forms if form in ("tree", "clusters")}
    checks = {"tree: settles more often than BP": rates["tree"] > rates["BP"]}
    for form, found in rivals.items():
        checks[f"{form}: closer than BP on most networks where they differ"] = found["closer"] > found["further"]
        checks[f"{form}: nowhere further than BP"] = found["further"] == 0
    sentence = "Settled: " + ", ".join(f"{form} {rate:.0%}" for form, rate in rates.items()) + ". "
    sentence += "Against BP where both settle: " + "; ".join(
        f"{form} closer on {found['closer']}, equal on {found['equal']}, further on {found['further']}"
        for form, found in rivals.items()
    )
    return Outcome((*tables, check_table(checks)), numbers, grade(checks), f"{sentence}.")


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    networks = by_network(results)
    sheet, axes = figure(1, 2, width=12.0, height=max(4.0, 0.21 * len(networks) + 1.5))
    places = {name: number for number, name in enumerate(reversed(networks))}
    for ax, key, title in zip(axes[0], ("mean", "log_z"), ("error of a marginal", "error of log Z"), strict=True):
        for form, (colour, marker) in STYLES.items():
            for kept, face in ((True, colour), (False, "none")):
                shown = [
                    (max(abs(own[form][key]), DIGITS), places[name])
                    for name, own in networks.items()
                    if form in own and own[form].get(key) is not None and settled(own[form]) is kept
                ]
                # A cross has no inside; a thin one stands for a run that did not settle.
                style = {"color": colour, "markersize": 6, "markeredgewidth": 1.6 if kept else 0.7, "mfc": face}
                text = form if kept else f"{form}, not settled"
                ax.plot(*(zip(*shown, strict=True) if shown else ([], [])), marker, label=text, **style)
        ax.set_xscale("log")
        ax.set_yticks(list(places.values()), [name.partition("/")[2] or name for name in places], fontsize=7)
        label(ax, title, f"{title} (at least {DIGITS:g})", "")
    shared_legend(sheet, axes.flat)
    return sheet


EXPERIMENT = Experiment(
    name="thesis-4-networks",
    document=f"{DOCUMENT}, section 4.2",
    title="Trees and clusters on networks from files",
    claim="A partly connected q makes EP more accurate than belief propagation. (Here on public Bayesian networks and "
    "competition problems with known answers; the thesis has none of them.)",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
