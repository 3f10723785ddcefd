"""Linear and low-rank models on more rows than memory holds: portions visited by the one loop, checkpoints."""

from cavity.models.streams.linear import stream_linear_machines
from cavity.models.streams.low_rank import stream_low_rank_machines
from cavity.models.streams.parquet import parquet
from cavity.models.streams.run import Told

__all__ = ["Told", "parquet", "stream_linear_machines", "stream_low_rank_machines"]
