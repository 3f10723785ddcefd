"""Axes that experiments share: only numbers are drawn, and the settings of matplotlib stay as they are."""

import matplotlib
import numpy as np
from cavity_reproductions.axes import box_by_name, cost_curve

from cavity.reports import STYLES, figure, save


def sample_figure():
    sheet, axes = figure(1, 2)
    cost_curve(axes[0, 0], "EP", np.array([1.0, 2.0, 3.0]), np.array([1.0, 0.1, np.nan]))
    cost_curve(axes[0, 0], "Gibbs", np.array([1.0, 2.0]), np.array([np.nan, np.nan]))
    box_by_name(axes[0, 1], {"EP": np.array([1.0, 2.0])}, {"EP": STYLES["EP"].colour})
    return sheet, axes


def test_a_curve_without_numbers_is_not_drawn():
    _, axes = sample_figure()
    (line,) = axes[0, 0].get_lines()
    assert line.get_label() == "EP"
    assert len(line.get_xdata()) == 2


def test_settings_are_untouched_and_equal_figures_are_equal_files(tmp_path):
    before = dict(matplotlib.rcParams)
    first, second = (save(sample_figure()[0], tmp_path / name) for name in ("a.png", "b.png"))
    assert dict(matplotlib.rcParams) == before
    assert first.read_bytes() == second.read_bytes()
