"""Breiman's random forest and extremely randomised trees, as scikit-learn has them."""

from collections.abc import Callable
from typing import Literal

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor

KINDS = {"breiman": RandomForestRegressor, "extremely randomised": ExtraTreesRegressor}


def averaged_trees(
    kind: Literal["breiman", "extremely randomised"],
    columns: np.ndarray,
    values: np.ndarray,
    trees: int = 64,
    seed: int = 0,
) -> Callable[[np.ndarray], np.ndarray]:
    """Rows of columns to rows of values. All outputs share the trees."""
    found = KINDS[kind](n_estimators=trees, random_state=seed).fit(
        columns, values[:, 0] if values.shape[1] == 1 else values
    )
    return lambda rows: np.asarray(found.predict(rows)).reshape(len(rows), -1)
