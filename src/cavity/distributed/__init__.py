"""EP on shards with Dask: data stay on the workers, natural parameters travel."""

try:
    import distributed  # noqa: F401
except ImportError as error:
    raise ImportError("cavity.distributed needs Dask; install it with: pip install 'cavity[dask]'.") from error

from cavity.distributed.clients import connected, local_client
from cavity.distributed.fan_out import Failure, computed, infer_all, map
from cavity.distributed.graph.driver import GraphFit, infer_in_parts
from cavity.distributed.linear.driver import fit
from cavity.distributed.linear.result import Fit
from cavity.distributed.linear.result import load_fit as load
from cavity.distributed.partitions import Partitioned, partitioned

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
