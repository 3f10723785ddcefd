"""Wrong labels: test error and log loss under flipped training labels, and how many flips the suspects hold.

Data sets come from the folder CAVITY_DATA, else from OpenML. `--write` puts the tables into docs/label-noise-table.md.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
from cavity_reproductions import datasets
from sklearn.ensemble import RandomForestClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import cavity as cv

SETS = ("heart", "sonar", "ionosphere", "thyroid", "pima_ripley")
SUSPECTED = (*SETS, "breast_cancer")
NOISES = (0.0, 0.1, 0.2, 0.3)
SPLITS = range(5)
METHODS = {
    "GPClassifier, step": lambda d: cv.GPClassifier(likelihood="step", label_noise="auto"),
    "GPClassifier, probit": lambda d: cv.GPClassifier(likelihood="probit", label_noise="auto"),
    "scikit-learn GPC": lambda d: GaussianProcessClassifier(ConstantKernel(1.0) * RBF(np.sqrt(d)), random_state=0),
    "logistic regression": lambda d: LogisticRegression(max_iter=1000),
    "random forest": lambda d: RandomForestClassifier(300, random_state=0),
    "SVC, Platt": lambda d: SVC(probability=True, random_state=0),
}


def split(name, noise, seed):
    """(training rows, noisy labels, which are flipped, test rows, clean test labels)."""
    data = datasets.load(name)
    X, Z, y, clean = train_test_split(data.X, data.y, test_size=0.4, random_state=seed, stratify=data.y)
    scaler = StandardScaler().fit(X)
    flipped = np.random.default_rng([seed, round(100 * noise)]).random(len(y)) < noise
    return scaler.transform(X), np.where(flipped, -y, y), flipped, scaler.transform(Z), clean


def table_of_errors():
    lines = ["| data | flipped | " + " | ".join(METHODS) + " |", "|---|---|" + "---|" * len(METHODS)]
    unfinished = 0
    for name in SETS:
        for noise in NOISES:
            scores = {method: [] for method in METHODS}
            for seed in SPLITS:
                X, y, _, Z, clean = split(name, noise, seed)
                for method, make in METHODS.items():
                    model = make(X.shape[1]).fit(X, y)
                    probabilities = model.predict_proba(Z)
                    unfinished += getattr(model, "status_", "converged") != "converged"
                    scores[method].append((1 - model.score(Z, clean), log_loss(clean, probabilities)))
            cells = [f"{100 * np.mean(s, axis=0)[0]:.1f} %, {np.mean(s, axis=0)[1]:.3f}" for s in scores.values()]
            lines.append(f"| {name} | {100 * noise:.0f} % | " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
    return lines, unfinished


def table_of_suspects():
    lines = ["| data | flips among the 10 % lowest leave-one-out rows |", "|---|---|"]
    for name in SUSPECTED:
        found = total = 0
        for seed in SPLITS:
            X, y, flipped, _, _ = split(name, 0.1, seed)
            model = cv.GPClassifier(likelihood="step", label_noise="auto").fit(X, y)
            lowest = np.argsort(model.loo_log_predictive_)[: round(0.1 * len(y))]
            found, total = found + flipped[lowest].sum(), total + flipped.sum()
        lines.append(f"| {name} | {found} of {total} = {100 * found / total:.0f} % |")
        print(lines[-1], flush=True)
    return lines


PAGE = """# Label noise: the numbers

Made by `benchmarks/bench_label_noise.py --write`. Five splits of each data set into 60 % for training and 40 % for
testing, seeds fixed beforehand; a share of the training labels is flipped at random, test labels are left as they are.
Every method gets the same rows, standardised by the training rows, and works at its defaults, ours with
`label_noise="auto"`.

Cells: test error, log loss of the test labels under `predict_proba`, averages over the splits.

{errors}

Of {fits} fits of GPClassifier, {unfinished} ended without a fixed point.

## Where the flips are

One label in ten is flipped. How many of the flips are among the tenth of the training rows with the lowest
`loo_log_predictive_`; a random tenth would hold 10 %.

{suspects}
"""


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    errors, unfinished = table_of_errors()
    suspects = table_of_suspects()
    fits = 2 * len(SETS) * len(NOISES) * len(SPLITS)
    print(f"fits of GPClassifier without a fixed point: {unfinished} of {fits}")
    if "--write" in sys.argv:
        tables = {"errors": "\n".join(errors), "suspects": "\n".join(suspects)}
        page = PAGE.format(**tables, fits=fits, unfinished=unfinished)
        (Path(__file__).parents[1] / "docs" / "label-noise-table.md").write_text(page)
