"""Options that every kind of rounds has."""

from typing import Any

from cavity._core import checks


def check_options(damping: Any, tol: Any, max_rounds: Any, max_seconds: Any) -> None:
    """Refuse what cannot be run."""
    if not 0 < checks.number("damping", damping) <= 1:
        raise ValueError(f"damping must lie in (0, 1], 1 being the full step; found {damping}.")
    checks.positive("tol", tol)
    if not isinstance(max_rounds, int) or max_rounds < 1:
        raise ValueError(f"max_rounds must be a whole number of at least 1; found {max_rounds!r}.")
    if max_seconds is not None:
        checks.positive("max_seconds", max_seconds)
