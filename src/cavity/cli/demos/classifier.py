"""The demo of the classifier: labels flipped on purpose, learned to be wrong, and found again."""

import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.text import Text
from sklearn.datasets import load_breast_cancer

from cavity.estimators import GPClassifier
from cavity.reports import Figure, Table, UnitProgress, figure, save, show
from cavity.reports.classifier_report import draw_calibration, draw_ranking, share
from cavity.reports.findings import Findings, findings

#: rows to train on, the others are for the test; a bucket of 256 holds them
TRAINING = 250
FLIPPED = 0.1
#: suspects looked at, as multiples of the number of flips
LISTS = (1, 2)
INTRODUCTION = (
    "Breast cancer (Wisconsin), 569 tumours with 30 measurements each, comes with scikit-learn. A Gaussian process "
    f"learns from {TRAINING} of them, after {FLIPPED:.0%} of their labels have been flipped on purpose."
)


class Shown(NamedTuple):
    """What the demo found. flipped: (n,), which training labels are wrong. test: probabilities and true codes."""

    found: Findings
    flipped: np.ndarray
    test_probabilities: np.ndarray
    test_codes: np.ndarray


def train_on_flipped_labels(seed: int = 0, training: int = TRAINING) -> Shown:
    """Flip labels, fit a classifier, and summarise what it learned."""
    features, labels = (np.asarray(part) for part in load_breast_cancer(return_X_y=True))
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))
    rows, others = order[:training], order[training:]
    codes = labels[rows].copy()
    flipped = np.zeros(training, bool)
    flipped[rng.choice(training, round(FLIPPED * training), replace=False)] = True
    codes[flipped] = 1 - codes[flipped]
    X = (features - features[rows].mean(axis=0)) / features[rows].std(axis=0)
    began = time.perf_counter()
    classifier = GPClassifier(label_noise="auto", random_state=seed).fit(X[rows], codes)
    found = findings(classifier, X[rows], codes, time.perf_counter() - began)
    return Shown(found, flipped, classifier.predict_proba(X[others]), labels[others])


def tables(shown: Shown) -> tuple[Table, Table]:
    """What was learned, and where the flipped labels are among the suspects."""
    found, flips = shown.found, int(shown.flipped.sum())
    right = shown.test_probabilities.argmax(axis=1) == shown.test_codes
    own = shown.test_probabilities[np.arange(len(right)), shown.test_codes]
    learned = [
        ("test accuracy", f"{share(float(right.mean()))} of {len(right)} rows with clean labels"),
        ("test log loss", f"{float(-np.mean(np.log(np.maximum(own, np.finfo(float).tiny)))):.4f} nats per row"),
        ("log evidence", f"{found.log_evidence:.3f}"),
        ("label noise", f"{found.label_noise} learned, {FLIPPED:g} of the labels were flipped"),
        ("kernel", found.kernel),
        ("calibration error", f"{found.calibration.error:.4f} (expected, leave-one-out)"),
        ("status", f"{found.status} ({found.method}; sweeps in the last run: {found.sweeps})"),
        ("time", f"{found.seconds:.1f} s, compilation included"),
    ]
    caught = []
    for times in LISTS:
        most = times * flips
        hits, chance = int(shown.flipped[found.suspects(most)].sum()), most / len(found.codes)
        caught.append((f"{most} most suspect rows", f"{hits} of {flips} flips", f"{chance:.0%} by chance"))
    note = "Suspect: the other rows make the label improbable (leave-one-out, at no extra cost)."
    wrong = Table("Wrong labels found", ("looked at", "found", "expected"), caught, note)
    return Table("What was learned", ("what", "value"), learned), wrong


def draw_classifier(shown: Shown) -> Figure:
    """Calibration, and all training rows ranked by how probable their label is."""
    sheet, axes = figure(1, 2, width=11.0, height=4.4)
    draw_calibration(axes[0, 0], shown.found.calibration)
    draw_ranking(axes[0, 1], shown.found, shown.flipped)
    return sheet


def show_classifier(out: Path, seed: int, console: Console) -> None:
    """A classifier trained on labels some of which are wrong: tables to the console, figure to the file."""
    console.print(Text(INTRODUCTION))
    with UnitProgress("compiling and fitting", 1, console=console) as progress:
        progress.begin("Gaussian process")
        shown = train_on_flipped_labels(seed)
        progress.finish()
    for table in tables(shown):
        show(table, console)
    save(draw_classifier(shown), out)
    console.print(Text(f"written: {out}"), soft_wrap=True)
