"""Sharded EP on Dask: rows stay on the workers, natural parameters travel."""

try:
    import distributed  # noqa: F401
except ImportError as error:
    raise ImportError("cavity.cluster needs Dask; install it with: pip install 'cavity[cluster]'.") from error

from cavity.cluster.clients import local_client
from cavity.cluster.fit import fit
from cavity.cluster.partitioned import Partitioned, partitioned
from cavity.cluster.result import Fit, load

__all__ = ["Fit", "Partitioned", "fit", "load", "local_client", "partitioned"]
