"""Operators that learn to pass messages just in time."""

from cavity.learned.factor import JustInTime, just_in_time, load
from cavity.learned.operator import Report
from cavity.learned.sampling import SamplerError

__all__ = ["JustInTime", "Report", "SamplerError", "just_in_time", "load"]
