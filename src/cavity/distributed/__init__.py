"""EP on shards with Dask: data stay on the workers, natural parameters travel."""

try:
    import distributed  # noqa: F401
except ImportError as error:
    raise ImportError("cavity.distributed needs Dask; install it with: pip install 'cavity[dask]'.") from error

from cavity.distributed._rounds import RoundsResult
from cavity.distributed._worker_pool import ClusterError
from cavity.distributed.clients import Failure, connect, infer_all, local_client, map, map_unordered
from cavity.distributed.gaussian import GaussianResult
from cavity.distributed.graph_fit import GraphFit, infer_in_parts
from cavity.distributed.linear_fit import Fit, fit
from cavity.distributed.linear_fit import load_fit as load
from cavity.distributed.partitions import Partitioned, infer_partitions

__all__ = ["connect", "fit", "infer_all", "infer_in_parts", "infer_partitions", "load", "local_client", "map"]
__all__ += [
    "ClusterError",
    "Failure",
    "Fit",
    "GaussianResult",
    "GraphFit",
    "Partitioned",
    "RoundsResult",
    "map_unordered",
]
