# %% [markdown]
# # Wrong labels: learn how many there are, and find them
#
# Tumours from scikit-learn's breast cancer data, one label in ten flipped on purpose. The classifier learns the share
# of wrong labels from the evidence. The probability of a row's label given the other rows comes from EP's cavities,
# without a second fit.

# %%
import numpy as np
from cavity_reproductions.datasets import load

from cavity.estimators import BayesPointMachine, GPClassifier

data = load("breast_cancer")
rng = np.random.default_rng(0)
order = rng.permutation(len(data.y))
train, test = order[:120], order[120:]
X = (data.X - data.X[train].mean(axis=0)) / data.X[train].std(axis=0)
y = data.y[train].copy()
flipped = rng.choice(120, 12, replace=False)
y[flipped] = 1 - y[flipped]

# %% [markdown]
# A Gaussian process and a linear machine on the same labels; their log evidences say which explains them better.

# %%
for model in (GPClassifier(label_noise="auto"), BayesPointMachine(label_noise="auto")):
    model.fit(X[train], y)
    suspects = np.argsort(model.loo_log_predictive_)[:12]
    print(f"{type(model).__name__}: {model.status_}, log evidence {model.log_evidence_:.2f}")
    accuracy = model.score(X[test], data.y[test])
    print(f"  label noise learned: {model.label_noise_:.3f}; accuracy on clean test labels: {accuracy:.3f}")
    print(f"  of the 12 most suspect rows, {len(np.intersect1d(suspects, flipped))} were flipped")
