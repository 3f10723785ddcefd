"""Jitkrittum et al., experiment 4 with figure 7: the compound Gamma factor, one message after another.

r₂ ~ Gamma(1, 1), τ ~ Gamma(1, r₂), n from 10 to 100 observations N(0, 1/τ): one message Gamma(1 + n/2, Σx²/2) a
problem. With r₂ integrated out the factor is t(τ) ∝ (τ + 1)⁻². The paper shows that shapes and rates of posteriors
agree on a log-log plot. But its program forces messages to be proper, which makes the shape of every message 1, and the
incoming rate alone almost gives the posterior's. What can tell operators apart is the KL divergence of posteriors and
the error of the message's log rate.
"""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import cavity
from cavity._core.precision import float64
from cavity.factors import from_log_density
from cavity.families import Gamma
from cavity.learned import JustInTime
from cavity.learned.embedding_operator import EmbeddingLearner, Settings
from cavity.learned.message_coordinates import Target
from cavity.learned.oracles import Answers, Integrated
from cavity.moments import Batch
from cavity.reports import Figure, Table, figure
from cavity.reports.figures import BLUE, GREY, VERMILION, label, legend
from cavity_reproductions.base import Config, Experiment, Outcome, Results, Unit, array, check_table, grade, make_unit
from cavity_reproductions.learned import DOCUMENT
from cavity_reproductions.learned.in_sequence import DEFAULT, PAPER

FAMILY = Gamma()
#: the paper's initial batch, threshold and features
FIRST, THRESHOLD, FEATURES = 20, -6.0, Settings(400, 800)


def log_compound(tau: Any, data: Any) -> jax.Array:
    """log ∫ Gamma(r; 1, 1) Gamma(τ; 1, r) dr = −2 log(1 + τ)."""
    return -2.0 * jnp.log1p(tau)


FACTOR = from_log_density(log_compound)


def messages(seed: int, count: int) -> np.ndarray:
    """Incoming messages as natural parameters (shape, rate), one row a problem."""
    rng = np.random.default_rng(seed)
    tau = rng.gamma(1.0, 1.0 / rng.gamma(1.0, 1.0, count))
    n = rng.integers(10, 101, count)
    return np.column_stack([1.0 + n / 2.0, 0.5 * rng.chisquare(n) / tau])


def forced(incoming: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Posteriors whose message is made proper with their mean kept: of shape 1, where it had less."""
    rate = np.maximum(incoming[:, 0] * exact[:, 1] / exact[:, 0], incoming[:, 1])
    low = exact[:, 0] < incoming[:, 0]
    return np.where(low[:, None], np.column_stack([incoming[:, 0], rate]), exact)


class Forced(Integrated):
    """The paper's oracle."""

    def answer(self, factor: Any, family: Any, cavities: Any, data: Any, key: Any) -> Answers:
        found = super().answer(factor, family, cavities, data, key)
        return found._replace(projected=forced(np.asarray(cavities), found.projected))


def operator_of(name: str, size: str) -> JustInTime:
    """The two that are compared; both ask quadrature."""
    if name == DEFAULT:
        return JustInTime(cavity.Quadrature())
    settings = Settings(40, 60) if size == "tiny" else FEATURES
    learner = EmbeddingLearner(Target(FAMILY, 0, "message"), lambda eta, data: eta, FIRST, THRESHOLD, settings)
    oracle = Forced(cavity.Quadrature(), 200.0)
    return JustInTime(oracle, tol_kl=1.0, key=jax.random.key(0), learner=learner)


def units(config: Config) -> list[Unit]:
    return [make_unit(config, number, name) for number, name in enumerate((DEFAULT, PAPER))]


@float64
def run_unit(unit: Unit, config: Config) -> dict:
    """One problem after another: predicted if the operator is confident, queried if not."""
    rows = messages(config.seed, config.pick(5000, 500, 60))
    exact = exact_posteriors(rows)
    operator = operator_of(unit.name, config.size)
    slow, found, seconds = [], [], []
    for row in rows:
        site = Batch(FACTOR, FAMILY, jnp.asarray(row[None]), jnp.zeros(1), np.ones(1, bool), False)
        began, before = time.perf_counter(), operator.queries
        prediction = operator.predictions(site)
        if not bool(prediction.confident[0]):
            operator.query(site)
            prediction = operator.predictions(site)
        found.append(row + np.asarray(prediction.site[0]))
        seconds.append(time.perf_counter() - began)
        slow.append(operator.queries > before)
    return {"incoming": rows, "exact": exact, "found": np.array(found), "slow": slow, "seconds": seconds}


def exact_posteriors(rows: np.ndarray) -> np.ndarray:
    """By quadrature."""

    def one(cavity_: jax.Array) -> jax.Array:
        return cavity_ + cavity.Quadrature().tilt(None, FACTOR, FAMILY, cavity_, jnp.zeros(()), 1.0, None)[0].site  # type: ignore[arg-type]

    return np.asarray(jax.jit(lambda own: jax.lax.map(one, own, batch_size=64))(jnp.asarray(rows)))


@float64
def divergences(exact: np.ndarray, found: np.ndarray) -> np.ndarray:
    """KL(exact ‖ found) of rows."""
    return np.asarray(FAMILY.kl(jnp.asarray(exact), jnp.asarray(found)))


def scores(result: Any) -> dict[str, Any]:
    """Errors of the problems that were not asked about."""
    exact, found, incoming = (array(result[name]) for name in ("exact", "found", "incoming"))
    sure = ~np.asarray(result["slow"], bool)
    kl, best = divergences(exact, found), divergences(exact, forced(incoming, exact))
    message, sent = exact[:, 1] - incoming[:, 1], found[:, 1] - incoming[:, 1]
    both = sure & (message > 0) & (sent > 0)
    spread = float(np.std(np.log(message[message > 0]))) if (message > 0).any() else float("nan")
    return {
        "consults": int((~sure).sum()),
        "in the first 100": int((~sure)[:100].sum()),
        "in the last half": int((~sure)[len(sure) // 2 :].sum()),
        "mean log KL": float(np.log(np.maximum(kl[sure], 1e-40)).mean()),
        "worst KL": float(kl[sure].max()),
        "mean log KL of exact messages forced to be proper": float(np.log(np.maximum(best, 1e-40)).mean()),
        "error of the log rate sent": float(np.sqrt(np.mean(np.log(sent[both] / message[both]) ** 2))),
        "spread of it": spread,
        "correlation of log rates": float(np.corrcoef(np.log(exact[sure, 1]), np.log(found[sure, 1]))[0, 1]),
        "of the incoming log rate with it": float(np.corrcoef(np.log(exact[:, 1]), np.log(incoming[:, 1]))[0, 1]),
        "milliseconds when sure": 1e3 * float(np.median(array(result["seconds"])[sure])),
    }


def summarise(results: Results, config: Config) -> Outcome:
    numbers = {name: scores(result) for name, result in results.items()}
    table = Table(
        f"{len(results[DEFAULT]['slow'])} problems, one message each",
        ("operator", *numbers[DEFAULT]),
        [(name, *own.values()) for name, own in numbers.items()],
    )
    own, theirs = numbers[DEFAULT], numbers[PAPER]
    checks = {
        "posterior rates agree on a log-log plot (correlation above 0.999)": theirs["correlation of log rates"] > 0.999,
        "questions become rare": theirs["in the last half"] < 0.05 * len(results[PAPER]["slow"]) / 2,
        "the plot says more than the incoming rate alone does": theirs["correlation of log rates"]
        > 0.5 * (1.0 + theirs["of the incoming log rate with it"]),
    }
    sentence = (
        f"The paper's operator asks {theirs['consults']} times; where it does not, log rates correlate by "
        f"{theirs['correlation of log rates']:.6f}, but those of the incoming messages already do by "
        f"{theirs['of the incoming log rate with it']:.6f}; the log rate of its message is off by "
        f"{theirs['error of the log rate sent']:.2f} (spread {theirs['spread of it']:.2f}), its "
        f"mean log KL {theirs['mean log KL']:.1f}. The default operator asks {own['consults']} times: mean log KL "
        f"{own['mean log KL']:.1f}."
    )
    return Outcome((table, check_table(checks)), numbers, grade(checks), sentence)


def draw(results: Results, outcome: Outcome, config: Config) -> Figure:
    sheet, axes = figure(1, 3, width=13.5, height=4.2)
    for name, colour in ((DEFAULT, BLUE), (PAPER, VERMILION)):
        result = results[name]
        exact, found = array(result["exact"]), array(result["found"])
        sure = ~np.asarray(result["slow"], bool)
        style: dict[str, Any] = {"marker": ".", "linestyle": "none", "markersize": 2.5, "color": colour, "label": name}
        axes[0, 0].plot(exact[sure, 1][:1000], found[sure, 1][:1000], **style)
        kl = np.maximum(divergences(exact, found), 1e-20)
        axes[0, 1].plot(np.flatnonzero(sure), kl[sure], **style)
        slow = np.cumsum(~sure)
        axes[0, 2].plot(np.arange(1, len(slow) + 1), slow, color=colour, label=name)
    incoming = array(results[DEFAULT]["incoming"])
    axes[0, 0].plot(
        array(results[DEFAULT]["exact"])[:1000, 1], incoming[:1000, 1], "x", color=GREY, markersize=2.5,
        label="rate of the incoming message", zorder=0,
    )  # fmt: skip
    axes[0, 0].loglog()
    axes[0, 1].set_yscale("log")
    axes[0, 2].loglog()
    label(axes[0, 0], "(a) posterior rates", "exact", "found")
    label(axes[0, 1], "(b) KL of the posterior, where not asked", "problem", "KL")
    label(axes[0, 2], "(c) questions so far", "problem", "consults")
    for ax in axes.flat:
        legend(ax)
    return sheet


EXPERIMENT = Experiment(
    name="kjit-4",
    document=f"{DOCUMENT}, experiment 4 and figure 7",
    title="A compound Gamma factor",
    claim="Posterior shapes and rates of the operator agree with those of quadrature on a log-log plot, and after a "
    "few hundred problems it hardly asks any more.",
    units=units,
    run_unit=run_unit,
    summarise=summarise,
    draw=draw,
)
