"""Thesis figure 5-8: EP, billiard and SVM on heart and thyroid."""

from cavity.reports import Figure
from cavity_reproductions.base import Config, Experiment, Outcome, Results, Unit
from cavity_reproductions.thesis import DOCUMENT, benchmark_sets, split_contest

#: what the thesis found of EP against each rival
SETS = {"heart": {"SVM": True, "billiard": "similar"}, "thyroid": {"SVM": True, "billiard": "similar"}}


def units(config: Config) -> list[Unit]:
    return split_contest.units(config, tuple(SETS))


def summarise(results: Results, config: Config) -> Outcome:
    return split_contest.outcome(results, SETS, benchmark_sets.NOTE)


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    return split_contest.draw(results, tuple(SETS))


EXPERIMENT = Experiment(
    name="thesis-5-8",
    document=f"{DOCUMENT}, figure 5-8",
    title="Heart and thyroid",
    claim="On heart and thyroid EP beats the SVM on most of 40 splits and performs like the billiard.",
    units=units,
    run_unit=benchmark_sets.run_unit,
    summarise=summarise,
    draw=draw,
)
