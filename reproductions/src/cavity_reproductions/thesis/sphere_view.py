"""The unit sphere of weights seen from one side: a flat drawing of arcs, points and ellipsoids."""

from typing import Any

import numpy as np

from cavity.baselines.bayes_point import arc, arc_points
from cavity.reports.figures import GREY
from cavity_reproductions.thesis.three_points import Points


def view(towards: np.ndarray) -> np.ndarray:
    """Two orthonormal rows: the plane of the paper for someone who looks at the sphere from `towards`."""
    axis = towards / np.linalg.norm(towards)
    up = np.array([0.0, 0.0, 1.0]) - axis[2] * axis
    up /= np.linalg.norm(up)
    return np.stack([np.cross(up, axis), up])


def outline(data: Points) -> list[np.ndarray]:
    """Arcs on the sphere, one for every wall that borders the separators."""
    normals = data.X * (data.y / np.linalg.norm(data.X, axis=1))[:, None]
    found = [arc(normals, i) for i in range(len(normals))]
    return [arc_points(*each, pieces=60) for each in found if each is not None]


def draw_sphere(ax: Any, data: Points, plane: np.ndarray) -> None:
    """The disc and the region of the separators in it."""
    turn = np.linspace(0, 2 * np.pi, 200)
    ax.plot(np.cos(turn), np.sin(turn), color=GREY, linewidth=1)
    for border in outline(data):
        ax.plot(*(border @ plane.T).T, color="black", linewidth=1.5)
    ax.set_aspect("equal")
    ax.set_axis_off()


def ellipse(mean: np.ndarray, covariance: np.ndarray, plane: np.ndarray) -> np.ndarray:
    """The outline of the one-deviation ellipsoid, which seen from far is that of the projected covariance: (2, 200)."""
    turn = np.linspace(0, 2 * np.pi, 200)
    root = np.linalg.cholesky(plane @ covariance @ plane.T)
    return (plane @ mean)[:, None] + root @ np.stack([np.cos(turn), np.sin(turn)])
