"""Sharded EP on Dask: rows stay on the workers, natural parameters travel."""

try:
    import distributed  # noqa: F401
except ImportError as error:
    raise ImportError("cavity.distributed needs Dask; install it with: pip install 'cavity[dask]'.") from error

from cavity.distributed.clients import connected, local_client
from cavity.distributed.fan_out import Failure, computed, map
from cavity.distributed.graph.driver import GraphFit, infer_in_parts
from cavity.distributed.infer_all import infer_all
from cavity.distributed.linear.driver import fit
from cavity.distributed.linear.result import Fit, load
from cavity.distributed.partitioned.driver import Partitioned, partitioned

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
