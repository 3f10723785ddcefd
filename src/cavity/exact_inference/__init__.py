"""Exact answers, by quadrature, expansion, enumeration or junction tree."""

from cavity.exact_inference.answers import exact, posterior_density

__all__ = ["exact", "posterior_density"]
