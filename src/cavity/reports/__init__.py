"""Tables, figures and progress bars; the only package that imports matplotlib."""

from cavity.reports.figures import STYLES, Figure, Style, figure, save
from cavity.reports.progress import SweepProgress, UnitProgress
from cavity.reports.tables import Table, markdown, show

__all__ = ["STYLES", "Figure", "Style", "SweepProgress", "Table", "UnitProgress", "figure", "markdown", "save", "show"]
