"""A kernel of finite rank carried by its own features, k(x, z) = φ(x)ᵀ φ(z): an exact basis, r = 0.

It keeps the digits that the kernel matrix loses. Of n rows Φ with entries far above the noise the matrix Φ Φᵀ holds
squares, and what the noise allows to be said of the weights is below the rounding of them. Over the weights v of
f = φ(x)ᵀv the precision is I + Φᵀ T Φ, whose Cholesky factor has the same relative accuracy however the columns of Φ
are scaled, while these are not nearly dependent.

Where they are, or where there are more features than rows, directions that no row sees keep their prior, and I is lost
beside Φᵀ T Φ. Then the features are turned: with the singular value decomposition Φ = U S Vᵀ the weights Vᵀv are
standard normal too, rows are U S, of graded and orthogonal columns, and what a new point has outside of the rows' space
is independent of them:

    a(x) = Vᵀ φ(x),        r(x) = |φ(x) − V a(x)|².
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity._core.precision import float64
from cavity._core.pytrees import static
from cavity.kernels.base import Kernel
from cavity.kernels.basis import Basis, Spanned, check_kernel
from cavity.kernels.parameters import kernel

#: smallest singular value of features, their columns scaled to length 1, with which they are taken as they are
INDEPENDENT = 1e-4


@kernel
class ExactFeatures(Basis):
    """The features of a kernel that has finitely many; made by `ExactFeatures.of`.

    Nothing is approximated: the process is the one with the kernel itself.

    Args:
        count: how many the kernel has.
        inputs: None for the features as they are; the rows in whose directions they are turned otherwise.

    Examples:
        >>> import numpy as np
        >>> from cavity import kernels
        >>> from cavity.kernels.exact_features import ExactFeatures
        >>> kernel, X = kernels.Linear() + kernels.Constant(), [[1e9], [2e9], [4e9]]
        >>> basis = ExactFeatures.of(kernel, X)
        >>> rows = basis(kernel, X).rows
        >>> rows.shape, bool(np.allclose(rows @ rows.T, kernel(X)))
        ((3, 2), True)
    """

    count: int = static()
    inputs: Any = None

    @classmethod
    @float64
    def of(cls, kernel: Kernel, X: Any) -> "ExactFeatures":
        """The features of a kernel, turned where the rows of X leave directions of them unseen.

        Args:
            kernel: made of Linear, Constant and Polynomial by sums and by products with numbers.
            X: the points that will be observed, one per row.

        Returns:
            The basis.

        Raises:
            ValueError: the kernel has no finite number of features.
        """
        points = check_kernel(kernel).check_points("X", X)
        count = kernel.feature_count(points.shape[1])
        if count is None:
            raise ValueError(
                "exact features need a kernel made of Linear, Constant and Polynomial by sums and by products with "
                f"numbers; found {type(kernel).__name__}."
            )
        rows = np.asarray(kernel.features(jnp.asarray(points), iter(())))
        lengths = np.linalg.norm(rows / (np.abs(rows).max(axis=0) + (rows == 0).all(axis=0)), axis=0)
        lengths = lengths * np.abs(rows).max(axis=0)
        scaled = rows[:, lengths > 0] / lengths[lengths > 0]
        independent = scaled.shape[1] <= len(rows) and bool(
            (np.linalg.svd(scaled, compute_uv=False) > INDEPENDENT).all()
        )
        return cls(count, None if independent else np.asarray(points))

    @property
    def width(self) -> int:
        return self.count if self.inputs is None else min(self.count, np.shape(self.inputs)[0])

    def validate(self, kernel: Kernel, columns: int) -> None:
        if check_kernel(kernel).feature_count(columns) != self.count:
            raise ValueError(
                f"the kernel must have {self.count} features for {columns} columns; found "
                f"{kernel.feature_count(columns)}."
            )
        if self.inputs is not None and np.shape(self.inputs)[1] != columns:
            raise ValueError(f"inputs must have {columns} columns, as X has; found {np.shape(self.inputs)[1]}.")

    def turned(self, kernel: Kernel, X: jax.Array) -> tuple[jax.Array, jax.Array]:
        """a(x), and what of φ(x) it leaves out, one row per point."""
        rows = kernel.features(X, iter(()))
        if self.inputs is None:
            return rows, jnp.zeros_like(rows)
        _, _, turn = jnp.linalg.svd(kernel.features(jnp.asarray(self.inputs), iter(())), full_matrices=False)
        # The evidence is the same for every orthonormal basis of the rows' space.
        turn = jax.lax.stop_gradient(turn)
        along = rows @ turn.T
        return along, rows - along @ turn

    def span(self, kernel: Kernel, X: jax.Array) -> Spanned:
        rows, left = self.turned(kernel, X)
        return Spanned(rows, jnp.sum(left**2, axis=1))

    @float64
    def residual_covariance(self, kernel: Kernel, X: Any) -> jax.Array:
        _, left = self.turned(kernel, jnp.asarray(X, float))
        return left @ left.T

    def arrays(self) -> dict[str, np.ndarray]:
        inputs = {} if self.inputs is None else {"inputs": np.asarray(self.inputs)}
        return {"count": np.asarray(float(self.count)), **inputs}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> "ExactFeatures":
        return cls(int(checks.number("count", arrays["count"])), arrays.get("inputs"))
