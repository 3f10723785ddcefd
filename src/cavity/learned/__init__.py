"""Operators that learn to pass messages just in time."""

from cavity.learned.operator import JustInTime, Report, just_in_time

__all__ = ["JustInTime", "Report", "just_in_time"]
