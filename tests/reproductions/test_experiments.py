"""Every experiment runs in its tiny size, and the figures' own arithmetic is right."""

import json

import jax
import numpy as np
import pytest
from cavity_reproductions import REGISTRY, Config, run
from cavity_reproductions.base import VERDICTS, plain
from cavity_reproductions.notes import figure_2
from cavity_reproductions.thesis import figure_3_4, figure_3_7, orders, three_modes
from cavity_reproductions.workbench import HANDFUL, Stack, clutter_sets, infer, permuted, solve

import cavity
from cavity.baselines import laplace
from cavity.exact_inference import exact


@pytest.mark.parametrize("name", REGISTRY)
def test_tiny_run(name, tmp_path):
    # The command line is used by people who never heard of float64 scopes.
    with jax.enable_x64(False):
        record = run(REGISTRY[name], Config("tiny", 3), tmp_path, quiet=True)
    assert record.outcome.verdict in VERDICTS
    assert all(path.stat().st_size > 0 for path in record.files.values())
    assert record.files["figure"].read_bytes()[1:4] == b"PNG"
    assert "verdict" not in json.loads(record.files["result"].read_text(encoding="utf-8"))
    assert record.result["numbers"]
    assert all(table.rows for table in record.outcome.tables)


@pytest.mark.parametrize("name", REGISTRY)
def test_units_are_named_apart_and_stable(name):
    experiment = REGISTRY[name]
    for size in ("tiny", "quick", "full"):
        units = experiment.units(Config(size, 1))
        assert len({unit.name for unit in units}) == len(units)
        assert units == experiment.units(Config(size, 1))
        assert json.loads(json.dumps(plain(dict(units[-1].options)))) == plain(dict(units[-1].options))


def test_a_stack_gives_what_single_runs_give():
    sets = clutter_sets(5, 2 * HANDFUL, 20)
    stack = solve(cavity.models.clutter, sets.reshape(2, HANDFUL, 20), cavity.EP())
    assert stack.mean.shape == (2, HANDFUL)
    stack = Stack(*(part.reshape(-1) for part in stack))
    few = solve(cavity.models.clutter, sets[:3], cavity.EP())
    settled = few.converged
    assert settled.any()
    np.testing.assert_allclose(few.log_evidence[settled], stack.log_evidence[:3][settled], rtol=1e-10)
    for k, x in enumerate(sets):
        single = cavity.infer(cavity.models.clutter(x), cavity.EP())
        assert bool(stack.converged[k]) == single.converged
        # A run that does not settle wanders, and its rounding with it.
        if single.converged:
            np.testing.assert_allclose(stack.mean[k], single.mean, rtol=1e-8)
            np.testing.assert_allclose(stack.log_evidence[k], single.log_evidence, rtol=1e-10)


def test_an_interruption_inside_a_run_is_not_taken_for_a_result():
    def stop(solution):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        infer(cavity.models.clutter(clutter_sets(5, 1, 20)[0]), callback=stop)


def test_permutations_keep_the_points():
    sets = clutter_sets(1, 2, 7)
    given = permuted(sets, 3, 0)
    assert given.shape == (2, 3, 7)
    np.testing.assert_array_equal(np.sort(given, axis=2), np.sort(sets, axis=1)[:, None].repeat(3, axis=1))


def test_half_sorted_orders_go_from_sorted_to_random():
    sets = clutter_sets(1, 30, 40)
    given = orders.half_sorted(sets, 5, 0)
    np.testing.assert_array_equal(np.sort(given, axis=2)[:, 2], np.sort(sets, axis=1))
    steps = np.mean(np.abs(np.diff(given, axis=2)), axis=(0, 2))
    assert np.all(np.diff(steps) > 0)
    np.testing.assert_allclose(steps[0], np.mean(np.abs(np.diff(np.sort(sets, axis=1), axis=1))), rtol=0.5)


def test_rank_correlation_against_known_orders():
    a = np.array([[1.0, 2.0, 3.0, 4.0]] * 3)
    b = np.array([[10.0, 20.0, 30.0, 40.0], [4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 4.0, 3.0]])
    np.testing.assert_allclose(orders.rank_correlation(a, b), [1.0, -1.0, 0.8])


def test_the_site_integrates_to_the_term_against_its_cavity():
    experiment, config = REGISTRY["thesis-3-4"], Config("tiny")
    for unit in experiment.units(config):
        result = experiment.run_unit(unit, config)
        grid, base = np.asarray(result["grid"]), np.asarray(result["cavity"])
        step = grid[1] - grid[0]
        term, site = (np.sum(np.asarray(result[key]) * base) * step for key in ("term", "site"))
        # The wide cavity reaches a little beyond the grid.
        tolerance = 1e-9 if figure_3_4.CAVITIES[unit.name][1] < 1 else 0.02
        np.testing.assert_allclose(site, term, rtol=tolerance)


def test_the_grid_finds_three_modes_where_there_are():
    centres = np.repeat([-6.0, 0.0, 6.0], 4)
    found = three_modes.modes(three_modes.log_joint(centres[None])[0], 0.001)
    np.testing.assert_allclose(three_modes.GRID[found], [-6.0, 0.0, 6.0], atol=0.3)
    single = np.full(12, 1.0)
    assert len(three_modes.modes(three_modes.log_joint(single[None])[0], 0.001)) == 1
    assert len(three_modes.three_mode_sets(np.stack([single, centres]), 0.001)) == 1


def test_the_grid_is_the_model():
    x = clutter_sets(2, 1, 20)
    p = np.exp(three_modes.log_joint(x)[0])
    mean = np.sum(p * three_modes.GRID) / np.sum(p)
    np.testing.assert_allclose(mean, exact(cavity.models.clutter(x[0])).mean, rtol=1e-6)


def test_the_logistic_normal_curve_is_laplaces():
    problem = cavity.models.mixture_weights(figure_3_7.mixture_sets(0, 1)[0])
    grid = np.linspace(0.0005, 0.9995, 4001)
    density = figure_3_7.logistic_normal(grid, problem)
    step = grid[1] - grid[0]
    np.testing.assert_allclose(density.sum() * step, 1.0, rtol=2e-3)
    np.testing.assert_allclose((density * grid).sum() * step, laplace(problem).mean[0], rtol=2e-3)


def test_three_repairs_of_the_printed_truncation_are_needed_and_enough():
    errors = figure_2.formulas()["errors"]
    matching = [name for name, row in errors.items() if np.all(np.asarray(row) < 1e-8)]
    assert matching == ["all three repaired", "EP of this library"]
