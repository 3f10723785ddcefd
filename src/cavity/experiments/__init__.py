"""Experiments: one file a figure of a document, each with its claim, its run and its verdict."""

from cavity.experiments.base import Config, Experiment, Outcome, Unit
from cavity.experiments.registry import REGISTRY
from cavity.experiments.runner import Interrupted, Record, default_folder, run
from cavity.experiments.series import run_series, write_record

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
