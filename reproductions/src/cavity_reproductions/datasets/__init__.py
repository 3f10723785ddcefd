"""Data sets of the literature: from a folder, from OpenML, or those that come with scikit-learn."""

from cavity_reproductions.datasets.loading import Dataset, load, names

__all__ = ["Dataset", "load", "names"]
