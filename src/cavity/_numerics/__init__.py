"""Functions of numbers and arrays that floating point alone gets wrong: tails, inverses, sums, quadrature."""

# Nothing here is public.
__all__: list[str] = []
