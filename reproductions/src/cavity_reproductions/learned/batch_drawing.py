"""The figure of experiment 1: operators learned from a batch of messages."""

from typing import Any

import numpy as np

from cavity.reports import Figure, figure
from cavity.reports.figures import BLACK, BLUE, GREY, VERMILION, label, legend
from cavity_reproductions.base import Results, array
from cavity_reproductions.learned.batch_rows import DEFAULTS, EXACT, KJIT, PRINTED, QUADRATURE

#: test messages shown, from the best on
QUANTILES = (0.0, 0.5, 0.9, 0.99)


def scores(results: Results, setting: str, output: str) -> dict[str, dict[str, np.ndarray]]:
    """log KL of every operator and both kinds of labels."""
    prefix = f"{setting}, {output}: "
    return {
        name[len(prefix) :]: {kind: array(result[kind]) for kind in ("sampler", "exact")}
        for name, result in results.items()
        if name.startswith(prefix)
    }


def draw(results: Results, setting: str) -> Figure:
    """Errors, messages at percentiles, and all operators beside what was printed."""
    sheet, axes = figure(1, 3, width=16.0, height=4.8)
    found = scores(results, setting, "to z")
    ax = axes[0, 0]
    bins = np.linspace(-36, 2, 77)
    shown = ((KJIT, "sampler", GREY, "paper, sampler's labels"), (KJIT, "exact", VERMILION, "paper, exact moments"),
             (QUADRATURE, "exact", BLUE, "default, exact moments"))  # fmt: skip
    for name, kind, colour, text in shown:
        values = np.clip(found[name][kind], bins[0], bins[-1])
        ax.hist(values, bins, histtype="stepfilled", alpha=0.5, color=colour, label=text)
    ax.margins(y=0.3)
    label(ax, f"(a) errors of messages to z, {setting}", "log KL", "test messages")
    legend(ax)
    ax = axes[0, 1]
    result = results[f"{setting}, to z: {KJIT}"]
    rows = zip(QUANTILES, array(result["labels"]), array(result["predicted"]), strict=True)
    for number, (quantile, exact, predicted) in enumerate(rows):
        mean, deviation = exact[0] / exact[1], exact[1] ** -0.5
        grid = np.linspace(-4, 4, 200)
        for eta, colour, line in ((exact, BLACK, "-"), (predicted, VERMILION, "--")):
            z = (mean + deviation * grid - eta[0] / eta[1]) * np.sqrt(eta[1])
            height = np.sqrt(eta[1]) * deviation * np.exp(-0.5 * z**2)
            text = {BLACK: "label", VERMILION: "predicted"}[colour] if number == 0 else None
            ax.plot(grid + 9 * number, height, color=colour, linestyle=line, label=text)
        error = np.sort(array(result["sampler"]))[int(quantile * (len(result["sampler"]) - 1))]
        ax.text(9 * number, -0.12, f"{quantile:.0%}\n{error:.1f}", ha="center", va="top", fontsize=8.5)
    ax.set_ylim(-0.32, 1.25)
    ax.set_xticks([])
    label(ax, "(b) messages at percentiles of the error, log KL below", "each in its own deviations", "")
    legend(ax, loc="upper right")
    bars(axes[0, 2], found)
    return sheet


def bars(ax: Any, found: dict[str, dict[str, np.ndarray]]) -> None:
    """Mean log KL of all operators, printed values as marks."""
    order = sorted((name for name in found if name != EXACT), key=lambda name: found[name]["exact"].mean())
    for place, name in enumerate(order):
        colour = BLUE if name in DEFAULTS else VERMILION if name == KJIT else GREY
        ax.barh(place, found[name]["exact"].mean(), color=colour, alpha=0.7)
        ax.plot(found[name]["sampler"].mean(), place, "k|", markersize=9)
        if name in PRINTED:
            ax.plot(PRINTED[name][0], place, "o", color=BLACK, markersize=4, markerfacecolor="none")
    ax.set_yticks(range(len(order)), order, fontsize=7.5)
    ax.invert_yaxis()
    label(ax, "(c) bar: exact moments; line: sampler; circle: printed", "mean log KL", "")
