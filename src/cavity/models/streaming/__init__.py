"""Linear and low-rank models on more rows than memory holds: portions visited by the one loop, checkpoints."""

from cavity.models.streaming.linear import stream_linear_models
from cavity.models.streaming.parquet import parquet
from cavity.models.streaming.run import Told
from cavity.models.streaming.sparse_gp import stream_sparse_gps

__all__ = ["Told", "parquet", "stream_linear_models", "stream_sparse_gps"]
