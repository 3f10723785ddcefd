"""Figures leave matplotlib's settings alone and are the same file every time."""

import matplotlib
import numpy as np
import pytest

from cavity.reports import STYLES, figure, save
from cavity.reports.figures import label, legend, shared_legend


def sample_figure():
    sheet, axes = figure(1, 2)
    axes[0, 0].loglog(np.array([1.0, 2.0]), np.array([1.0, 0.1]), **STYLES["EP"].plot(), label="EP")
    axes[0, 1].plot(np.array([1.0, 2.0]), np.array([1.0, 2.0]), **STYLES["exact"].curve(), label="exact")
    label(axes[0, 0], "title", "x", "y")
    legend(axes[0, 0], outside=True)
    shared_legend(sheet, axes.flat)
    return sheet, axes


def test_settings_and_pyplot_are_untouched(tmp_path):
    before = dict(matplotlib.rcParams)
    save(sample_figure()[0], tmp_path / "a.png")
    assert dict(matplotlib.rcParams) == before
    assert "matplotlib.pyplot" not in vars(__import__("cavity.reports.figures", fromlist=["figures"]))


def test_equal_figures_are_equal_files_in_a_folder_that_is_made(tmp_path):
    first = save(sample_figure()[0], tmp_path / "new" / "a.png")
    second = save(sample_figure()[0], tmp_path / "b.png")
    assert first.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert first.read_bytes() == second.read_bytes()


def test_every_method_is_told_apart_by_colour_or_line_or_marker():
    shown = [style for name, style in STYLES.items() if name != "Restricted EP"]
    assert len({(style.colour, str(style.line), style.marker) for style in shown}) == len(shown)


@pytest.mark.parametrize("name", STYLES)
def test_curves_have_no_markers(name):
    assert STYLES[name].curve()["marker"] == ""
