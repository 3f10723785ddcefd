"""Figures of the lecture notes on expectation propagation."""

DOCUMENT = "Lecture notes on expectation propagation"
