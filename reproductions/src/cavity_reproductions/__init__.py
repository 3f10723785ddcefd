"""Experiments: one file a figure of a document, each with its claim, its run and its verdict."""

from cavity_reproductions.base import Config, Experiment, Outcome, Unit
from cavity_reproductions.registry import REGISTRY
from cavity_reproductions.runner import Interrupted, Record, default_folder, run
from cavity_reproductions.series import run_series, write_record

__all__ = [
    "REGISTRY",
    "Config",
    "Experiment",
    "Interrupted",
    "Outcome",
    "Record",
    "Unit",
    "default_folder",
    "run",
    "run_series",
    "write_record",
]
