"""Networks from files with their exact answers, and the approximations EP may use on them.

$CAVITY_DATA/graphs/bif, libdai, uai    the models; evidence beside a .uai file in <file>.evid
$CAVITY_DATA/graphs/exact               <file>.csv: variable,state,probability; logz.csv: log Z by model
$CAVITY_DATA/graphs/uai                 <file>.MAR and <file>.PR, where the competition's answers are the exact ones
"""

import csv
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import cavity
from cavity.discrete import DiscreteGraph, exact_discrete
from cavity.discrete.io.uai import read_mar, read_pr
from cavity_reproductions.datasets.loading import FOLDER
from cavity_reproductions.thesis.spin_graphs import Structure, between_clusters, grid_edges, grown

GRIDS = tuple(f"uai/Grids_{number}.uai" for number in range(11, 19))
SEGMENTATIONS = tuple(f"uai/Segmentation_{number}.uai" for number in range(11, 17))
NETWORKS = (
    *(f"libdai/{name}.fg" for name in ("2var", "3var", "hoi1", "hoi2", "hoi3", "hoi4", "jtreemapbug", "maxprodbug")),
    *("libdai/twofactors.fg", "libdai/zeroes1.fg", "libdai/testfast.fg", "libdai/alarm.fg"),
    *(f"bif/{name}.bif" for name in ("cancer", "earthquake", "survey", "asia", "sachs", "child", "insurance", "water")),
    *(f"bif/{name}.bif" for name in ("alarm", "hailfinder", "hepar2", "win95pts", "andes", "pigs")),
    *("uai/grid3x3.uai", "uai/grid4x4.uai", "uai/grid4x4_with_triplets.uai", "uai/DBN_11.uai", "uai/CSP_12.uai"),
    *("uai/ObjectDetection_74.uai", "uai/Promedus_24.uai", "uai/Promedus_30.uai", "uai/Pedigree_11.uai"),
    *("uai/Alchemy_11.uai", *SEGMENTATIONS, *GRIDS),
)
#: in which every factor has two binary variables at most: where clusters of variables leave tables small
PAIRS = (
    *("libdai/testfast.fg", "uai/grid3x3.uai", "uai/grid4x4.uai", "uai/grid4x4_with_triplets.uai", "uai/DBN_11.uai"),
    *(*SEGMENTATIONS, *GRIDS),
)
#: variables of a cluster
CLUSTER = 4


class Known(NamedTuple):
    """A network and its exact answers."""

    graph: DiscreteGraph
    marginals: list[np.ndarray]
    log_z: float


def data_folder() -> Path:
    """$CAVITY_DATA/graphs."""
    folder = os.environ.get(FOLDER)
    if not folder or not (found := Path(folder) / "graphs").is_dir():
        raise FileNotFoundError(
            f"this experiment reads networks from files: set {FOLDER} to a folder that holds graphs/bif, "
            "graphs/libdai, graphs/uai and graphs/exact."
        )
    return found


def stored(name: str) -> Known:
    """A network of the folder, by "<folder>/<file>"."""
    path, answers = data_folder() / name, data_folder() / "exact"
    evidence = path.with_name(f"{path.name}.evid")
    graph = DiscreteGraph.read(path, evidence=evidence if evidence.is_file() else None)
    table = answers / f"{path.name}.csv"
    if not table.is_file():
        competition = (path.with_name(f"{path.name}.{kind}").read_text(encoding="ascii") for kind in ("MAR", "PR"))
        return Known(graph, read_mar(next(competition)), read_pr(next(competition)))
    marginals = [np.zeros(states) for states in graph.cardinalities]
    with table.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            variable = graph.variables.number(row["variable"])
            marginals[variable][graph.variables.state(variable, row["state"])] = float(row["probability"])
    with (answers / "logz.csv").open(encoding="utf-8", newline="") as file:
        log_z = {row["model"]: float(row["log_z"]) for row in csv.DictReader(file)}
    return Known(graph, marginals, log_z[path.name])


def built_in(seed: int) -> Known:
    """A 3×3 grid of binary variables with random tables, for runs without files."""
    rng = np.random.default_rng(seed)
    graph = DiscreteGraph([2] * 9)
    graph.add_factors(grid_edges(3), rng.normal(size=(12, 2, 2)), log=True)
    truth = exact_discrete(graph)
    return Known(graph, truth.marginals, truth.log_evidence)


def approximation(graph: DiscreteGraph, form: str) -> Any:
    """By name: "BP", "tree", or "clusters" with the factors between two clusters joined."""
    if form != "clusters":
        return graph.approximate("tree" if form == "tree" else "disconnected")
    wide = [(number, table.scope) for number, table in enumerate(graph) if len(table.scope) > 1]
    edges = np.array([scope for _, scope in wide], np.int64)
    clusters = grown(len(graph.variables), edges, CLUSTER)
    groups = between_clusters(Structure(len(graph.variables), edges, np.ones(len(edges)), clusters))
    joined = [[wide[edge][0] for edge in own] for own in groups]
    return graph.approximate(cavity.Clusters(clusters), groups=joined)


def distances(marginals: Any, known: Known) -> np.ndarray:
    """Total variation distance of every marginal that the evidence leaves open."""
    free = [v for v in range(len(known.marginals)) if v not in known.graph.evidence]
    return np.array([0.5 * np.abs(np.asarray(marginals[v]) - known.marginals[v]).sum() for v in free])
