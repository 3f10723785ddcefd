"""How tilted distributions are integrated: in closed form, by quadrature, by enumeration, by importance sampling."""

from cavity.moments.base import UNSURE, Batch, ClosedForm, Group, Info, Moments
from cavity.moments.enumeration import Enumeration
from cavity.moments.importance import Importance
from cavity.moments.quadrature import Quadrature

__all__ = ["UNSURE", "Batch", "ClosedForm", "Enumeration", "Group", "Importance", "Info", "Moments", "Quadrature"]
