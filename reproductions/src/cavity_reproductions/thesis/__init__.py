"""Figures of T. P. Minka, "A family of algorithms for approximate Bayesian inference" (MIT, 2001)."""

DOCUMENT = "Minka 2001 (thesis)"
