"""Learned operators: active learning of messages while inference goes on, from a simulator or another oracle."""

from cavity.learned.active_learning import JustInTime, OperatorReport
from cavity.learned.factor import EveryTime, LearnedFactor, every_time, just_in_time, load
from cavity.learned.oracles import Answers, Oracle
from cavity.learned.sampling import SamplerError
from cavity.learned.simulation import Simulator

__all__ = ["EveryTime", "JustInTime", "LearnedFactor", "Simulator", "every_time", "just_in_time", "load"]
__all__ += ["Answers", "OperatorReport", "Oracle", "SamplerError"]
