"""Thesis figure 5-9: EP, billiard and SVM on ionosphere and sonar."""

from cavity.reports import Figure
from cavity_reproductions.base import Config, Experiment, Outcome, Results, Unit
from cavity_reproductions.thesis import DOCUMENT, benchmark_sets, split_contest

#: what the thesis found of EP against each rival
SETS = {"ionosphere": {"SVM": True, "billiard": "similar"}, "sonar": {"SVM": False, "billiard": "similar"}}


def units(config: Config) -> list[Unit]:
    return split_contest.units(config, tuple(SETS))


def summarise(results: Results, config: Config) -> Outcome:
    return split_contest.outcome(results, SETS, benchmark_sets.NOTE)


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    return split_contest.draw(results, tuple(SETS))


EXPERIMENT = Experiment(
    name="thesis-5-9",
    document=f"{DOCUMENT}, figure 5-9",
    title="Ionosphere and sonar",
    claim="On ionosphere EP beats the SVM on most of 40 splits, on sonar the SVM wins; on both EP "
    "performs like the billiard.",
    units=units,
    run_unit=benchmark_sets.run_unit,
    summarise=summarise,
    draw=draw,
)
