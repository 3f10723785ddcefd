"""Axes that several experiments draw in the same way: error against cost, and boxes by name."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from cavity.reports import STYLES
from cavity.reports.figures import BLACK


def cost_curve(ax: Axes, name: str, cost: np.ndarray, error: np.ndarray, floor: float = 1e-12) -> None:
    """Error against cost on logarithmic axes; nan is left out; where all errors are nan there is no curve.

    EP has a mark for every sweep, other methods at even distances; ADF is the single point at the end of EP's first.
    """
    seen = ~np.isnan(error)
    if not seen.any():
        return
    every = None if name in ("EP", "EP2", "ADF", "Restricted EP") else 0.05
    names = {"importance": "importance sampling", "Gibbs": "Gibbs sampling", "ADF": "ADF (EP's first sweep)"}
    style = STYLES[name].plot() | ({"markersize": 13, "linestyle": "none", "zorder": 3} if name == "ADF" else {})
    ax.loglog(cost[seen], np.maximum(error[seen], floor), **style, markevery=every, label=names.get(name, name))


def box_by_name(ax: Axes, samples: Mapping[str, np.ndarray], colours: Mapping[str, str]) -> None:
    """A box for each name over positive numbers on a logarithmic axis; whiskers at 5 and 95 %."""
    names = list(samples)
    boxes = ax.boxplot(
        [samples[name] for name in names],
        whis=(5, 95),
        showfliers=False,
        patch_artist=True,
        widths=0.55,
        medianprops={"color": BLACK},
    )
    for patch, name in zip(boxes["boxes"], names, strict=True):
        patch.set(facecolor=colours[name], alpha=0.6)
    ax.set_xticks(range(1, len(names) + 1), names)
    ax.set_yscale("log")
