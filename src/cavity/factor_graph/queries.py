"""What a graph of mixed variables can be asked."""

from __future__ import annotations

import dataclasses
from typing import Any

from cavity._core.precision import to_numpy
from cavity.factor_graph.variables import Marginals, Variable
from cavity.inference.solution import ModelSolution


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class GraphSolution(ModelSolution):
    """The solution of a `FactorGraph`, which knows its variables.

    Attributes:
        named: the variables of the graph by name.
    """

    named: dict[str, Variable]

    @property
    def marginals(self) -> Marginals:
        """q of every array of variables, by the variable or its name; of a stack of solutions stacks."""
        families = self.problem.posterior.families  # type: ignore[attr-defined]
        return Marginals(self.named, dict(zip(families, to_numpy(self.q.etas), strict=True)))

    def by_name(self, x: Any) -> dict[str, Any]:
        """Draws of every array of variables, by its name."""
        families = self.problem.posterior.families  # type: ignore[attr-defined]
        return {name: x[families.index(own.family)][:, own.rows] for name, own in self.named.items()}
