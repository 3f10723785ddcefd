"""The page: text stays text whatever a file says, and nothing is loaded from elsewhere. And the numbers on it."""

from html.parser import HTMLParser

import numpy as np
import pytest
from sklearn.calibration import calibration_curve
from sklearn.datasets import load_iris
from sklearn.metrics import brier_score_loss

from cavity._storage.writing import write_whole
from cavity.estimators import GPClassifier
from cavity.kernels import RBF
from cavity.reports import Table
from cavity.reports.classifier_report import (
    Data,
    Evidence,
    calibration,
    classifier_page,
    evidence_table,
    findings,
    suspect_table,
)
from cavity.reports.html import Section, page

EVIL = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</td></table></style><style>*{display:none}",
    "&lt;b&gt; $\\frac{",
    "<!-- -->",
)
TAGS = {"html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "div", "table", "thead", "tbody", "tr", "th",
        "td", "img"}  # fmt: skip
ATTRIBUTES = {"lang", "charset", "http-equiv", "content", "name", "class", "alt", "src"}


class Reader(HTMLParser):
    """Tags, attributes and texts of a page, as a browser sees them."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.texts, self.comments = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.texts.append(data)

    def handle_comment(self, data):
        self.comments.append(data)


def check(text):
    seen = Reader(text)
    assert set(seen.tags) <= TAGS
    assert {name for name, _ in seen.attributes} <= ATTRIBUTES
    assert all(value.startswith("data:image/png;base64,") for name, value in seen.attributes if name == "src")
    assert not seen.comments
    assert seen.tags.count("style") == 1
    return seen


def test_text_stays_text():
    table = Table("t", EVIL, [EVIL], EVIL[0])
    seen = check(page(EVIL[1], [Section(EVIL[0], [*EVIL, table])]))
    for text in EVIL:
        assert seen.texts.count(text) >= 3
    assert "\x1b" not in page("\x1b[2J", [])


@pytest.fixture(scope="module")
def three():
    """Thirty flowers of three kinds, two of them labelled wrongly, under names that attack the page."""
    X, y = load_iris(return_X_y=True)
    X, codes = X[::5, :4], y[::5].copy()
    codes[[2, 25]] = [2, 0]
    names = np.array(EVIL[:3])
    estimator = GPClassifier(RBF(2.0), label_noise=0.1, optimize=False).fit(X, names[codes])
    return X, names[codes], estimator, findings(estimator, X, names[codes], 1.0)


def test_the_page_of_a_classifier(three):
    X, _, _, found = three
    cells = [[f"{EVIL[3]}{value}" for value in row] for row in X]
    data = Data(EVIL[0], EVIL[4], EVIL[:4], range(2, 32), cells)
    evidences = [Evidence("rbf", found.log_evidence, "converged", True), Evidence("linear", None, EVIL[5], False)]
    seen = check(classifier_page(found, data, evidences, [EVIL[1]]))
    assert seen.tags.count("img") == 3
    assert cells[2][0] in seen.texts
    suspects = suspect_table(found, data, 2)
    assert {row[0] for row in suspects.rows} == {"4", "27"}
    assert all(row[1] != row[2] for row in suspects.rows)


def test_leave_one_out_probabilities_are_those_of_the_estimator(three):
    X, y, estimator, found = three
    np.testing.assert_allclose(np.log(found.own), estimator.loo_log_predictive_, rtol=1e-9)
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1.0, rtol=1e-12)
    assert found.loo_error == np.mean(estimator.classes_[found.probabilities.argmax(axis=1)] != y)
    # Against a fit without the row itself, which EP's cavity approximates.
    left = np.arange(30) != 7
    again = GPClassifier(RBF(2.0), label_noise=0.1, optimize=False).fit(X[left], y[left])
    np.testing.assert_allclose(found.probabilities[7], again.predict_proba(X[7:8], noisy=True)[0], atol=0.02)


def test_calibration_agrees_with_scikit_learn():
    rng = np.random.default_rng(0)
    p = rng.beta(2.0, 1.0, 400)
    codes = (rng.random(400) < p).astype(int)
    found = calibration(np.column_stack([1 - p, p]), codes)
    confidence = np.maximum(p, 1 - p)
    right = (p > 0.5) == codes
    accuracy, means = calibration_curve(right, confidence, n_bins=20)
    np.testing.assert_allclose(found.accuracy, accuracy)
    np.testing.assert_allclose(found.confidence, means)
    np.testing.assert_allclose(found.brier, brier_score_loss(codes, p))
    place = np.ceil((confidence - 0.5) / 0.05)
    error = sum(np.sum(place == k) * abs(right[place == k].mean() - confidence[place == k].mean()) for k in set(place))
    np.testing.assert_allclose(found.error, error / 400)
    assert found.counts.sum() == 400


def test_evidences_are_sorted_and_failures_come_last():
    rows = [
        Evidence("b", -3.0, "converged", True),
        Evidence("none", None, "why", False),
        Evidence("a", -1.0, "converged", True),
    ]
    shown = evidence_table(rows).rows
    assert [row[:3] for row in shown] == [("a", "-1.000", "0.000"), ("b", "-3.000", "-2.000"), ("none", None, None)]


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    target = tmp_path / "page.html"
    write_whole(target, "first")
    with pytest.raises(UnicodeEncodeError):
        write_whole(target, "second \ud800")
    assert target.read_text(encoding="utf-8") == "first"
    assert list(tmp_path.iterdir()) == [target]
