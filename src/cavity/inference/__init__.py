"""The one loop and what is plugged into it."""

from cavity.inference import stepping
from cavity.inference.check import Check
from cavity.inference.energy import Energy
from cavity.inference.problem import Problem, SiteGroup
from cavity.inference.relaxed_energy import RelaxedEnergy, relaxed_dual, relaxed_primal
from cavity.inference.schedule import Schedule
from cavity.inference.solution import Solution
from cavity.inference.status import Attempt, Status
from cavity.inference.update_rule import Cowell, Integrals, Projected, Projection

# Schedules, methods and `infer` are in `cavity` itself; here is what only extensions and reports name, too.
__all__ = ["Attempt", "Check", "Cowell", "Energy", "Integrals", "Problem", "Projected", "Projection", "RelaxedEnergy"]
__all__ += ["Schedule", "SiteGroup", "Solution", "Status", "relaxed_dual", "relaxed_primal", "stepping"]
