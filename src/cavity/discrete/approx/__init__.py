"""Approximate answers: loopy belief propagation, trees, clusters, max-product, filtering."""

# Nothing here is public.
__all__: list[str] = []
