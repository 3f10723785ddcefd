"""Linear and low-rank models on more rows than memory holds: chunks visited by the one loop, checkpoints."""

from cavity.models.streaming._parquet import parquet
from cavity.models.streaming.linear import stream_linear_models, stream_sparse_gps
from cavity.models.streaming.run import StreamProgress

__all__ = ["StreamProgress", "parquet", "stream_linear_models", "stream_sparse_gps"]
