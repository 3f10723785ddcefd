"""The experiments by name, in the order of the documents."""

from cavity_reproductions.base import Experiment
from cavity_reproductions.learned import experiment_1 as kjit_1
from cavity_reproductions.learned import experiment_2 as kjit_2
from cavity_reproductions.learned import experiment_3 as kjit_3
from cavity_reproductions.learned import experiment_4 as kjit_4
from cavity_reproductions.learned import experiment_5 as kjit_5
from cavity_reproductions.learned import figure_1 as kjit_messages
from cavity_reproductions.learned import figure_10 as kjit_10
from cavity_reproductions.learned import show_case as kjit_simulator
from cavity_reproductions.learned import supplement_b3 as kjit_b3
from cavity_reproductions.learned import supplement_b6 as kjit_b6
from cavity_reproductions.notes import figure_1 as notes_1
from cavity_reproductions.notes import figure_2 as notes_2
from cavity_reproductions.relaxed import figure_1 as rep_1
from cavity_reproductions.relaxed import figure_2 as rep_2
from cavity_reproductions.relaxed import figure_3 as rep_3
from cavity_reproductions.relaxed import figure_4 as rep_4
from cavity_reproductions.relaxed import figure_5 as rep_5
from cavity_reproductions.relaxed import figure_6 as rep_6
from cavity_reproductions.thesis import (
    benchmark_sets,
    figure_2_1,
    figure_3_2,
    figure_3_4,
    figure_3_5,
    figure_3_6,
    figure_3_7,
    figure_4_1,
    figure_4_3,
    figure_4_4,
    figure_4_5,
    figure_4_6,
    figure_5_2,
    figure_5_3,
    figure_5_4,
    figure_5_5,
    figure_5_6,
    figure_5_7,
    figure_5_10,
    figure_5_11,
    figure_5_12,
    figure_5_13,
    figure_5_14,
    figure_5_15,
    larger_graphs,
    networks,
    normalised_inputs,
    random_grids,
    support_vectors,
)

EXPERIMENTS: tuple[Experiment, ...] = (
    *(module.EXPERIMENT for module in (figure_2_1, figure_3_2, figure_3_4, figure_3_5, figure_3_6, figure_3_7)),
    *(module.EXPERIMENT for module in (figure_4_1, figure_4_3, figure_4_4, figure_4_5, figure_4_6, larger_graphs)),
    *(module.EXPERIMENT for module in (random_grids, networks, figure_5_2, normalised_inputs, figure_5_3, figure_5_4)),
    *(module.EXPERIMENT for module in (support_vectors, figure_5_5, figure_5_6, figure_5_7)),
    *(benchmark_sets.FIGURE_5_8, benchmark_sets.FIGURE_5_9),
    *(module.EXPERIMENT for module in (figure_5_10, figure_5_11, figure_5_12, figure_5_13, figure_5_14, figure_5_15)),
    *(module.EXPERIMENT for module in (notes_1, notes_2, rep_1, rep_2, rep_3, rep_4, rep_5, rep_6)),
    *(module.EXPERIMENT for module in (kjit_messages, kjit_1, kjit_2, kjit_3, kjit_4, kjit_5, kjit_10)),
    *(module.EXPERIMENT for module in (kjit_b3, kjit_b6, kjit_simulator)),
)

#: all experiments by name
REGISTRY: dict[str, Experiment] = {experiment.name: experiment for experiment in EXPERIMENTS}
