"""Operators: the part of a just-in-time factor that lives on the host, where the oracle is asked and learned from."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity.factors.base import Factor
from cavity.families.base import Family
from cavity.learned.calibration import AT_THE_END, RATE, SURPRISE, UNSURPRISING, WORSE, Audits, none
from cavity.learned.learner import Guess, Learner
from cavity.learned.message_coordinates import divergence
from cavity.learned.oracles import Answers, Oracle
from cavity.learned.residual_process import padded
from cavity.learned.sampling import SamplerError

#: sites asked about at a time, before what they tell is used to choose the next
ROUND = 16
#: labels up to which noise is averaged by asking for more
MOST_LABELS = 480


class Report(NamedTuple):
    """What an operator was asked and did.

    consults: questions to the oracle because it was unsure. audits: questions although it was sure. refusals: answers
    that could not be used. labels: answers learned. least_ess: the smallest effective sample size of one; infinite
    where nothing is sampled, nan before the first. expected_kl: the largest among the sites it predicted last.
    audit_kl: the largest that audits found. calibration: mean of audited over expected KL; 1 is right, more is
    over-confident, nan: too few audits.
    """

    consults: int
    audits: int
    refusals: int
    labels: int
    least_ess: float
    expected_kl: float
    audit_kl: float
    calibration: float


class Sites(NamedTuple):
    """All sites of a group. known: see `Oracle.answer`."""

    family: Family
    cavities: jax.Array
    data: Any
    known: tuple[int, ...]

    def at(self, places: np.ndarray) -> "Sites":
        """Some of them."""
        cavities, data = jax.tree.map(lambda leaf: jnp.asarray(leaf)[places], (self.cavities, self.data))
        return self._replace(cavities=cavities, data=data)


class Operator:
    """A factor, who is asked about it, and who learns from the answers."""

    def __init__(self, inner: Factor, oracle: Oracle, learner: Learner, tol_kl: float, key: jax.Array) -> None:
        self.inner, self.oracle, self.learner, self.tol_kl, self.key = inner, oracle, learner, tol_kl, key
        self.consults, self.refusals, self.audited = 0, 0, none()
        self.expected_kl = self.least_ess = float("nan")
        self._compiled: dict[Family, Any] = {}

    def knowledge(self, family: Family, data: Any) -> Any:
        """What predictions are made from; data: of one site."""
        return self.learner.knowledge(family, data)

    def guesses(self, sites: Sites) -> Guess:
        """Predictions for many sites."""
        family = sites.family
        if family not in self._compiled:

            def one(known: Any, cavity: jax.Array, data: Any) -> Guess:
                return self.learner.guess(known, family, cavity, data)

            self._compiled[family] = jax.jit(jax.vmap(one, in_axes=(None, 0, 0)))
        known = self.knowledge(family, jax.tree.map(lambda leaf: leaf[0], sites.data))
        return self._compiled[family](known, sites.cavities, sites.data)

    def ask(self, sites: Sites) -> Answers:
        """Answers about all these sites."""
        self.key, own = jax.random.split(self.key)
        return self.oracle.answer(sites.family, np.asarray(sites.cavities), sites.data, sites.known, own)

    def take(self, sites: Sites, answers: Answers, now: bool = True) -> None:
        """Learn answers, and count those that cannot be. now: see `Learner.learn`."""
        good = self.learner.learn(sites.family, sites.cavities, sites.data, answers, now)
        self.refusals += int((~good).sum())
        if good.any():
            with np.errstate(divide="ignore"):
                self.least_ess = float(np.fmin(self.least_ess, np.min(1.0 / answers.spread[good])))

    def consult(self, sites: Sites, silent: np.ndarray) -> None:
        """Ask about so many of the silent sites that the others can be predicted, and about none twice.

        A site whose answer was refused is asked about again after the next sweep.
        """
        waiting = silent & np.asarray(sites.family.is_allowed(sites.cavities))
        while True:
            found = self.guesses(sites)
            unsure = waiting & ~np.asarray(found.sure)
            places = self.learner.chosen(sites.family, sites.cavities, sites.data, unsure, ROUND)
            if not len(places):
                break
            try:
                self.take(sites.at(places), self.ask(sites.at(places)))
            except SamplerError as error:
                if error.found is not None:
                    self.take(sites.at(places[: len(error.found.log_z)]), error.found)
                raise
            self.consults += len(places)
            waiting[places] = False
        sure = np.asarray(found.sure)
        self.expected_kl = float(np.asarray(found.expected_kl)[sure].max()) if sure.any() else float("nan")

    def settle(self, sites: Sites) -> bool:
        """At the end of a run, ask about a few sites that more answers would make better. Says whether there were any.

        Only where answers are noisy, and not for ever: averaging noise becomes dear.
        """
        if self.learner.labels >= MOST_LABELS or not self.oracle.is_noisy(sites.family):
            return False
        unsettled = ~np.asarray(self.guesses(sites).settled)
        places = self.learner.chosen(sites.family, sites.cavities, sites.data, unsettled, 4 * ROUND)
        if not len(places):
            return False
        # Few sites are asked about several times at once, each time with other draws.
        places = np.tile(places, max(1, 4 * ROUND // len(places)))
        self.take(sites.at(places), self.ask(sites.at(places)))
        self.consults += len(places)
        return True

    def audit(self, sites: Sites, silent: np.ndarray, ended: bool) -> bool:
        """Ask about a few sites that were predicted. Says whether something is so wrong that the run must go on."""
        self.key, own = jax.random.split(self.key)
        rng = np.random.default_rng(np.asarray(jax.random.key_data(own)).tolist())
        predicted = np.flatnonzero(~silent)
        picked = predicted[rng.random(len(predicted)) < RATE]
        if ended:
            picked = rng.permutation(predicted)[:AT_THE_END]
        if not len(picked):
            return False
        rows = sites.at(picked)
        cavities, data = padded((rows.cavities, rows.data))
        found = jax.tree.map(
            lambda leaf: leaf[: len(picked)], self.guesses(rows._replace(cavities=cavities, data=data))
        )
        answers = self.ask(rows)
        distance = jax.vmap(lambda a, b: divergence(sites.family, a, b))
        kl = np.asarray(distance(jnp.asarray(answers.projected), rows.cavities + found.site))
        # What the oracle says is noisy too: half of 1/ESS for each number it says.
        noise = 0.5 * len(answers.projected[0]) * answers.spread
        expected = np.asarray(found.expected_kl) + noise
        told, before = np.isfinite(kl), self.audited.inflation
        # What was predicted as it is need not be kept: labels would become ever more, and arrays larger.
        new = np.flatnonzero(~(kl <= UNSURPRISING * (self.tol_kl + noise)))
        if len(new):
            self.take(rows.at(new), answers.part(new), now=False)
        self.audited = self.audited.with_more(Audits(kl[told], np.maximum(expected[told], 1e-300)))
        after = self.audited.inflation
        self.learner.inflate(after)
        bad = kl > WORSE * (self.tol_kl + noise)
        if bad.any():
            self.learner.renew()
        return bool(bad.any()) or (ended and after > SURPRISE * before)

    def report(self) -> Report:
        """What happened so far."""
        audits = self.audited
        worst = float(audits.kl.max()) if len(audits.kl) else float("nan")
        return Report(
            *(self.consults, len(audits.kl), self.refusals, self.learner.labels),
            *(self.least_ess, self.expected_kl, worst, audits.ratio),
        )
