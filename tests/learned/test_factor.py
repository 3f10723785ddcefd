"""Programs as factors inside graphs: against the linear model they draw from, saved and loaded, failing, observed."""

import numpy as np
import pytest

import cavity as cv
from cavity._storage import StorageError
from cavity.families import Beta, Gaussian
from cavity.learned import SamplerError, every_time, just_in_time, load

STEPS, NOISE, ERROR = 8, 0.36, 0.64
METHOD = cv.EP()


def step(rng, x, push):
    """A noisy line."""
    return 0.9 * x + push + np.sqrt(NOISE) * rng.normal(size=len(x))


def chain(connect, seed=0):
    """Solution and marginals of a chain whose neighbours are connected by `connect(graph, before, after)`."""
    y = np.random.default_rng(seed).normal(1.0, 1.5, STEPS)
    graph = cv.FactorGraph()
    states = [graph.gaussian(0.0, 4.0)]
    for _ in range(1, STEPS):
        states.append(connect(graph, states[-1]))
    for state, seen in zip(states, y, strict=True):
        graph.linear(state, variance=ERROR, out=seen)
    found = cv.infer(graph, METHOD)
    return found, np.array([[found.marginals[own].mean, found.marginals[own].variance] for own in states])


def exactly(graph, before):
    return graph.linear(before, weights=[0.9], offset=0.5, variance=NOISE)


def by(factor):
    def connect(graph, before):
        after = graph.gaussian()
        graph.add(factor, before, 0.5, after)
        return after

    return connect


def divergence(exact, found):
    (m, v), (mean, variance) = exact.T, found.T
    return 0.5 * (v / variance - 1 + (m - mean) ** 2 / variance - np.log(v / variance))


@pytest.fixture(scope="module")
def learned():
    factor = just_in_time(step, inputs=["x", "push"], outputs={"next": Gaussian()}, draws=4096)
    return factor, chain(by(factor)), chain(exactly)


def test_a_chain_of_programs_is_the_chain_it_draws_from(learned):
    """The output has no prior, one input is a number; a tree, so that EP is exact for the linear model."""
    _, (found, marginals), (exact, truth) = learned
    assert exact.status == found.status == "converged"
    assert divergence(truth, marginals).max() < 0.01
    assert float(found.log_evidence) == pytest.approx(float(exact.log_evidence), abs=0.15)


def test_a_healthy_run_has_no_nonfinite_factor(learned):
    """Unsure answers are counted apart, and a run that ends too soon says that it was unsure."""
    assert int(learned[1][0].nonfinite) == 0 < int(learned[1][0].unsure)
    graph = cv.FactorGraph()
    factor = cv.learned.Simulator(step, inputs=["x", "push"], outputs=1)
    graph.add(
        factor, graph.gaussian(0.0, 4.0), 0.5, graph.gaussian(1.0, 2.0), moments=cv.learned.JustInTime(draws=1024)
    )
    found = cv.infer(graph, cv.EP(max_sweeps=1))
    assert found.status == "unsure_factor" and "not known well enough" in found.status.sentence
    assert (int(found.nonfinite), int(found.unsure)) == (0, 1)


def test_it_asks_less_about_what_it_has_seen(learned):
    factor = learned[0]
    before = factor.report()
    found, marginals = chain(by(factor))
    report = factor.report()
    assert found.status == "converged"
    assert divergence(learned[2][1], marginals).max() < 0.01
    assert report.queries - before.queries < 0.3 * before.queries
    assert report.audits > 0 and report.refusals == 0
    assert report.queries <= report.labels <= report.queries + report.audits
    assert report.audit_kl < 0.02 and report.expected_kl < 0.01
    assert 200 <= report.least_ess <= 4096


def test_what_was_learned_serves_other_data_and_other_runs(learned, tmp_path):
    factor = learned[0]
    factor.save(tmp_path / "step.npz")
    again = load(tmp_path / "step.npz", step, inputs=["x", "push"], outputs=["next"], draws=4096)
    assert again.report()[:4] == factor.report()[:4]
    before = again.report().queries
    found, marginals = chain(by(again), seed=0)
    assert divergence(learned[2][1], marginals).max() < 0.01
    assert found.status == "converged" and again.report().queries - before < 0.7 * before


def test_every_message_sampled():
    found, marginals = chain(by(every_time(step, inputs=2, outputs=1, draws=2**14)))
    truth = chain(exactly)[1]
    assert found.status == "converged"
    assert divergence(truth, marginals).max() < 0.01


@pytest.mark.parametrize("damage", ["kind", "shape", "nan", "missing"])
def test_files_of_other_things_are_refused(learned, tmp_path, damage):
    from cavity._storage import load as read
    from cavity._storage import save

    factor, path = learned[0], tmp_path / "operator.npz"
    factor.save(path)
    kind, header, arrays = read(path)
    if damage == "kind":
        kind = "estimator"
    elif damage == "shape":
        arrays["targets"] = arrays["targets"][:-1]
    elif damage == "nan":
        arrays["inputs"] = arrays["inputs"] * np.nan
    else:
        header = {name: value for name, value in header.items() if name != "noise"}
    save(path, kind, header, arrays)
    with pytest.raises(StorageError, match=r"damaged|not a learned operator"):
        load(path, step, inputs=2, outputs=1)


def test_failures_keep_what_was_learned():
    """The program works ten times, and then divides by zero."""
    calls = []

    def fragile(rng, x, push):
        calls.append(1)
        if len(calls) > 10:
            raise ZeroDivisionError("no susceptibles left")
        return step(rng, x, push)

    factor = just_in_time(fragile, inputs=2, outputs=1, draws=1024)
    with pytest.raises(SamplerError, match=r"no susceptibles left.*first inputs"):
        chain(by(factor))
    assert factor.report().labels == 10


def test_nothing_is_saved_before_anything_is_learned(tmp_path):
    with pytest.raises(StorageError, match="has not learned anything"):
        just_in_time(step, inputs=2, outputs=1).save(tmp_path / "empty.npz")


def test_bad_requests_are_refused():
    with pytest.raises(TypeError, match="needs its inputs and outputs"):
        just_in_time(step)
    with pytest.raises(ValueError, match="names an input and an output"):
        just_in_time(step, inputs=["x", "y"], outputs=["y"])
    with pytest.raises(TypeError, match="must be a family"):
        just_in_time(step, inputs={"x": "gaussian", "push": Gaussian()}, outputs=["y"])  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="no density that could be integrated"):
        just_in_time(step, inputs=2, outputs=1, oracle=cv.Quadrature())
    with pytest.raises(ValueError, match="draws must be an integer"):
        just_in_time(step, inputs=2, outputs=1, draws=10)


def test_wrong_places_in_a_graph_are_refused():
    graph = cv.FactorGraph()
    x, p = graph.gaussian(0.0, 1.0), graph.beta(1.0, 1.0)
    factor = just_in_time(step, inputs=["x", "push"], outputs={"next": Gaussian()})
    with pytest.raises(ValueError, match=r"next is an output .* cannot be a number"):
        graph.add(factor, x, 0.5, 1.2)
    with pytest.raises(ValueError, match=r"connects x, push, next; found 2"):
        graph.add(factor, x, 0.5)
    with pytest.raises(TypeError, match="next was declared Gaussian; found Beta"):
        graph.add(factor, x, 0.5, p)
    with pytest.raises(ValueError, match="a sampler takes no data"):
        graph.add(factor, x, graph.gaussian(0.0, 1.0), graph.gaussian(), data=np.ones(()))
    assert isinstance(p.family, Beta)


def test_a_density_of_three_variables_is_asked_by_weighted_draws():
    """x + y + u is seen with noise: every variable against the exact conditional."""

    def log_density(values, seen):
        return -0.5 * (sum(values) - seen) ** 2 / 0.5

    graph = cv.FactorGraph()
    parts = [graph.gaussian(mean, 1.0) for mean in (0.0, 0.5, -1.0)]
    factor = just_in_time(cv.factors.from_log_density(log_density), draws=2**14)
    graph.add(factor, *parts, data=np.array(2.0))
    found = cv.infer(graph, METHOD)
    gain = 1.0 / 3.5
    for own, mean in zip(parts, (0.0, 0.5, -1.0), strict=True):
        assert found.marginals[own].mean == pytest.approx(mean + gain * 2.5, abs=0.02)
        assert found.marginals[own].variance == pytest.approx(1.0 - gain, rel=0.03)
    log_z = -0.5 * 2.5**2 / 3.5 - 0.5 * np.log(2 * np.pi * 3.5) + 0.5 * np.log(2 * np.pi * 0.5)
    assert float(found.log_evidence) == pytest.approx(log_z, abs=0.02)
