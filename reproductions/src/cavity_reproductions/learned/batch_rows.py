"""The rows of the batch experiment's table: operators by name, and what the paper prints of them."""

from cavity.learned.embedding_operator import Settings
from cavity_reproductions.learned import operators as own
from cavity_reproductions.learned.default_operator import POINTS

KJIT = "features, Gaussian kernel on joint embeddings (KJIT)"
#: the same kernel without random features
CHOLESKY = "Cholesky, Gaussian kernel on joint embeddings"
FOREST_NAMES = ("Breiman's random forest", "extremely randomised trees", "forest of Eslami et al.")
OTHER_KERNELS = (
    "features, mean-variance kernel",
    "features, expected product kernel, joint",
    "features, sum of expected product kernels",
    "features, product of expected product kernels",
)
ROWS: dict[str, own.Learner] = {
    OTHER_KERNELS[0]: own.by_features(own.mean_variance, (500, 1000)),
    OTHER_KERNELS[1]: own.by_features(own.expected_product, (500, 1000)),
    OTHER_KERNELS[2]: own.by_features(own.sum_of_products, (250, 500)),
    OTHER_KERNELS[3]: own.by_features(own.product_of_products, (22, 32)),
    KJIT: own.kernel_operator(),
    "Cholesky, sum of Gaussian kernels on embeddings": own.by_incomplete_cholesky(own.sum_on_embeddings),
    CHOLESKY: own.by_incomplete_cholesky(own.on_embeddings),
    FOREST_NAMES[0]: own.standard_forest("breiman"),
    FOREST_NAMES[1]: own.standard_forest("extremely randomised"),
    FOREST_NAMES[2]: own.polynomial_forest,
    "Cholesky, product of Gaussian kernels on embeddings": own.by_incomplete_cholesky(own.product_on_embeddings),
    "Mondrian forest": own.mondrian_forest,
    "KJIT, residual targets": own.kernel_operator("change"),
    "the incoming message, unchanged": own.silent,
}
#: mean and deviation of log KL as printed, messages to z; the last one is in a comment of the paper's source
PRINTED = dict(
    zip(
        ROWS,
        (
            *((-6.96, 1.67), (-2.78, 1.82), (-1.05, 1.93), (-2.64, 1.65), (-8.97, 1.57), (-2.75, 2.84)),
            *((-8.71, 1.69), (-8.69, 1.79), (-8.90, 1.59), (-6.94, 3.88), (-3.21, 1.99)),
        ),
        strict=False,
    )
)
EXACT, QUADRATURE = "exact moments", "default operator, labels by quadrature"
SCRAMBLED = f"default operator, labels by {POINTS} scrambled points"
SAMPLED = "default operator, the paper's sampler"
DEFAULTS = (QUADRATURE, SCRAMBLED, SAMPLED)
#: of the operator in tests
SMALL = Settings(40, 60, (0.5, 1.0), (1e-4, 1e-2), False, (40, 60))
