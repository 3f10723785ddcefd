"""A discrete graph with its marginals: a table of the least certain variables, and a drawing.

Places for the nodes follow from the edges alone: the same edges always give the same drawing. Distances on the page are
brought near to distances along the edges (stress majorisation), starting from classical scaling of these. Parts that
are not connected are laid out one by one and set beside each other.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Rectangle
from matplotlib.patheffects import withStroke
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, shortest_path
from scipy.special import entr

from cavity.discrete import DiscreteGraph
from cavity.reports.figures import BLACK, BLUE, GREY, ORANGE, Figure, figure
from cavity.reports.tables import Table

#: steps of the majorisation, and the relative gain below which it ends
STEPS, GAIN = 300, 1e-5
#: share of edges along two axes, as |mean exp(4i angle)|, from which a network counts as a grid
GRID = 0.35
#: between parts, in lengths of an edge
GAP = 1.0
#: rounds of moving apart what overlaps
ROUNDS = 100


def layout(count: int, edges: Sequence[tuple[int, int]], lengths: Sequence[float], radii: np.ndarray) -> np.ndarray:
    """Places (count, 2) of nodes joined by edges of these lengths; nodes of these radii do not overlap."""
    if count == 0:
        return np.zeros((0, 2))
    ends = np.array(edges, np.int64).reshape(-1, 2)
    weights = np.asarray(lengths, float)
    ends, first = np.unique(np.sort(ends, axis=1), axis=0, return_index=True)
    matrix = coo_array((weights[first], (ends[:, 0], ends[:, 1])), shape=(count, count)).tocsr()
    parts, part = connected_components(matrix, directed=False)
    places = np.zeros((count, 2))
    for number in range(parts):
        own = np.flatnonzero(part == number)
        inside = matrix[own][:, own]
        found = stress_layout(np.asarray(shortest_path(inside, directed=False)))
        links = np.stack(inside.nonzero(), axis=1)
        places[own] = separated(upright(found, links), radii[own])
    return packed(places, part)


def stress_layout(distances: np.ndarray) -> np.ndarray:
    """Places whose distances are near these, each counted relative to its size."""
    count = len(distances)
    if count == 1:
        return np.zeros((1, 2))
    places = classical_scaling(distances)
    weights = np.where(distances > 0, 1.0 / np.maximum(distances, 1e-9) ** 2, 0.0)
    laplacian = np.diag(weights.sum(axis=1)) - weights
    inverse = np.linalg.inv(laplacian + 1.0 / count) - 1.0 / count
    before = np.inf
    for _ in range(STEPS):
        apart = np.linalg.norm(places[:, None] - places[None], axis=2)
        stress = float(np.sum(weights * (apart - distances) ** 2))
        if stress >= before * (1.0 - GAIN):
            break
        before = stress
        pull = weights * distances / np.where(apart > 1e-12, apart, np.inf)
        places = inverse @ (pull.sum(axis=1)[:, None] * places - pull @ places)
    return places


def classical_scaling(distances: np.ndarray) -> np.ndarray:
    """The two leading coordinates of points with about these distances; equal nodes are moved a little apart."""
    squares = distances**2
    centred = -0.5 * (squares - squares.mean(axis=0) - squares.mean(axis=1)[:, None] + squares.mean())
    values, vectors = np.linalg.eigh(centred)
    vectors = vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 1e-6))
    vectors = vectors * np.where(vectors[np.argmax(np.abs(vectors), axis=0), range(vectors.shape[1])] < 0, -1.0, 1.0)
    angle = np.arange(len(distances)) * 2.4
    return vectors[:, ::-1] + 0.05 * np.stack([np.cos(angle), np.sin(angle)], axis=1)


def upright(places: np.ndarray, links: np.ndarray) -> np.ndarray:
    """Turned so that a grid has rows and columns, and anything else is wider than high; the first node is top left."""
    places = places - places.mean(axis=0)
    steps = places[links[:, 1]] - places[links[:, 0]]
    direction = np.mean(np.exp(4j * np.arctan2(steps[:, 1], steps[:, 0]))) if len(links) else 0.0
    if abs(direction) > GRID:
        turn = float(np.angle(direction)) / 4
    else:
        _, vectors = np.linalg.eigh(places.T @ places)
        turn = float(np.arctan2(vectors[1, -1], vectors[0, -1]))
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    places = places @ rotation
    if np.ptp(places[:, 1]) > np.ptp(places[:, 0]) * 1.05:
        places = places[:, ::-1]
    return places * np.where(places[0] * [1.0, -1.0] > 1e-9, -1.0, 1.0)


def separated(places: np.ndarray, radii: np.ndarray) -> np.ndarray:
    """Nodes that overlap are moved apart along the line between them, as often as it takes or `ROUNDS` times."""
    apart = radii[:, None] + radii[None]
    np.fill_diagonal(apart, 0.0)
    for _ in range(ROUNDS):
        step = places[:, None] - places[None]
        distance = np.maximum(np.linalg.norm(step, axis=2), 1e-9)
        lacking = np.maximum(apart - distance, 0.0)
        if lacking.max() < 1e-3:
            break
        places = places + 0.5 * np.sum((lacking / distance)[:, :, None] * step, axis=1)
    return places


def packed(places: np.ndarray, part: np.ndarray) -> np.ndarray:
    """Parts beside each other in rows of about the same width, the largest first."""
    sizes = np.array([np.ptp(places[part == number], axis=0) + GAP for number in range(part.max() + 1)])
    order = np.argsort(-sizes.prod(axis=1), kind="stable")
    limit = max(float(sizes[:, 0].max()), 1.3 * float(np.sqrt(sizes.prod(axis=1).sum())))
    left, top, height, found = 0.0, 0.0, 0.0, places.copy()
    for number in order:
        width, tall = sizes[number]
        if left > 0 and left + width > limit:
            left, top, height = 0.0, top - height, 0.0
        own = part == number
        corner = np.array([places[own, 0].min(), places[own, 1].max()])
        found[own] = places[own] - corner + [left, top]
        left, height = left + width, max(height, tall)
    return found


#: variables beyond which nothing is drawn, no names, and no bars
MOST_DRAWN, MOST_NAMED, MOST_WITH_BARS = 500, 120, 40
#: states named in a row of the table; of more, the likeliest
NAMED_STATES = 4
#: of a variable's circle, and of a factor's square (half a side), in lengths of an edge between two variables
RADIUS, HALF = 0.27, 0.055
#: longest side of a figure in inches, and inches of an edge where there is room
LONGEST, EDGE = 15.0, 1.15


def uncertainty(marginal: np.ndarray) -> float:
    """Entropy relative to log K: 0 for certainty, 1 for K equal probabilities."""
    if len(marginal) < 2:
        return 0.0
    return float(np.clip(np.sum(entr(np.asarray(marginal, float))) / np.log(len(marginal)), 0.0, 1.0))


def least_certain(graph: DiscreteGraph, marginals: Sequence[np.ndarray], most: int) -> Table:
    """The variables whose marginals have the largest entropy relative to log K; observed ones are left out."""
    free = [number for number in range(len(graph.variables)) if number not in graph.evidence]
    free.sort(key=lambda number: -uncertainty(marginals[number]))
    rows = []
    for number in free[:most]:
        words = probabilities(graph.variables.states(number), marginals[number])
        rows.append((graph.variables.name(number), f"{uncertainty(marginals[number]):.3f}", words))
    note = f"{len(free) - most} more are more certain." if len(free) > most else ""
    return Table("Least certain variables", ("variable", "entropy / log K", "probabilities"), rows, note)


def probabilities(names: Sequence[str], marginal: np.ndarray) -> str:
    """States with their probabilities, in their own order where they are few."""
    if len(names) <= NAMED_STATES:
        return ", ".join(f"{name} {p:.4f}" for name, p in zip(names, marginal, strict=True))
    likely = np.argsort(-np.asarray(marginal), kind="stable")[:NAMED_STATES]
    return ", ".join(f"{names[k]} {marginal[k]:.4f}" for k in likely) + f", {len(names) - NAMED_STATES} more"


def check_drawable(graph: DiscreteGraph) -> None:
    """Refuse a graph whose drawing would show nothing."""
    if not 0 < len(graph.variables) <= MOST_DRAWN:
        raise ValueError(
            f"a network is drawn for 1 to {MOST_DRAWN} variables, beyond which it shows nothing; "
            f"this one has {len(graph.variables)}."
        )


class Drawing(NamedTuple):
    """Places of the variables, and of the factors that have a variable; the scopes of these."""

    variables: np.ndarray
    factors: np.ndarray
    scopes: list[tuple[int, ...]]


def arranged(graph: DiscreteGraph) -> Drawing:
    """Factors of one variable stand beside it, of two between them; of more they are nodes like the variables."""
    count, scopes = len(graph.variables), [table.scope for table in graph if table.scope]
    nodes = [number for number, scope in enumerate(scopes) if len(scope) > 2]
    edges = [(scope[0], scope[1]) for scope in scopes if len(scope) == 2]
    lengths = [1.0] * len(edges)
    for node, number in enumerate(nodes):
        edges += [(variable, count + node) for variable in scopes[number]]
        lengths += [0.65] * len(scopes[number])
    # Names stand below the circles, so that these keep more than their own width apart.
    radii = np.concatenate([np.full(count, 1.35 * RADIUS), np.full(len(nodes), 1.5 * HALF)])
    places = layout(count + len(nodes), edges, lengths, radii)
    variables, factors = places[:count], np.zeros((len(scopes), 2))
    factors[nodes] = places[count:]
    away = outward(count, places, edges)
    for number, scope in enumerate(scopes):
        if len(scope) == 1:
            factors[number] = variables[scope[0]] + away[scope[0]] * 1.6 * RADIUS
        elif len(scope) == 2:
            factors[number] = variables[list(scope)].mean(axis=0)
    return Drawing(variables, factors, scopes)


def outward(count: int, places: np.ndarray, edges: Sequence[tuple[int, int]]) -> np.ndarray:
    """For every variable the direction, of sixteen, that is farthest from all its edges; not down, where names are."""
    angles: list[list[float]] = [[-np.pi / 2] for _ in range(len(places))]
    for a, b in edges:
        step = places[b] - places[a]
        angles[a].append(float(np.arctan2(step[1], step[0])))
        angles[b].append(float(np.arctan2(-step[1], -step[0])))
    tried = np.arange(16) * np.pi / 8 + np.pi / 4
    best = [tried[np.argmin(np.cos(tried[:, None] - np.array(own)).max(axis=1).round(6))] for own in angles[:count]]
    return np.stack([np.cos(best), np.sin(best)], axis=1)


def network_figure(graph: DiscreteGraph, marginals: Sequence[np.ndarray], title: str) -> Figure:
    """Variables as circles coloured by their uncertainty, with bars of their marginals; factors as squares."""
    check_drawable(graph)
    drawing = arranged(graph)
    count = len(graph.variables)
    everything = np.concatenate([drawing.variables, drawing.factors])
    low, high = everything.min(axis=0) - 0.6, everything.max(axis=0) + 0.6
    scale = min(EDGE, (LONGEST - 1.5) / float(max(high - low)))
    width, height = (high - low) * scale
    sheet, axes = figure(width=max(width + 1.3, 5.0), height=max(height + 1.0, 3.0))
    ax = axes[0, 0]
    ax.set_axis_off()
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
    ax.set_title(title, fontsize=10, loc="left", parse_math=False)
    lines = [
        (drawing.variables[variable], place)
        for place, scope in zip(drawing.factors, drawing.scopes, strict=True)
        for variable in scope
    ]
    ax.add_collection(LineCollection(lines, colors=GREY, linewidths=min(1.0, scale), zorder=1))
    for x, y in drawing.factors:
        ax.add_patch(Rectangle((x - HALF, y - HALF), 2 * HALF, 2 * HALF, color="#444444", linewidth=0, zorder=2))
    colours = LinearSegmentedColormap.from_list("uncertainty", ["#ffffff", "#fbe3ad", ORANGE])
    draw_variables(ax, graph, [colours(uncertainty(own)) for own in marginals], drawing.variables)
    if count <= MOST_WITH_BARS:
        draw_bars(ax, marginals, drawing.variables)
    if count <= MOST_NAMED:
        draw_names(ax, graph, drawing.variables, max(4.0, 8.0 * min(1.0, scale / EDGE)))
    shading = ScalarMappable(Normalize(0, 1), colours)
    sheet.colorbar(shading, ax=ax, label="entropy / log K", fraction=0.035, pad=0.02, shrink=0.7)
    explain(sheet, bool(graph.evidence), count <= MOST_WITH_BARS)
    return sheet


def draw_variables(ax: Axes, graph: DiscreteGraph, colours: Sequence[Any], places: np.ndarray) -> None:
    """A circle each, with a thick edge where the variable is observed."""
    for number, (place, colour) in enumerate(zip(places, colours, strict=True)):
        width = 2.2 if number in graph.evidence else 0.9
        ax.add_patch(Circle(place, RADIUS, facecolor=colour, zorder=3, edgecolor=BLACK, linewidth=width))


def draw_bars(ax: Axes, marginals: Sequence[np.ndarray], places: np.ndarray) -> None:
    """Bars of the marginals, inside the circles."""
    span, tall = 1.25 * RADIUS, 1.05 * RADIUS
    for marginal, (x, y) in zip(marginals, places, strict=True):
        step, base = span / len(marginal), y - tall / 2
        for k, p in enumerate(marginal):
            left = x - span / 2 + (k + 0.1) * step
            ax.add_patch(Rectangle((left, base), 0.8 * step, tall * float(p), color=BLUE, linewidth=0, zorder=4))
        ax.plot([x - span / 2, x + span / 2], [base, base], color=BLACK, linewidth=0.7, zorder=5)


def draw_names(ax: Axes, graph: DiscreteGraph, places: np.ndarray, size: float) -> None:
    """Names below the circles, as they are: no formulas are read in them."""
    for number, (x, y) in enumerate(places):
        name = graph.variables.name(number)
        short = name if len(name) <= 14 else f"{name[:13]}…"
        text = ax.text(x, y - 1.15 * RADIUS, short, ha="center", va="top", fontsize=size, zorder=6)
        text.set(path_effects=[withStroke(linewidth=2.5, foreground="white")], parse_math=False)


def explain(sheet: Figure, observed: bool, bars: bool) -> None:
    """What the marks are, below the drawing."""
    circle = {"marker": "o", "linestyle": "none", "markersize": 9, "markerfacecolor": "white", "markeredgecolor": BLACK}
    words = "variable, bars: probabilities of its states" if bars else "variable"
    marks = [Line2D([], [], label=words, **circle)]
    if observed:
        marks.append(Line2D([], [], label="observed", markeredgewidth=2.2, **circle))
    marks.append(Line2D([], [], label="factor", marker="s", linestyle="none", markersize=5, color="#444444"))
    sheet.legend(handles=marks, loc="outside lower left", ncols=3, frameon=False, fontsize=8.5)
