"""Plumbing used by every package above: float64 as a scope, checks of input, devices, threads, pytrees."""
