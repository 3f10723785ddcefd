"""Sharded EP on Dask: rows stay on the workers, natural parameters travel."""

try:
    import distributed  # noqa: F401
except ImportError as error:
    raise ImportError("cavity.cluster needs Dask; install it with: pip install 'cavity[cluster]'.") from error

from cavity.cluster.clients import connected, local_client
from cavity.cluster.fan_out import Failure, computed, map
from cavity.cluster.fitting import fit
from cavity.cluster.graphs import infer_all
from cavity.cluster.partitions import Partitioned, partitioned
from cavity.cluster.parts import GraphFit, infer_in_parts
from cavity.cluster.result import Fit, load

__all__ = [
    "Failure",
    "Fit",
    "GraphFit",
    "Partitioned",
    "computed",
    "connected",
    "fit",
    "infer_all",
    "infer_in_parts",
    "load",
    "local_client",
    "map",
    "partitioned",
]
