"""Pictures of the six-node network: its edges, what q keeps, which edges are one term; and errors by form."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cavity.reports.figures import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, label
from cavity_reproductions.axes import box_by_name
from cavity_reproductions.base import Results
from cavity_reproductions.thesis.six_nodes import EDGES, form_numbers, forms_in, of_form

#: where the nodes stand: two squares that share the side x3, x4
PLACES = np.array([(0, 0), (0, 1), (1, 1), (1, 0), (2, 0), (2, 1)], float)
#: errors below this are drawn here: rounding
FLOOR = 1e-17
COLOURS = {
    "BP": VERMILION,
    "grouped": ORANGE,
    "one group": GREY,
    "chain": BLUE,
    "clusters": PURPLE,
    "clusters, grouped": GREEN,
}


def portrait(ax: Any, title: str, kept: Sequence[tuple[int, int]] = (), terms: Sequence[Sequence[int]] = ()) -> None:
    """The network. kept: edges that q holds, drawn bold. terms: numbers of edges that are one term, one colour each."""
    colour = {edge: colour for own, colour in zip(terms, (ORANGE, SKY), strict=False) for edge in own}
    for number, edge in enumerate(EDGES):
        ends = PLACES[list(edge)]
        if edge in kept:
            ax.plot(*ends.T, color=BLUE, linewidth=8, alpha=0.25, zorder=1)
        line = ":" if kept and edge not in kept else "-"
        ax.plot(*ends.T, color=colour.get(number, BLACK), linestyle=line, linewidth=2.2, zorder=2)
    ax.scatter(*PLACES.T, s=520, color="white", edgecolor=BLACK, zorder=3)
    for number, place in enumerate(PLACES):
        ax.text(*place, f"$x_{number + 1}$", ha="center", va="center", zorder=4)
    ax.set_aspect("equal")
    ax.set_xlim(-0.4, 2.4)
    ax.set_ylim(-0.4, 1.4)
    ax.grid(False)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)
    ax.set_title(title, fontsize=10, loc="left")


def error_boxes(ax: Any, results: Results, title: str) -> None:
    """The mean error of the marginals of a network, by form, after one pass and at the end."""
    samples = {}
    for name in forms_in(results):
        for method in ("ADF", "EP"):
            found = of_form(results, name, f"{method} marginals").mean(axis=1)
            samples[f"{name}\n{method}"] = np.maximum(found, FLOOR)
    shown = {name: name.replace(", ", ",\n") for name in samples}
    colours = {shown[name]: COLOURS[name.partition("\n")[0]] for name in samples}
    box_by_name(ax, {shown[name]: own for name, own in samples.items()}, colours)
    label(ax, title, "", "mean error of a marginal")
    ax.tick_params(axis="x", labelsize=8)


def worst(results: Results, name: str) -> float:
    """The largest error of any marginal or log Z of a form."""
    own = form_numbers(results)[name]
    return max(own["largest EP error"], own["largest log Z error"])
