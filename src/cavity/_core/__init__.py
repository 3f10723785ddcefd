"""What every room stands on: float64 as a scope, checks of input, devices, threads, pytrees."""
