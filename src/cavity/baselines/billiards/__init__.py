"""Billiards: rivals of EP for the Bayes point of separable data."""

from cavity.baselines.billiards.play import Play, billiard
from cavity.baselines.billiards.rules import RULES, Rule
from cavity.baselines.billiards.walls import separator, walls

__all__ = ["RULES", "Play", "Rule", "billiard", "separator", "walls"]
