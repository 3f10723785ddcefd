"""Thesis figure 5-14: balls that leave the sphere, and a billiard inside it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cavity.baselines import billiard, svm
from cavity.baselines.billiards import Ball, fly_inside_ball, on_sphere, walls
from cavity.reports import Figure, Table, figure
from cavity.reports.figures import BLUE, label
from cavity_reproductions.base import (
    Config,
    Experiment,
    Outcome,
    Results,
    Unit,
    array,
    check_table,
    grade,
    make_unit,
    median,
)
from cavity_reproductions.thesis import DOCUMENT
from cavity_reproductions.thesis.random_points import random_points
from cavity_reproductions.thesis.sphere_view import draw_sphere, view
from cavity_reproductions.thesis.three_points import BILLIARDS, bayes_point, points

#: random problems beside the three points, by number of points
SIZES = (5, 20, 80)
FLIGHTS = 40


def units(config: Config) -> list[Unit]:
    return [
        make_unit(config, 0, "paths"),
        make_unit(config, 1, "three points", n=0),
        *(make_unit(config, 1 + n, f"{n} random points", n=n) for n in SIZES[: config.pick(3, 3, 1)]),
    ]


def run_unit(unit: Unit, config: Config) -> dict[str, Any]:
    if unit.name == "paths":
        return {name: path(name, unit.seed) for name in ("Herbrich's billiard", "billiard inside")}
    rng = np.random.default_rng(unit.seed)
    found: dict[str, list[float]] = {name: [] for name in BILLIARDS}
    for draw_ in range(config.pick(20, 3, 1) if unit.options["n"] else 1):
        data = random_points(rng, unit.options["n"]) if unit.options["n"] else points()
        start = data.X.T @ svm(data.K, data.y).alpha
        for name, rule in BILLIARDS.items():
            bounces = config.pick(20_000, 2_000, 50)
            play = billiard(data.X, data.y, rule=rule, bounces=bounces, start=start, seed=draw_, written=1)
            found[name].append(play.escapes)
    return found


def path(name: str, seed: int) -> np.ndarray:
    """Places of a ball on the three points after every flight."""
    data = points()
    normals = jnp.asarray(walls(data.X, data.y, None).normals)
    start = jnp.asarray(bayes_point(data))
    noise = np.random.default_rng(seed).normal(size=(FLIGHTS + 1, 5))
    zero = jnp.zeros((), int)
    place = 0.5 * start if name == "billiard inside" else start
    ball = Ball(place, noise[0, :3] / np.linalg.norm(noise[0, :3]), jnp.zeros(3), jnp.zeros(()), zero, zero)

    def step(ball: Ball, own: jax.Array) -> tuple[Ball, jax.Array]:
        if name == "billiard inside":
            moved = fly_inside_ball(normals, ball, own, jnp.zeros((), bool))
        else:
            moved = on_sphere(BILLIARDS[name], normals, start, ball, own[:3])
        return moved, moved.w

    return np.concatenate([np.asarray(place)[None], np.asarray(jax.lax.scan(step, ball, jnp.asarray(noise[1:]))[1])])


def summarise(results: Results, config: Config) -> Outcome:
    rows = []
    for problem, found in results.items():
        if problem != "paths":
            flights = [median(array(found[name])) for name in BILLIARDS]
            rows.append((problem, *flights, *(own / (1 - own) for own in flights[1:])))
    three = rows[0]
    checks = {
        "on the three points about half of the bounces end in an escape (0.4 to 0.6)": all(
            0.4 <= own <= 0.6 for own in three[4:]
        ),
        "from inside the sphere no ball escapes, on any problem": all(row[1] == 0 for row in rows),
    }
    table = Table(
        "Balls that meet no wall",
        ("problem", *(f"{name}, a flight" for name in BILLIARDS), "Herbrich's, a bounce", "Rujan's, a bounce"),
        rows,
        "Escapes over flights, and over flights that met a wall; medians over random problems in the plane.",
    )
    sentence = (
        f"On the three points {three[2]:.0%} of the flights escape by Herbrich's rule and {three[3]:.0%} by Rujan's: "
        f"{three[4]:.2f} and {three[5]:.2f} for every bounce. On {rows[-1][0]} it is {rows[-1][2]:.0%}."
    )
    return Outcome((table, check_table(checks)), {"escapes": rows}, grade(checks), sentence)


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    sheet, axes = figure(1, 2, width=10.0, height=4.8)
    data = points()
    plane = view(bayes_point(data) + np.array([0.0, -0.4, 0.2]))
    for ax, (name, places) in zip(axes.flat, results["paths"].items(), strict=True):
        draw_sphere(ax, data, plane)
        ax.plot(*(array(places) @ plane.T).T, color=BLUE, linewidth=0.8, marker=".", markersize=4)
        label(ax, name, "", "")
    return sheet


EXPERIMENT = Experiment(
    name="thesis-5-14",
    document=f"{DOCUMENT}, figure 5-14",
    title="Balls that escape",
    claim="The older billiards let the ball leave the sphere without meeting a wall, on the three points in half of "
    "the bounces. Inside the sphere, with its surface as one more wall, none can.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
