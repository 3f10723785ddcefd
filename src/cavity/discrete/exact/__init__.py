"""Exact answers: elimination orders, clique trees and their messages."""

# Nothing here is public.
__all__: list[str] = []
