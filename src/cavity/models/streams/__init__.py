"""Linear models on more rows than memory holds: read in portions, visited by the one loop, kept in checkpoints."""

from cavity.models.streams.linear import stream_linear_machines
from cavity.models.streams.parquet import parquet
from cavity.models.streams.run import Told

__all__ = ["Told", "parquet", "stream_linear_machines"]
