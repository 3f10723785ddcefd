"""Closed forms: only calls the factor, and raises when it has none."""

from dataclasses import dataclass
from typing import Any

import jax

from cavity._core.precision import is_traced
from cavity.factors.base import Factor, MissingClosedForm, is_one
from cavity.families.base import Family, Tilted
from cavity.moments.base import Info, Moments


@dataclass(frozen=True)
class ClosedForm(Moments):
    """The factor's own `tilted`, or its `log_z` differentiated automatically. Nothing falls back silently.

    Examples:
        >>> import cavity as cv
        >>> problem = cv.models.clutter([0.3, 2.1]).with_moments(cv.ClosedForm())
        >>> problem.groups[0].moments
        ClosedForm()
    """

    def tilt(
        self, state: Any, factor: Factor, family: Family, cavity: jax.Array, data: Any, power: float, key: jax.Array
    ) -> tuple[Tilted, Info]:
        tilted = factor.tilted(family, cavity, data, power)
        if tilted is not NotImplemented:
            return tilted, {}
        if factor.log_z is None or not is_one(power):
            raise missing_closed_form(factor, family, power)
        log_z_of_site = factor.log_z
        log_z, stats = family.tilted_stats(lambda *coordinates: log_z_of_site(*coordinates, data), cavity)
        return Tilted(log_z, stats, family.message(cavity, stats)), {}


def missing_closed_form(factor: Factor, family: Family, power: float) -> MissingClosedForm:
    """The error that names the combination, what exists, and what to use instead."""
    known = list(factor.closed_forms)
    if factor.log_z is not None:
        known.append("any family whose coordinates log_z takes, power 1 (by differentiation)")
    exponent = "powers near 1, from which E[log t] follows" if is_traced(power) else f"power {power:g}"
    wanted = f"{type(factor).__name__} with {type(family).__name__} sites and {exponent}"
    return MissingClosedForm(
        f"No closed form for {wanted}. Closed forms that exist: {'; '.join(known) if known else 'none'}. "
        "To integrate numerically, use problem.with_moments(cavity.Quadrature()) for up to three dimensions, "
        "problem.with_moments(cavity.Enumeration()) for discrete variables, "
        "or problem.with_moments(cavity.Importance(draws=10_000)) for anything with a log density."
    )
