"""Rows of a linear model on many workers."""
