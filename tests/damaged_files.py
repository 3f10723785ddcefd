"""Files changed at random, and what may become of them: a right answer, or one sentence that names the file.

What is accepted is compared with a reading that shares no code with the library's: the words of the text, the cells of
the table. `tests/test_damaged_files.py` tries hundreds of changes, `benchmarks/fuzz_files.py` thousands.
"""

import collections
import contextlib
import copy
import csv
import io
import json
import math
import re
import signal
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from fitted_objects import on_shards
from sklearn.gaussian_process import kernels as sk

import cavity as cv
from cavity import distributed
from cavity._cli.errors import one_sentence
from cavity._cli.preprocessing import Reading, read_labelled
from cavity._storage.csv_table import read_sheet
from cavity._storage.npz import HEADER

#: seconds that one file may take
SECONDS = 10
#: where arrays of another length are other programs, which are compiled first
COMPILED = 60
#: what a sentence may be long: the path, the place and what was found
LONGEST = 700
OUTCOMES = ("accepted", "refused", "wrong", "crashed", "hung")


class Hang(BaseException):
    """A file took longer than it may."""


class Format(NamedTuple):
    """change: a file, changed at random. read: what the library makes of it. judge: fails where that is wrong."""

    suffix: str
    change: Callable[[np.random.Generator], bytes]
    read: Callable[[Path], Any]
    judge: Callable[[Any, Path], None]
    seconds: float = SECONDS


class Tally(NamedTuple):
    """How many files ended how, and an example of each bad end."""

    counts: collections.Counter
    examples: dict[str, tuple[int, str]]


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise `Hang` in a block that takes longer."""

    def ring(number: int, frame: Any) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def outcome(form: Format, path: Path) -> tuple[str, str]:
    """How a file ends, one of `OUTCOMES`, and what was said."""
    try:
        with at_most(form.seconds):
            found = form.read(path)
    except ValueError as error:
        said = str(error)
        whole = path.name in said and "\n" not in said and len(said) < LONGEST
        return ("refused", said) if whole else ("crashed", f"not a sentence: {said}")
    except Hang:
        return "hung", ""
    except Exception as error:
        return "crashed", repr(error)
    try:
        form.judge(found, path)
    except Exception as error:  # also where the plain reading finds something that the library should have refused
        return "wrong", repr(error)
    return "accepted", ""


def tried(form: Format, folder: Path, count: int, first: int = 0) -> Tally:
    """Files of the seeds from `first` on."""
    tally = Tally(collections.Counter(), {})
    path = folder / f"damaged{form.suffix}"
    for seed in range(first, first + count):
        path.write_bytes(form.change(np.random.default_rng(seed)))
        end, said = outcome(form, path)
        tally.counts[end] += 1
        if end not in ("accepted", "refused"):
            tally.examples.setdefault(end, (seed, said))
    return tally


# ------------------------------------------------------------ texts

LETTERS = list('0123456789 -+.eE_\n\t\r{}()[]";,|#/*=@\x00\x1f\x85 \N{ARABIC-INDIC DIGIT ONE}\N{BYTE ORDER MARK}é')
WORDS = ["0", "1", "-1", "2", "1e999", "nan", "inf", "-0", "1e-320", "99999999999999999999", "134217728", "1_0", "0x1",
         "4294967296", "1" * 5000, "MARKOV", "default", "table", "probability", "variable", "property",
         "=1+1"]  # fmt: skip


def changed_text(text: str, rng: np.random.Generator) -> str:
    """A text with some letters or words replaced, left out, doubled, swapped, or cut off."""
    for _ in range(rng.integers(1, 5)):
        if not text:
            break
        place, other = rng.integers(0, len(text), 2)
        match rng.integers(0, 7):
            case 0:
                text = text[:place] + str(rng.choice(LETTERS)) + text[place + 1 :]
            case 1:
                text = text[:place] + text[place + rng.integers(1, 4) :]
            case 2:
                text = text[:place] + str(rng.choice(LETTERS)) + text[place:]
            case 3:
                words = re.split(r"(\s+)", text)
                words[2 * rng.integers(0, (len(words) + 1) // 2)] = str(rng.choice(WORDS))
                text = "".join(words)
            case 4:
                low, high = sorted((place, other))
                text = text[:high] + text[low:high] + text[high:]
            case 5:
                lines = text.split("\n")
                a, b = rng.integers(0, len(lines), 2)
                lines[a], lines[b] = lines[b], lines[a]
                text = "\n".join(lines)
            case _:
                text = text[:place] if rng.random() < 0.3 else text
    return text


def text_changes(*examples: str) -> Callable[[np.random.Generator], bytes]:
    """Changes of texts, and of the bytes they are written in."""

    def change(rng: np.random.Generator) -> bytes:
        data = changed_text(examples[rng.integers(len(examples))], rng).encode()
        if data and rng.random() < 0.05:
            place = rng.integers(0, len(data))
            data = data[:place] + bytes([rng.integers(0, 256)]) + data[place + 1 :]
        return data

    return change


UAI = """BAYES
3
2 3 2
4
1 0
2 1 0
0
2 0 2

2
 0.25 0.75
6
 .1 .2 .7 .6 .4 0
1
 2.5
4
 0 1e-3 7 8
"""
FG = "# a pair\n3\n\n2\n0 7\n2 3\n4\n0 1\n1 4\n2 2\n5 6.5\n\n1\n7\n3\n1\n2 .25\n\n0\n1\n0 3\n"
BIF = """network "two" { property version 1; }
variable fuel { type discrete [ 2 ] { empty, full }; }
variable gauge { type discrete [ 3 ] { low, half, high }; property position = (1, 2); }
probability ( fuel ) { table 0.25, 0.75; }
probability ( gauge | fuel ) { (empty) 0.9, 0.1, 0.0; default 0.2, 0.3, 0.5; } // the end
"""
EVIDENCE = ("2\n0 1\n2 3\n", "1\n2 0 1 2 3\n", "0\n")


def plain_tables(graph: Any) -> tuple[list[int], list[tuple[list[int], np.ndarray]]]:
    """Numbers of states, and scopes with flat weights."""
    return graph.cardinalities.tolist(), [(list(own.scope), np.exp(own.log_values).ravel()) for own in graph]


def assert_same_tables(found: Any, wanted: Any) -> None:
    """The same variables, and the same factors in the same order."""
    assert found[0] == wanted[0], "other numbers of states"
    assert len(found[1]) == len(wanted[1]), "another number of factors"
    for (scope, values), (other, numbers) in zip(found[1], wanted[1], strict=True):
        assert scope == other, "another scope"
        np.testing.assert_allclose(values, numbers, rtol=1e-12)


def judge_uai(found: Any, path: Path) -> None:
    """The graph is what its words say, one after another."""
    words = iter(path.read_text(encoding="utf-8-sig").split()[1:])
    states = [int(next(words)) for _ in range(int(next(words)))]
    scopes = [[int(next(words)) for _ in range(int(next(words)))] for _ in range(int(next(words)))]
    tables = [[float(next(words)) for _ in range(int(next(words)))] for _ in scopes]
    assert next(words, None) is None, "words are left"
    assert all(len(own) == math.prod(states[v] for v in scope) for own, scope in zip(tables, scopes, strict=True))
    assert all(0 <= weight < math.inf for own in tables for weight in own), "an impossible weight"
    assert_same_tables(plain_tables(found), (states, list(zip(scopes, tables, strict=True))))


def judge_fg(found: Any, path: Path) -> None:
    """The graph is what its words say; the first variable of a factor runs fastest."""
    words = iter(re.sub("#.*", "", path.read_text(encoding="utf-8-sig")).split())
    states: dict[int, int] = {}
    factors = []
    for _ in range(int(next(words))):
        length = int(next(words))
        scope = [int(next(words)) for _ in range(length)]
        shape = [int(next(words)) for _ in scope]
        states |= dict(zip(scope, shape, strict=True))
        weights = np.zeros(math.prod(shape))
        for _ in range(int(next(words))):
            place = int(next(words))
            weights[place] = float(next(words))
        factors.append((scope, weights.reshape(shape, order="F").ravel()))
    assert next(words, None) is None, "words are left"
    number = {label: k for k, label in enumerate(sorted(states))}
    wanted = [([number[label] for label in scope], weights) for scope, weights in factors]
    assert_same_tables(plain_tables(found), ([states[label] for label in sorted(states)], wanted))


def judge_bif(graph: Any, path: Path) -> None:
    """A Bayesian network: a distribution of every variable for all states of its parents, with the file's numbers."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", path.read_text(encoding="utf-8-sig"), flags=re.DOTALL)
    numbers = {0.0, *(float(word) for word in re.findall(r"[-+.\w]+", text) if is_float(word))}
    children = [own.scope[0] for own in graph]
    assert sorted(children) == list(range(len(graph.variables))), "a variable without a table, or with two"
    for own in graph:
        weights = np.exp(own.log_values)
        assert (abs(weights.sum(axis=0) - 1) < 0.051).all(), "not a distribution"
        assert all(min(abs(weight - one) for one in numbers) < 1e-12 for weight in weights.ravel()), "a new number"
    for number in range(len(graph.variables)):
        assert graph.variables.name(number) in text, "a new name"


def is_float(word: str) -> bool:
    """Whether Python reads a number in it."""
    try:
        return math.isfinite(float(word))
    except ValueError:
        return False


CARDINALITIES = [2, 3, 4]


def read_evidence(path: Path) -> dict[int, int]:
    """The evidence of a graph of three variables."""
    return cv.DiscreteGraph.read("MARKOV\n3\n2 3 4\n0\n", evidence=path).evidence


def judge_evidence(found: dict[int, int], path: Path) -> None:
    """Pairs of a variable and one of its states, each variable once."""
    words = [int(word) for word in path.read_text(encoding="utf-8-sig").split()]
    body = words[1 + (len(words) % 2 == 0) :] if words else []
    pairs = list(zip(body[::2], body[1::2], strict=True))
    assert found == dict(pairs) and len(found) == len(pairs) == (words[-1 - len(body)] if words else 0)
    assert all(0 <= state < CARDINALITIES[variable] for variable, state in pairs)


# ------------------------------------------------------------ tables

TABLE = "id,a,b,colour,y\n" + "".join(
    f"{k},{k % 7 - 3.5},{1e3 + 0.25 * k},{('red', 'blue', 'green')[k % 3]},{('no', 'yes')[k % 5 > 1]}\n"
    for k in range(1, 16)
)


def read_table(path: Path) -> Any:
    """A labelled table, and the matrix that its recipe makes of it again."""
    try:
        found = read_labelled(path, Reading("y", ["colour"], ["id"], "mean", True, ","))
        return *found, found[0].matrix(read_sheet(path))
    except ValueError as error:
        raise ValueError(one_sentence(error)) from error  # as the command says it


def judge_table(found: Any, path: Path) -> None:
    """Columns of numbers are what Python's csv and float say of their cells, standardised; labels are the cells."""
    recipe, sheet, X, y, _, again = found
    text = path.read_bytes().decode("utf-8-sig")
    rows = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text, newline=""))]
    names, *rows = [row for row in rows if any(row)]
    assert len(rows) == len(X) == len(y) and np.isfinite(X).all() and (abs(X) < 1e100).all()
    for place, name in enumerate(recipe.features):
        if name in names and name != "colour":
            cells = [row[names.index(name)] for row in rows]
            known = np.array([is_float(cell) for cell in cells])
            values = np.array([float(cell) for cell, own in zip(cells, known, strict=True) if own])
            column, size = X[known, place], max(1.0, float(abs(values).max()))
            shift, scale = values.mean(), (values / size).std() * size or 1.0
            np.testing.assert_allclose(column * scale + shift, values, rtol=1e-9, atol=1e-9 * size)
    labels = [row[names.index("y")] for row in rows]
    assert all(own == cell or float(own) == float(cell) for own, cell in zip(y, labels, strict=True))
    assert sheet.columns == tuple(name for name in names if name)
    np.testing.assert_array_equal(again, X)


# ------------------------------------------------------------ model files

ROWS = np.random.default_rng(7).normal(size=(12, 2))
SIGNS = np.where(ROWS[:, 0] > 0, "yes", "no")
KINDS = np.array(["a", "b", "c"])[np.digitize(ROWS[:, 0], [-0.5, 0.5])]
#: where predictions are asked for: near and far
POINTS = np.vstack([ROWS[:3], [[1e3, -1e3]]])


def model_files(folder: Path) -> list[Path]:
    """Files of all estimators, models and likelihoods that can be saved."""
    kernel = cv.kernels.RBF([1.0, 2.0]) + cv.kernels.White(0.1)
    y, counts = ROWS[:, 0] + 3.0, np.arange(12) % 4
    fitted = [
        cv.GPClassifier(kernel, label_noise=0.1, optimize=False).fit(ROWS, SIGNS),
        cv.BayesPointMachine(likelihood="probit", label_noise=0.05).fit(ROWS, KINDS),
        cv.BayesPointMachine(likelihood="probit", degree=3, prior_variance=2.0).fit(ROWS[:8], SIGNS[:8]),
        cv.GPRegressor(2.0 * sk.Matern(1.5, nu=2.5), noise=0.4, optimize=False, method=cv.EP(damping=0.5)).fit(ROWS, y),
        cv.GPRegressor(cv.kernels.RBF(1.0), noise=0.4, approximation="features", rank=8, optimize=False).fit(ROWS, y),
        cv.GPRegressor(cv.kernels.RBF(1.0), likelihood="poisson", approximation="inducing", rank=4, optimize=False).fit(
            ROWS, counts
        ),
        cv.GPOrdinal(cv.kernels.RBF(1.0), thresholds=[-1.0, 1.0], order=["a", "b", "c"], optimize=False).fit(
            ROWS, KINDS
        ),
    ]
    paths = [folder / f"model{number}.npz" for number in range(len(fitted))]
    for model, path in zip(fitted, paths, strict=True):
        model.save(path)
    return paths


def asked(model: Any) -> list[np.ndarray]:
    """What a model predicts at the points."""
    if isinstance(model, cv.GPRegressor):
        return list(model.predict(POINTS, return_std=True))
    return [model.predict_proba(POINTS), model.predict(POINTS)]


def read_model(path: Path) -> tuple[Any, list[np.ndarray]]:
    """The model and its predictions."""
    model = cv.load(path)
    try:
        return model, asked(model)
    except ValueError as error:  # where the numbers of a model overflow, a sentence says so when it is asked
        raise ValueError(f"{path.name}: {error}") from error


def judge_model(answer: Any, path: Path) -> None:
    """Predictions are numbers, standard deviations positive, probabilities sum to one and labels are classes."""
    model, found = answer
    assert all(len(own) == len(POINTS) for own in found), "another number of predictions"
    if isinstance(model, cv.GPRegressor):
        assert not np.isnan(found[0]).any() and (found[1] >= 0).all(), f"nonsense: {found}"
    else:
        assert found[0].shape == (len(POINTS), len(model.classes_)), "another number of classes"
        assert (found[0] >= 0).all() and (abs(found[0].sum(axis=1) - 1) < 1e-9).all(), f"no probabilities: {found[0]}"
        assert set(found[1].tolist()) <= set(model.classes_.tolist()), "a new label"


def byte_changes(paths: list[Path]) -> Format:
    """Files in which some bytes are others, or are missing: what is accepted predicts the same bits."""
    contents = [path.read_bytes() for path in paths]
    known = [[own.tolist() for own in asked(cv.load(path))] for path in paths]

    def change(rng: np.random.Generator) -> bytes:
        data = bytearray(contents[rng.integers(len(contents))])
        for _ in range(rng.integers(1, 4)):
            place = int(rng.integers(0, len(data)))
            match rng.integers(0, 4):
                case 0:
                    data[place] = rng.integers(0, 256)
                case 1:
                    data[place] ^= 1 << int(rng.integers(0, 8))
                case 2:
                    del data[place : place + int(rng.integers(1, 9))]
                case _:
                    data[place:place] = data[: int(rng.integers(1, 9))] if rng.random() < 0.9 else b""
        return bytes(data)

    def judge(answer: Any, path: Path) -> None:
        assert [own.tolist() for own in answer[1]] in known, "other predictions"

    return Format(".npz", change, read_model, judge)


# fmt: off
ODD: list[Any] = [None, True, -1, 0, 1, 5, 2**70, 1e300, -1e-300, math.nan, math.inf, "", "nan", "text", "\ud800", [],
                  {}, [1.0, 2.0], [[1.0]], {"class": "RBF"}, {"tuple": [1]}, {"kernel": {"class": "White"}}]
# fmt: on


def changed_header(header: Any, rng: np.random.Generator) -> None:
    """One entry, anywhere in a header, becomes something else, is left out or doubled."""
    places, open_ = [], [header]
    while open_:
        held = open_.pop()
        for key in list(held) if isinstance(held, dict) else range(len(held)):
            places.append((held, key))
            if isinstance(held[key], dict | list):
                open_.append(held[key])
    held, key = places[rng.integers(len(places))]
    match rng.integers(0, 5):
        case 0:
            del held[key]
        case 1 if isinstance(held[key], int | float):
            held[key] = float(rng.choice([-1.0, 0.0, 1e200, 1e-200, 2.0])) * held[key]
        case 2 if isinstance(held[key], list):
            held[key] = held[key] * int(rng.integers(0, 3))
        case _:
            held[key] = copy.deepcopy(ODD[rng.integers(len(ODD))])


def changed_array(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """An array with other entries, another shape, or another type."""
    if array.size and array.dtype.kind == "f" and rng.random() < 0.5:
        array = array.copy()
        place = tuple(int(rng.integers(0, n)) for n in array.shape)
        array[place] = rng.choice([np.nan, np.inf, -1.0, 0.0, 1e300, -1e150, 1e-300])
        return array
    numeric = array.dtype.kind in "biuf"
    match rng.integers(0, 8):
        case 0 if numeric:
            return array * rng.choice([np.nan, -1.0, 0.0, 1e200, 2.0])
        case 1:
            return array[: len(array) // 2] if array.ndim else array[None]
        case 2:
            return np.concatenate([array, array]) if array.ndim else array
        case 3:
            return array.T[None] if rng.random() < 0.5 else array.ravel()
        case 4:
            return array.astype(str)
        case 5 if numeric:
            with np.errstate(invalid="ignore"):
                return array.astype(rng.choice(["?", "i8", "f2", "c16", "S4"]))
        case 6:
            return array[::-1] if array.ndim else array
        case _:
            return np.zeros(rng.integers(0, 3, int(rng.integers(0, 4))))


def structured_changes(paths: list[Path]) -> Format:
    """Well-formed files that say something else."""

    def change(rng: np.random.Generator) -> bytes:
        with np.load(paths[rng.integers(len(paths))]) as file:
            members = dict(file)
        content = json.loads(members.pop(HEADER).tobytes())
        for _ in range(rng.integers(1, 3)):
            if rng.random() < 0.5:
                inner = content.get("header") if rng.random() < 0.95 else None
                changed_header(inner if inner and isinstance(inner, dict | list) else content, rng)
            elif members:
                name = sorted(members)[rng.integers(len(members))]
                members[name] = changed_array(members[name], rng)
            if members and rng.random() < 0.05:
                members.pop(sorted(members)[rng.integers(len(members))])
                content["arrays"] = list(members)
        text = json.dumps(content).encode()
        members[HEADER] = np.frombuffer(text, np.uint8)
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for name, array in members.items():
                with archive.open(f"{name}.npy", "w") as member:
                    np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
        return file.getvalue()

    return Format(".npz", change, read_model, judge_model)


# ------------------------------------------------------------ results on shards, learned operators


def shard_file(folder: Path) -> Path:
    """A fit of two weights on three shards."""
    on_shards().save(folder / "shards.npz")
    return folder / "shards.npz"


def read_fit(path: Path) -> Any:
    """The fit, and what its model predicts."""
    found = distributed.load(path)
    return found, found.model().predict(POINTS)["probability"]


def judge_fit(answer: Any, path: Path) -> None:
    """Of numbers, and of as many rows as it has shards."""
    found, predicted = answer
    assert predicted.shape == (len(POINTS),) and ((predicted >= 0) & (predicted <= 1)).all(), f"nonsense: {predicted}"
    assert len(found.rows) == len(found.contributions) and np.isfinite(found.mean).all()
    assert (np.linalg.eigvalsh(found.covariance) > 0).all()


def learned_problem(factor: Any) -> Any:
    return cv.models.latent_gaussian(np.array([1.0, -1.0, 1.0]), factor, kernel_matrix=np.eye(3) + 0.5)


def operator_file(folder: Path) -> Path:
    """What was learned of a likelihood with a density."""
    factor = cv.learned.just_in_time(cv.factors.Logistic(), oracle=cv.Quadrature())
    cv.infer(learned_problem(factor), cv.EP())
    factor.save(folder / "operator.npz")
    return folder / "operator.npz"


def read_operator(path: Path) -> Any:
    """The operator in use; a saved one is compared with its factor before the first sweep."""
    factor = cv.learned.load(path, cv.factors.Logistic(), oracle=cv.Quadrature())
    try:
        return cv.infer(learned_problem(factor), cv.EP(max_sweeps=3)), factor.report()
    except ValueError as error:  # one of another kind of sites is known by its use
        raise ValueError(f"{path.name}: {error}") from error


def judge_operator(answer: Any, path: Path) -> None:
    """Numbers, and counts that can be."""
    solution, report = answer
    assert np.isfinite(solution.q.mean).all() and np.isfinite(solution.log_evidence), solution.q.mean
    assert min(report.queries, report.labels, report.audits, report.refusals) >= 0


def formats(folder: Path) -> dict[str, Format]:
    """All formats by name. folder: where files of fitted models can be kept."""
    paths = model_files(folder)
    return {
        "network .uai": Format(".uai", text_changes(UAI), cv.DiscreteGraph.read, judge_uai),
        "network .fg": Format(".fg", text_changes(FG), cv.DiscreteGraph.read, judge_fg),
        "network .bif": Format(".bif", text_changes(BIF), cv.DiscreteGraph.read, judge_bif),
        "evidence": Format(".evid", text_changes(*EVIDENCE), read_evidence, judge_evidence),
        "table .csv": Format(".csv", text_changes(TABLE), read_table, judge_table),
        "model, bytes": byte_changes(paths),
        "model, values": structured_changes(paths),
        "fit on shards": structured_changes([shard_file(folder)])._replace(read=read_fit, judge=judge_fit),
        "learned operator": structured_changes([operator_file(folder)])._replace(
            read=read_operator, judge=judge_operator, seconds=COMPILED
        ),
    }
