"""Independent work on workers: in order, named, in double precision."""

from functools import partial

import numpy as np
import pytest
from cavity_reproductions import Config, Experiment, Outcome, run
from cavity_reproductions.base import make_unit
from typer.testing import CliRunner

from cavity import distributed
from cavity._cli.app import app
from cavity.discrete import DiscreteGraph
from cavity.factors import Clutter, Probit
from cavity.kernels import RBF
from cavity.models import posterior
from cavity.models._latent_gaussian.exact_gp import fit_exact_gp
from cavity.reports import figure


def square(number):
    import jax.numpy as jnp

    return float(jnp.asarray(1.0 + 1e-12 * number) - 1.0)


def fails_at_two(number):
    if number == 2:
        raise OSError("no third file")
    return number


def test_results_come_in_order_and_in_double_precision(client):
    found = distributed.map(square, range(5), client=client)
    np.testing.assert_allclose(found, [1e-12 * k for k in range(5)], rtol=1e-3, atol=1e-20)


def test_a_failure_names_its_item(client):
    with pytest.raises(distributed.Failure, match="item 2: OSError: no third file") as caught:
        distributed.map(fails_at_two, range(4), client=client)
    assert caught.value.number == 2
    with pytest.raises(distributed.Failure, match="the third: OSError"):
        distributed.map(fails_at_two, range(4), client=client, names=["a", "b", "the third", "d"])


def test_results_are_handed_over_as_they_come(client):
    assert dict(distributed.map_unordered(fails_at_two, [0, 1, 3], client)) == {0: 0, 1: 1, 2: 3}


def network(weight: float) -> DiscreteGraph:
    graph = DiscreteGraph([2, 2])
    graph.add_factor([0, 1], [[weight, 1.0], [1.0, weight]])
    graph.add_factor([0], [1.0, 3.0])
    return graph


def test_many_networks_are_solved_each_as_itself(client):
    weights = [1.0, 2.0, 5.0]
    found = distributed.infer_all([network(w) for w in weights], client=client)
    for w, solution in zip(weights, found, strict=True):
        joint = np.array([[w, 1.0], [3.0, 3.0 * w]])
        np.testing.assert_allclose(solution.log_evidence, np.log(joint.sum()), rtol=1e-10)
        np.testing.assert_allclose(solution.marginals, [joint.sum(1) / joint.sum(), joint.sum(0) / joint.sum()])


def test_a_network_that_cannot_be_is_named(client):
    impossible = DiscreteGraph([2])
    impossible.add_factor([0], [0.0, 0.0])
    with pytest.raises(distributed.Failure, match="problem 1"):
        distributed.infer_all([network(1.0), impossible], client=client)


def test_other_problems_can_be_sent_as_well(client):
    problems = [posterior(Clutter(0.5, 10.0), np.array([y]), 0.0, 100.0) for y in (1.0, 2.0)]
    found = distributed.infer_all(problems, client=client)
    for y, solution in zip((1.0, 2.0), found, strict=True):
        density = 0.5 * np.exp(-0.5 * y**2 / 101) / np.sqrt(2 * np.pi * 101)
        clutter = 0.5 * np.exp(-0.5 * y**2 / 10) / np.sqrt(2 * np.pi * 10)
        np.testing.assert_allclose(solution.log_evidence, np.log(density + clutter), rtol=1e-9)


def unit_value(unit, config):
    if unit.name == "unit-7":
        raise OSError("no data")
    return {"value": 1.5 * unit.options["k"]}


def experiment(count):
    return Experiment(
        name="toy",
        document="none",
        title="A toy",
        claim="One and one is two.",
        units=lambda config: [make_unit(config, k, f"unit-{k}", k=k) for k in range(count)],
        run_unit=unit_value,
        summarise=lambda results, config: Outcome(
            (), {"total": sum(row["value"] for row in results.values())}, "holds", "It is so."
        ),
        draw=lambda results, outcome, config: figure()[0],
    )


def test_units_of_an_experiment_are_worked_out_elsewhere_and_kept_here(client, tmp_path):
    map_unordered = partial(distributed.map_unordered, client=client)
    record = run(experiment(4), Config(), tmp_path, quiet=True, map_unordered=map_unordered)
    assert record.result["numbers"]["total"] == 9.0 and record.units_run == 4
    assert len((tmp_path / "ledger.jsonl").read_text().splitlines()) == 4
    # A unit that fails is named; what was finished before stays in the ledger and is not done again.
    with pytest.raises(distributed.Failure, match="unit-7: OSError: no data"):
        run(experiment(8), Config(), tmp_path, quiet=True, map_unordered=map_unordered)
    assert run(experiment(4), Config(), tmp_path, quiet=True, map_unordered=map_unordered).units_run == 0


def test_an_address_without_a_scheduler_is_said(monkeypatch):
    monkeypatch.setattr("cavity.distributed.clients.CONNECT", 0.5)
    with pytest.raises(OSError, match=r"There is no Dask scheduler at .tcp://127\.0\.0\.1:1"):
        distributed.connect("tcp://127.0.0.1:1")
    said = CliRunner().invoke(app, ["reproduce", "thesis-3-2", "--quick", "--cluster", "tcp://127.0.0.1:1"])
    assert said.exit_code == 2 and "There is no Dask scheduler" in said.stderr


def test_restarts_of_a_search_find_the_same_elsewhere(client):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 1))
    y = np.where(np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=20) > 0, 1.0, -1.0)
    kernel = RBF(1.0, length_scale_bounds=(0.1, 10.0))
    here, there = (
        fit_exact_gp(X, y, kernel=kernel, factor=Probit(), restarts=2, **keywords)
        for keywords in ({}, {"mapped": partial(distributed.map, client=client)})
    )
    np.testing.assert_allclose(there.log_evidence, here.log_evidence, rtol=1e-9)
    np.testing.assert_allclose(there.kernel.theta, here.kernel.theta, atol=1e-5)
    assert len(there.history) == len(here.history)
