"""Operators that learn to pass messages just in time."""

from cavity.learned.factor import JustInTime, just_in_time, load
from cavity.learned.operator import Report
from cavity.learned.oracle_factor import EveryTime, every_time
from cavity.learned.sampling import SamplerError

__all__ = ["EveryTime", "JustInTime", "Report", "SamplerError", "every_time", "just_in_time", "load"]
