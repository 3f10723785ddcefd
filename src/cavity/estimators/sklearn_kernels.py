"""scikit-learn's kernels as they are, behind the interface of `cavity.kernels`.

An adapted kernel runs in NumPy, outside compiled code: its values, gradients, bounds and fixed hyperparameters are
scikit-learn's own. It can be saved when it is made of the kernels scikit-learn ships.
"""

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.gaussian_process import kernels as sk

from cavity import kernels
from cavity._core import checks
from cavity.kernels.covariances import from_spec

#: the only classes that are made from a file.
SHIPPED: dict[str, type[sk.Kernel]] = {
    cls.__name__: cls
    for cls in (
        *(sk.ConstantKernel, sk.WhiteKernel, sk.RBF, sk.Matern, sk.RationalQuadratic, sk.ExpSineSquared),
        *(sk.DotProduct, sk.PairwiseKernel, sk.Sum, sk.Product, sk.Exponentiation),
    )
}
BY_NAME: dict[str, type[kernels.Kernel]] = {
    "rbf": kernels.RBF,
    "matern": kernels.Matern,
    "linear": kernels.Linear,
    "poly": kernels.Polynomial,
}


@dataclasses.dataclass(frozen=True, eq=False)
class SklearnKernel:
    """A kernel of scikit-learn with the interface of `cavity.kernels.Kernel`; theta has the same meaning in both.

    Args:
        kernel: any kernel of real vectors, one of scikit-learn's or a user's subclass.
    """

    kernel: sk.Kernel

    def __post_init__(self) -> None:
        parts = [self.kernel, *self.kernel.get_params().values()]
        if any(isinstance(part, sk.CompoundKernel) for part in parts):
            raise TypeError("kernel must give one matrix; CompoundKernel gives several: pass one of its kernels.")

    def __call__(self, X: ArrayLike, Z: ArrayLike | None = None) -> np.ndarray:
        """The matrix k(x_i, z_j), or of X with itself."""
        rows = checks.array("X", X, (2,))
        others = None if Z is None else checks.array("Z", Z, (2,))
        return self.checked(self.kernel(rows, others), (len(rows), len(rows if others is None else others)))

    def diagonal(self, X: ArrayLike) -> np.ndarray:
        """k(x_i, x_i) without the matrix."""
        rows = checks.array("X", X, (2,))
        return self.checked(self.kernel.diag(rows), (len(rows),))

    def checked(self, values: Any, shape: tuple[int, ...]) -> np.ndarray:
        """What a kernel, perhaps a user's own, gave back: the shape asked for and finite."""
        values = np.asarray(values, np.float64)
        if values.shape != shape:
            raise ValueError(f"kernel {self.kernel} must give an array of shape {shape}; found {values.shape}.")
        if not np.isfinite(values).all():
            raise ValueError(f"kernel {self.kernel} gave a value that is not finite.")
        return values

    @property
    def theta(self) -> np.ndarray:
        """Natural logarithms of the free hyperparameters."""
        return np.asarray(self.kernel.theta, np.float64)

    def with_theta(self, theta: ArrayLike) -> "SklearnKernel":
        """The kernel with other values of the free hyperparameters."""
        theta = np.asarray(theta, np.float64)
        if theta.shape != self.theta.shape:
            raise ValueError(f"theta must have {self.theta.size} numbers; found shape {theta.shape}.")
        return SklearnKernel(self.kernel.clone_with_theta(theta))  # type: ignore[arg-type]

    @property
    def bounds(self) -> np.ndarray:
        """Logarithms of the bounds, a row (low, high) for each number of theta."""
        return np.asarray(self.kernel.bounds, np.float64).reshape(-1, 2)

    @property
    def names(self) -> tuple[str, ...]:
        """scikit-learn's name for each number of theta, such as `k1__length_scale[0]`."""
        names = []
        for parameter in self.kernel.hyperparameters:
            if not parameter.fixed:
                size = parameter.n_elements
                names += [f"{parameter.name}[{i}]" for i in range(size)] if size > 1 else [parameter.name]
        return tuple(names)

    def pullback(self, X: ArrayLike, G: ArrayLike) -> np.ndarray:
        """Σ_ij G_ij ∂k(x_i, x_j)/∂theta; scikit-learn builds the array of n × n × parameters it is summed from."""
        rows, pull = checks.array("X", X, (2,)), checks.array("G", G, (2,))
        if pull.shape != (len(rows), len(rows)):
            raise ValueError(f"G must have a row and a column for each of the {len(rows)} points; found {pull.shape}.")
        if self.theta.size == 0:
            return np.zeros(0)
        both: Any = self.kernel(rows, eval_gradient=True)
        return np.einsum("ij,ijp->p", pull, both[1])

    def spec(self) -> dict[str, Any]:
        """What `kernel_from_spec` rebuilds the kernel from, ready for JSON."""
        return {"class": "SklearnKernel", "kernel": encode_hyperparameter(self.kernel)}


#: a kernel as a fit takes it, whose parameters a search may move
SearchedKernel = kernels.Kernel | SklearnKernel


def as_kernel(kernel: SearchedKernel | sk.Kernel | str | None) -> SearchedKernel:
    """The kernel a user means.

    Args:
        kernel: a kernel of `cavity.kernels` or of `sklearn.gaussian_process.kernels`; one of the names "rbf", "matern",
            "linear", "poly"; None for the Gaussian kernel.
    """
    if kernel is None:
        return kernels.RBF()
    if isinstance(kernel, (kernels.Kernel, SklearnKernel)):
        return kernel
    if isinstance(kernel, sk.Kernel):
        return SklearnKernel(kernel)
    if isinstance(kernel, str):
        return BY_NAME[checks.choice("kernel", kernel, tuple(BY_NAME))]()
    found = f"the class {kernel.__name__}, not an object" if isinstance(kernel, type) else type(kernel).__name__
    raise TypeError(
        f"kernel must be a kernel of cavity.kernels or of scikit-learn, one of {', '.join(BY_NAME)}, or None; "
        f"found {found}."
    )


def kernel_from_spec(spec: Any) -> SearchedKernel:
    """The kernel a `spec` describes, one of this library's or an adapted one; nothing else can be made from a file."""
    if not isinstance(spec, dict) or spec.get("class") != "SklearnKernel":
        return from_spec(spec)
    if not isinstance(spec.get("kernel"), dict) or "name" not in spec["kernel"]:
        raise ValueError("the spec of a scikit-learn kernel must have a dictionary with a name under 'kernel'.")
    try:
        return SklearnKernel(decode_hyperparameter(spec["kernel"]))
    except (TypeError, AttributeError) as error:  # parameters that are missing, unknown, or of another type
        raise ValueError(f"the spec of a scikit-learn kernel cannot be rebuilt: {error}.") from None


def encode_hyperparameter(value: Any) -> Any:
    """A hyperparameter as JSON. Infinite numbers, which JSON has not, become {"number": "inf"}."""
    if isinstance(value, sk.Kernel):
        name = type(value).__name__
        if SHIPPED.get(name) is not type(value):
            raise ValueError(f"kernel {name} cannot be saved: it is not one of those scikit-learn ships.")
        return {
            "name": name,
            "params": {key: encode_hyperparameter(item) for key, item in value.get_params(deep=False).items()},
        }
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": str(value)}
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, (list, tuple)):
        return [encode_hyperparameter(item) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dictionary": {key: encode_hyperparameter(item) for key, item in value.items()}}
    raise ValueError(f"a kernel with a {type(value).__name__} as hyperparameter cannot be saved.")


def decode_hyperparameter(value: Any) -> Any:
    """What `encode_hyperparameter` wrote; lists of numbers come back as arrays."""
    if isinstance(value, list):
        return np.asarray([decode_hyperparameter(item) for item in value])
    if not isinstance(value, dict):
        return value
    if set(value) == {"number"}:
        return float(value["number"])
    if set(value) == {"dictionary"} and isinstance(value["dictionary"], dict):
        return {key: decode_hyperparameter(item) for key, item in value["dictionary"].items()}
    name, params = value.get("name"), value.get("params")
    if not isinstance(name, str) or name not in SHIPPED or not isinstance(params, dict):
        raise ValueError(f"a saved scikit-learn kernel must be one of {', '.join(SHIPPED)}; found {name!r}.")
    return SHIPPED[name](**{key: decode_hyperparameter(item) for key, item in params.items()})


def fix_kernel(kernel: SearchedKernel) -> SearchedKernel:
    """The kernel with nothing left to learn."""
    if isinstance(kernel, kernels.Kernel):
        return kernel.fix()
    bounds = {f"{parameter.name}_bounds": "fixed" for parameter in kernel.kernel.hyperparameters}
    return SklearnKernel(kernel.with_theta(kernel.theta).kernel.set_params(**bounds))
