"""Hard problems of states and of graphs: frustrated couplings, zeros, outliers, a mean and a precision of few data."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from exact_evidence import rows_evidence
from hard_likelihoods import Case, log_uniform
from recompute import Latents, Term, Verdict, term_of
from recompute_families import judge_graph, judge_network, probabilities
from scipy.special import gammaln, logsumexp
from small_graphs import joint_table, spin_graph

import cavity as cv


def log_state(x: Any, row: Any) -> Any:
    return jnp.log(row[x])


STATE = cv.factors.from_log_density(log_state)


def state(rng: np.random.Generator, small: bool) -> Case:
    """One state that five tables of weights know something of, some of them zeros."""
    weights = rng.gamma(0.3, size=(5, 4))
    weights[:, 1:][rng.random((5, 3)) < 0.2] = 0.0
    prior = rng.standard_normal(4) * 3
    known_prior = (cv.families.Categorical(4), np.concatenate([prior, np.zeros(4)]))
    problem = cv.models.posterior(STATE, weights, prior=known_prior, moments=cv.Enumeration())
    with np.errstate(divide="ignore"):
        tables = np.log(weights)
    right = np.exp(prior + tables.sum(axis=0) - logsumexp(prior + tables.sum(axis=0)))

    def referee(sites: Any, power: float = 1.0, **kind: Any) -> Verdict:
        # one variable: the fixed point is the product itself
        q = probabilities(np.concatenate([prior, np.zeros(4)]) + sites[0].sum(axis=0))
        spread = np.sqrt(np.maximum(right * (1 - right), 1e-30))
        return Verdict(float(np.max(np.abs(q - right) / spread * (right > 1e-15))), True, True, np.nan)

    return Case(problem, referee, lambda: float(logsumexp(prior + tables.sum(axis=0)) - logsumexp(prior)))


def spins(rng: np.random.Generator, small: bool) -> Case:
    """Five spins, each coupled to each, often frustrated."""
    edges = np.array([(i, j) for i in range(5) for j in range(i)])
    graph = spin_graph(edges, log_uniform(rng, 0.1, 3.0) * rng.standard_normal(10), 0.3 * rng.standard_normal(5))
    return network_case(graph)


def tables(rng: np.random.Generator, small: bool) -> Case:
    """Four variables of three states on a cycle with a chord; a tenth of the weights is zero."""
    graph = cv.DiscreteGraph([3, 3, 3, 3])
    for scope in ((0, 1), (1, 2), (2, 3), (0, 3), (0, 2)):
        weights = rng.gamma(log_uniform(rng, 0.1, 2.0), size=(3, 3)) + 1e-12
        free = rng.random((3, 3)) < 0.1
        free[0, 0] = False
        graph.add_factor(scope, np.where(free, 0.0, weights))
    return network_case(graph)


def network_case(graph: Any) -> Case:
    problem = graph.problem()

    def referee(sites: Any, restricted: bool = False, strengths: Any = None, **kind: Any) -> Verdict:
        return judge_network(problem, sites, **kind)

    return Case(graph, referee, lambda: float(logsumexp(joint_table(graph))))


def robust_line(rng: np.random.Generator, small: bool) -> Case:
    """Intercept and slope in a graph, under Student's t with points far away."""
    n, noise = 6, 0.01
    x = rng.standard_normal(n)
    scale, df = log_uniform(rng, 0.1, 1.0), float(rng.choice([1.0, 2.0, 4.0]))
    far = np.where(rng.random(n) < 0.25, log_uniform(rng, 1.0, 10.0), 0.0)
    y = rng.standard_normal() + 2 * rng.standard_normal() * x + scale * rng.standard_t(df, n) + far
    graph = cv.FactorGraph()
    intercept, slope = graph.gaussian(0.0, 1.0), graph.gaussian(0.0, 4.0)
    latent = graph.linear(intercept, slope, weights=(1.0, x), variance=noise)
    factor = cv.factors.StudentT(scale, df)
    graph.add(factor, latent, data=y)
    problem, own = graph.problem(), term_of(factor, y)
    rows = np.stack([np.ones(n), 2 * x], axis=1)
    latents = Latents(rows, 0.0, np.full(n, noise), np.ones(n))
    return graph_case(graph, problem, {1: own}, lambda: rows_evidence(latents, own))


def mean_and_precision(rng: np.random.Generator, small: bool) -> Case:
    """A mean and a precision of five numbers, some of them far away."""
    m0, v0, a, b = 0.0, log_uniform(rng, 0.1, 100.0), log_uniform(rng, 0.6, 5.0), log_uniform(rng, 0.05, 5.0)
    y = rng.standard_normal(5) + np.where(rng.random(5) < 0.2, log_uniform(rng, 1.0, 10.0), 0.0)
    graph = cv.FactorGraph()
    mean, precision = graph.gaussian(m0, v0), graph.gamma(a, b)
    graph.normal(mean, precision, out=y)
    problem = graph.problem()

    def exact() -> float:
        x = np.linspace(-12, 12, 60_001) * max(v0**0.5, 1.0) + m0
        half = 0.5 * np.sum((y[:, None] - x) ** 2, axis=0)
        logs = -0.5 * ((x - m0) ** 2 / v0 + np.log(2 * np.pi * v0)) - (a + 2.5) * np.log(b + half)
        constant = a * np.log(b) + gammaln(a + 2.5) - gammaln(a) - 2.5 * np.log(2 * np.pi)
        return float(logsumexp(logs) + np.log(x[1] - x[0]) + constant)

    return graph_case(graph, problem, {}, exact)


def graph_case(graph: Any, problem: Any, terms: dict[int, Term], exact: Callable[[], float | None]) -> Case:
    def referee(sites: Any, strengths: Any = None, **kind: Any) -> Verdict:
        return judge_graph(problem, terms, sites, **kind)

    return Case(graph, referee, exact)
