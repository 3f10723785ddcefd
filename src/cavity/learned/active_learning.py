"""Just-in-time learned messages: active learning of a factor's messages while inference goes on.

Inside the compiled sweep a Gaussian process predicts the message of a site with its expected error. Where that is too
large the site stays as it was. Between sweeps, on the host, an acquisition rule chooses few of the unsure sites whose
answers serve most of the others, an oracle answers these queries, and the process learns. Confident predictions are
audited now and then, which calibrates their expected errors.
"""

import os
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cavity._core import checks
from cavity._core.precision import float64, is_traced
from cavity._storage import StorageError, load, save
from cavity.factors.base import Factor, is_one
from cavity.families.base import Family, Tilted
from cavity.learned.fingerprint import Fingerprint, from_saved, recognise, remember
from cavity.learned.gp_state import Labels, TunedKernel
from cavity.learned.learner import Audits, GPLearner, Learner, MessagePrediction, pad_rows, predict_sites
from cavity.learned.message_coordinates import divergence, tilted_statistics_of
from cavity.learned.oracles import Answers, Oracle, StoredKey, join_rows
from cavity.learned.sampling import DRAWS, SamplerError, as_oracle
from cavity.learned.simulation import check_variables
from cavity.moments.base import UNSURE, Batch, Group, Info, Moments

#: sites queried at a time, before their answers are used to choose the next
ROUND = 16
#: labels up to which noise is averaged by further queries
MOST_LABELS = 480
#: the share of confident predictions that is audited while a run goes on
RATE = 1.0 / 2000.0
#: sites audited when a run has converged
AT_THE_END = 6
#: an audit that finds so many times the KL divergence that is tolerated makes the run go on, with its answer learned
WORSE = 100.0
#: an audit that finds less than this share of it teaches nothing
UNSURPRISING = 0.1
#: audits at the end that inflate variances so many times more do the same: what was confident may be so no longer
SURPRISE = 2.0
#: times in a row that all answers to its questions may be refused before a run no longer waits for them
PATIENCE = 8
#: what the file of a learned operator is and holds
KIND = "learned operator"
ARRAYS = ("inputs", "targets", "spread", "widths", "sampling", "scales", "reference", "audited_kl", "audited_expected")


class OperatorReport(NamedTuple):
    """What a learned operator has asked and done.

    Attributes:
        queries: questions to the oracle because it was unsure.
        audits: questions about confident predictions.
        refusals: answers that could not be used.
        labels: answers learned.
        least_ess: the smallest effective sample size of an answer; infinite where nothing is sampled, nan before one.
        expected_kl: the largest expected KL divergence among the sites it predicted last.
        audit_kl: the largest KL divergence that an audit found.
        calibration: mean of audited over expected KL; 1 is right, more is over-confident, nan: too few audits.
        refused_audits: audits whose answer could not be used; they vouch for nothing and are not among `audits`.

    Examples:
        >>> import cavity
        >>> cavity.learned.JustInTime().report().labels
        0
    """

    queries: int
    audits: int
    refusals: int
    labels: int
    least_ess: float
    expected_kl: float
    audit_kl: float
    calibration: float
    refused_audits: int = 0


class JustInTime(Moments):
    """Messages learned while they are used: predicted where the expected error is small, else computed by an oracle.

    Such an operator is for one factor and one kind of variables and data. What it has learned serves every graph it is
    put into.

    Args:
        oracle: a strategy such as `cavity.Quadrature()`, or an `Oracle`. By default a simulator is run; a log density
            is integrated by quadrature over one or two variables, else by weighted draws from the incoming messages.
        draws: of one answer that is sampled.
        tol_kl: expected KL divergence, of exact from predicted projection, beyond which a site is unsure. An oracle
            that samples is asked as long as one more answer tells more than is already known.
        key: of the oracle's draws and of audits.
        learner: the regression; by default a Gaussian process.

    Raises:
        TypeError, ValueError: an argument is of the wrong kind or out of range, in one sentence.

    Examples:
        >>> import cavity
        >>> learned = cavity.learned.JustInTime(oracle=cavity.Quadrature(), tol_kl=1e-4)
        >>> graph = cavity.FactorGraph()
        >>> graph.add(cavity.factors.Logistic(), graph.gaussian(0.0, 1.0), data=1.0, moments=learned)
        >>> learned.report().queries
        0
    """

    learns: ClassVar[bool] = True

    def __init__(
        self,
        oracle: Moments | Oracle | None = None,
        *,
        draws: int = DRAWS,
        tol_kl: float = 1e-5,
        key: jax.Array | None = None,
        learner: Learner | None = None,
    ) -> None:
        checks.positive("tol_kl", tol_kl)
        self.oracle, self.tol_kl = as_oracle(oracle, draws), tol_kl
        self.learner = GPLearner(tol_kl) if learner is None else learner
        self.key = StoredKey.of(key)
        self.queries, self.refusals, self.audited = 0, 0, Audits()
        self.expected_kl = self.least_ess = float("nan")
        self.refused_audits = self.fruitless = 0
        self._factor: Factor | None = None
        self.fingerprint: Fingerprint | None = None
        self.unverified: str | None = None  # the file it is from, until its factor was recognised

    # ------------------------------------------------------------ inside compiled sweeps

    # `tilt` reads the learner's predictor and what it is given, so operators with equal predictors share their compiled
    # programs. What they know is theirs alone: it stays out of the comparison, and out of what is compiled.

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.learner.predictor == self.learner.predictor  # type: ignore[union-attr]

    def __hash__(self) -> int:
        return hash((type(self), self.learner.predictor))

    def validate(self, factor: Factor, family: Family) -> None:
        self.oracle.validate(factor)
        check_variables(factor, family)

    @float64
    def init(self, group: Group) -> Any:
        if is_traced((group.factor, group.data)):
            raise TypeError("a compiled program would keep what this operator knows now: hand it over as moments.")
        self.check_same(group.factor)
        self.verify(group.factor, jax.tree.map(lambda leaf: np.asarray(leaf)[0], group.data))
        self.fruitless = 0
        return self.learner.state(group, self.oracle.is_noisy(group.factor, group.family))

    def check_same(self, factor: Factor) -> None:
        """Refuse a factor other than the first: their messages differ."""
        found = jax.tree.map(np.array, factor)
        if self._factor is None:
            self._factor = found
        (known, structure), (leaves, kind) = jax.tree.flatten(self._factor), jax.tree.flatten(found)
        if kind != structure or not all(map(partial(np.array_equal, equal_nan=True), leaves, known)):
            raise ValueError("this operator has learned the messages of another factor: make one for each.")

    @float64
    def verify(self, factor: Factor, site: Any) -> None:
        """Refuse a factor other than the one that a file was learned from. site: data of one of its sites."""
        if self.unverified is not None and self.fingerprint is not None:
            key = jax.random.fold_in(self.key.restored(), 1)
            recognise(self.fingerprint, self.unverified, self.oracle, factor, site, self.tol_kl, key)
        self.unverified = None

    def tilt(
        self, state: Any, factor: Factor, family: Family, cavity: jax.Array, data: Any, power: float, key: jax.Array
    ) -> tuple[Tilted, Info]:
        if not is_one(power):
            raise TypeError("learned messages are those of whole factors, power 1; use EP.")
        found = self.learner.predictor.predict(state, factor, family, cavity, data)
        site = jnp.where(found.confident, found.site, 0.0)
        tilted = Tilted(jnp.where(found.confident, found.log_z, 0.0), tilted_statistics_of(family, cavity, site), site)
        return tilted, {UNSURE: ~found.confident}

    # ------------------------------------------------------------ between sweeps, on the host

    @float64
    def learn(self, state: Any, batch: Batch) -> tuple[Any, bool]:
        batch, some = batch._replace(data=jax.tree.map(jnp.asarray, batch.data)), bool(batch.unsure.any())
        if some:
            self.fruitless = 0 if self.query(batch) else self.fruitless + 1
        ends, some = batch.ended and not some, some and self.fruitless < PATIENCE
        better = ends and self.refine(batch)
        wrong = self.learner.audited and self.audit(batch, ends and not better)
        return self.learner.state(batch, self.is_noisy(batch)), some or better or wrong

    def is_noisy(self, batch: Batch) -> bool:
        """Whether answers about these sites are sampled."""
        return self.oracle.is_noisy(batch.factor, batch.family)

    def predictions(self, batch: Batch) -> MessagePrediction:
        """Predictions for all sites of a batch, unsure or not."""
        state = self.learner.state(batch, self.is_noisy(batch))
        return predict_sites(self.learner.predictor, state, batch.factor, batch.family, batch.cavities, batch.data)

    def next_key(self) -> jax.Array:
        """A random key that was not used before."""
        kept, own = jax.random.split(self.key.restored())
        self.key = StoredKey.of(kept)
        return own

    def ask(self, batch: Batch) -> Answers:
        """The oracle's answers about all these sites."""
        answer, own = self.oracle.answer, self.next_key()
        return answer(batch.factor, batch.family, np.asarray(batch.cavities), batch.data, own)

    def take(self, batch: Batch, answers: Answers, now: bool = True) -> None:
        """Learn answers, and count those that cannot be. now: see `Learner.learn`."""
        good = self.learner.learn(batch, answers, now)
        self.fingerprint = remember(self.fingerprint, batch, answers, good)
        self.refusals += int((~good).sum())
        if good.any():
            with np.errstate(divide="ignore"):
                self.least_ess = float(np.fmin(self.least_ess, np.min(1.0 / answers.spread[good])))

    def query(self, batch: Batch) -> bool:
        """Ask about so many of the unsure sites that the others can be predicted, and about none twice.

        A site whose answer was refused is queried again after the next sweep. Returns False if all answers were.
        """
        asked, labels = self.queries, self.learner.labels
        waiting = batch.unsure & np.asarray(batch.family.is_allowed(batch.cavities))
        while True:
            found = self.predictions(batch)
            unsure = waiting & ~np.asarray(found.confident)
            places = self.learner.select(batch._replace(unsure=unsure), self.is_noisy(batch), ROUND)
            if not len(places):
                break
            try:
                self.take(batch.at(places), self.ask(batch.at(places)))
            except SamplerError as error:
                if error.found is not None:
                    self.take(batch.at(places[: len(error.found.log_z)]), error.found)
                raise
            self.queries += len(places)
            waiting[places] = False
            if self.learner.labels > labels:
                self.learner.inflate(self.audited.inflation)
        confident = np.asarray(found.confident)
        self.expected_kl = float(np.asarray(found.expected_kl)[confident].max()) if confident.any() else float("nan")
        return self.queries == asked or self.learner.labels > labels

    def refine(self, batch: Batch) -> bool:
        """At the end of a run, ask about a few sites that more answers would improve. Returns whether there were any.

        Only where answers are noisy, and not for ever: averaging noise becomes dear.
        """
        noisy = self.is_noisy(batch)
        if self.learner.labels >= MOST_LABELS or not noisy:
            return False
        unsettled = ~np.asarray(self.predictions(batch).settled)
        places = self.learner.select(batch._replace(unsure=unsettled), noisy, 4 * ROUND)
        if not len(places):
            return False
        # Few sites are queried several times at once, each time with other draws.
        places = np.tile(places, max(1, 4 * ROUND // len(places)))
        self.take(batch.at(places), self.ask(batch.at(places)))
        self.queries += len(places)
        return True

    def audit(self, batch: Batch, ended: bool) -> bool:
        """Ask about a few sites that were predicted. Returns whether an error is so large that the run must go on.

        Where most audits at the end are refused, nothing vouches for predictions: they all become unsure.
        """
        own = self.next_key()
        rng = np.random.default_rng(np.asarray(jax.random.key_data(own)).tolist())
        predicted = np.flatnonzero(~batch.unsure)
        picked = predicted[rng.random(len(predicted)) < RATE]
        if ended:
            picked = rng.permutation(predicted)[:AT_THE_END]
        if not len(picked):
            return False
        rows = batch.at(picked)
        cavities, data = pad_rows((rows.cavities, rows.data))
        padded = self.predictions(rows._replace(cavities=cavities, data=data))
        found = jax.tree.map(lambda leaf: leaf[: len(picked)], padded)
        answers = self.ask(rows)
        distance = jax.vmap(lambda a, b: divergence(batch.family, a, b))
        kl = np.asarray(distance(jnp.asarray(answers.projected), rows.cavities + found.site))
        # The oracle's answers are noisy too: half of 1/ESS for each number of a projection.
        noise = 0.5 * len(answers.projected[0]) * answers.spread
        expected = np.asarray(found.expected_kl) + noise
        usable, before = np.isfinite(kl), self.audited.inflation
        # What was predicted as it is need not be kept: labels would become ever more, and arrays larger.
        new = np.flatnonzero(~(kl <= UNSURPRISING * (self.tol_kl + noise)))
        if len(new):
            self.take(rows.at(new), answers.part(new), now=False)
        self.audited = join_rows([self.audited, Audits(kl[usable], np.maximum(expected[usable], 1e-300))])
        after = self.audited.inflation
        self.learner.inflate(after)
        self.refused_audits += int((~usable).sum())
        bad = kl > WORSE * (self.tol_kl + noise)
        unknown = ended and 2 * usable.sum() < len(usable)
        if bad.any():
            self.learner.refit()
        if unknown:
            self.learner.inflate(np.inf)
        return bool(bad.any()) or unknown or (ended and after > SURPRISE * before)

    # ------------------------------------------------------------ for users

    def report(self) -> OperatorReport:
        """What it has asked and done so far, in all runs.

        Returns:
            An `OperatorReport`.
        """
        audits = self.audited
        worst = float(audits.kl.max()) if len(audits.kl) else float("nan")
        return OperatorReport(
            *(self.queries, len(audits.kl), self.refusals, self.learner.labels),
            *(self.least_ess, self.expected_kl, worst, audits.ratio, self.refused_audits),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what was learned to a file of numbers, for `cavity.learned.load`; the factor itself is not in it.

        Args:
            path: of the file, replaced where it exists.

        Raises:
            StorageError: nothing was learned yet.
            TypeError: the learner is not the recommended one.
        """
        learner = self.learner
        if not isinstance(learner, GPLearner):
            raise TypeError(f"operators with {type(learner).__name__} cannot be saved.")
        if learner.store is None or learner.tuned is None or learner.reference is None or self.fingerprint is None:
            raise StorageError("the operator has not learned anything yet, so there is nothing to save.")
        header = {
            "tol_kl": float(self.tol_kl),
            "noise": learner.tuned.noise,
            "tuned_at": learner.tuned_at,
            "queries": self.queries,
            "refusals": self.refusals,
            "refused_audits": self.refused_audits,
        }
        tuned = learner.tuned
        arrays = (*learner.store, tuned.widths, tuned.sampling, tuned.scales, learner.reference, *self.audited)
        asked, rows = self.fingerprint.as_saved()
        save(path, KIND, header | asked, dict(zip(ARRAYS, arrays, strict=True)) | rows)

    @classmethod
    @float64
    def load(cls, path: str | os.PathLike[str], *, max_bytes: int | None = None, **options: Any) -> "JustInTime":
        """An operator that begins with what another has learned and saved.

        Args:
            path: of the file that `save` wrote.
            max_bytes: refuse a file that unpacks to more than this; None: to more than 256 MiB and 64 times its size.
            options: as `JustInTime` takes them; `tol_kl` is the saved one unless given.

        Returns:
            The operator, with the counts and audits of the saved one. Before its first run the factor is asked some of
            the saved one's questions, and refused with a `StorageError` if its answers are others.

        Raises:
            StorageError: the file is of another kind, or damaged.
        """
        kind, header, arrays = load(path, max_bytes)
        if kind != KIND:
            raise StorageError(f"{path} holds a {kind}, not a learned operator.")
        try:
            found = [np.asarray(arrays[name], float) for name in ARRAYS]
            counts = [int(header[name]) for name in ("tuned_at", "queries", "refusals", "refused_audits")]
            fingerprint, tolerance = from_saved(header, arrays), checks.positive("tol_kl", float(header["tol_kl"]))
            noise = checks.positive("noise", float(header["noise"]))
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(f"{path} is damaged: {error} is missing or not what it should be.") from None
        operator = cls(**dict[str, Any](tol_kl=tolerance) | options)
        labels, widths, sampling, scales, reference = Labels(*found[:3]), *found[3:7]
        audits = Audits(*found[7:])
        n, size = labels.inputs.shape if labels.inputs.ndim == 2 else (0, 0)
        k = scales.size
        shapes = [(n, size), (n, k), (n,), (size,), (min(k, sampling.size),), (k,), (reference.size,), audits.kl.shape]
        if [own.shape for own in (*found[:7], audits.expected)] != shapes or sampling.size not in (1, k):
            raise StorageError(f"{path} is damaged: its arrays do not fit together.")
        if min(counts) < 0 or not all(np.isfinite(own).all() for own in found) or (np.r_[widths, scales] <= 0).any():
            raise StorageError(f"{path} is damaged: it holds numbers that no operator has.")
        learner = operator.learner
        assert isinstance(learner, GPLearner)
        learner.store, learner.labels, learner.tuned = labels, n, TunedKernel(widths, noise, sampling, scales)
        learner.reference, learner.inflation = reference, audits.inflation
        learner.tuned_at, operator.queries, operator.refusals, operator.refused_audits = counts
        operator.fingerprint, operator.unverified, operator.audited = fingerprint, str(path), audits
        operator.least_ess = float(np.inf if not labels.spread.any() else 1.0 / labels.spread.max())
        try:
            learner.refit()
        except np.linalg.LinAlgError:
            raise StorageError(f"{path} is damaged: its widths and noise fit no such labels.") from None
        return operator
