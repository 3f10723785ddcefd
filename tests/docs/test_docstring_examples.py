"""The examples in the docstrings of public names run as users run them, and public names say what they take and return.

This holds for all that the reference lists, for the other public names of the packages in `COMPLETE`, and for those of
a module that the reference lists whole. The public methods of contracts say what they take, return and raise as well.
"""

import ast
import doctest
import enum
import importlib
import inspect
import re
import textwrap
from pathlib import Path

import pytest

from cavity.factors import Factor
from cavity.families import Family
from cavity.inference.methods import Method
from cavity.inference.problem import SweepKernel
from cavity.inference.schedule import Schedule
from cavity.inference.update_rule import Projection, UpdateRule
from cavity.kernels import Basis, Kernel
from cavity.moments import Moments
from cavity.posteriors import Posterior

REFERENCE = Path(__file__).parents[2] / "docs" / "api.md"
#: modules whose public names all have an example and say what they take and return
COMPLETE = (
    "cavity.baselines",
    "cavity.distributed",
    "cavity.exact_inference",
    "cavity.factors",
    "cavity.families",
    "cavity.kernels",
    "cavity.learned",
    "cavity.moments",
    "cavity.reports",
)
#: base classes that others implement: their methods are written down once, here
CONTRACTS = (
    *(Basis, Factor, Family, Kernel, Method, Moments, Posterior),
    *(Projection, Schedule, SweepKernel, UpdateRule),
)


def public_names(module):
    """Classes and functions of this library among the public names of a module."""
    home = importlib.import_module(module)
    for name in home.__all__:
        found = getattr(home, name)
        if callable(found) and found.__module__.startswith("cavity"):
            yield name, found


def listed_names():
    """What the reference lists of this library: classes, functions, and modules listed whole."""
    text = REFERENCE.read_text(encoding="utf-8")
    for home, name in re.findall(r"^::: (cavity[.\w]*)\.(\w+)$", text, re.MULTILINE):
        yield f"{home}.{name}", getattr(importlib.import_module(home), name)


def documented_names():
    """All that this test is about, each once, whatever the names that it has."""
    found = dict(listed_names())
    modules = [*COMPLETE, *(value.__name__ for value in found.values() if inspect.ismodule(value))]
    found |= {f"{module}.{name}": value for module in modules for name, value in public_names(module)}
    first = {id(value): name for name, value in reversed(found.items())}
    return [pytest.param(value, id=name) for name, value in found.items() if first[id(value)] == name]


NAMES = documented_names()


def contract_methods():
    """The public methods of the contracts, those that they inherit from a base of this library included."""
    for contract in CONTRACTS:
        homes = [home for home in contract.__mro__ if home.__module__.startswith("cavity")]
        for name, found in ((name, found) for home in homes for name, found in vars(home).items()):
            method = inspect.unwrap(getattr(found, "__func__", found))
            if inspect.isfunction(method) and (name == "__call__" or not name.startswith("_")):
                yield pytest.param(method, id=f"{contract.__name__}.{name}")


METHODS = list(contract_methods())


def parameters(found):
    """What a call takes, by name."""
    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    if inspect.ismodule(found) or (inspect.isclass(found) and issubclass(found, Exception | enum.Enum)):
        return []
    return [own.name for own in inspect.signature(found).parameters.values() if own.kind in kinds]


def said_of_parameters(found):
    """Where a docstring describes parameters; the fields that a class inherits are described where they are defined."""
    homes = found.__mro__ if inspect.isclass(found) else (found,)
    texts = [inspect.cleandoc(home.__doc__) for home in homes if home.__module__.startswith("cavity") and home.__doc__]
    sections = [text.split(title)[1] for text in texts for title in ("Args:\n", "Attributes:\n") if title in text]
    return "\n".join(section.split("\n\n")[0] for section in sections)


def refuses(found):
    """Whether the call itself raises, not only what it calls."""
    known = vars(found) if inspect.isclass(found) else {}
    bodies = [known[name] for name in ("__init__", "__post_init__") if name in known]
    bodies += [inspect.unwrap(found)] if inspect.isfunction(found) else []
    # What a dataclass or a protocol makes for itself is not written here.
    written = [
        body for body in bodies if body.__module__.startswith("cavity") and Path(inspect.getfile(body)).is_file()
    ]
    texts = [textwrap.dedent(inspect.getsource(body)) for body in written]
    return any(isinstance(node, ast.Raise) for text in texts for node in ast.walk(ast.parse(text)))


def test_public_names_are_found():
    assert len(NAMES) > 150
    for module in COMPLETE:
        home = importlib.import_module(module)
        assert len(set(home.__all__)) == len(home.__all__) and all(hasattr(home, name) for name in home.__all__)


@pytest.mark.parametrize("found", NAMES)
def test_public_names_say_what_they_take_and_return(found):
    text = inspect.getdoc(found)
    assert text is not None and "Examples:\n" in text
    assert [name for name in parameters(found) if f"    {name}: " not in said_of_parameters(found)] == []
    if inspect.isfunction(found):
        answers = inspect.signature(found).return_annotation
        assert ("Returns:\n" in text) == (answers not in (None, "None"))
    assert ("Raises:\n" in text) >= refuses(found)


def test_the_methods_of_contracts_are_found():
    assert len(METHODS) > 80
    assert {"Family.entropy", "Kernel.with_theta", "Basis.from_arrays"} <= {str(own.id) for own in METHODS}


@pytest.mark.parametrize("method", METHODS)
def test_the_methods_of_contracts_say_what_they_take_and_return(method):
    text = inspect.cleandoc(method.__doc__)
    signature = inspect.signature(method)
    taken = [str(own).partition(":")[0] for own in list(signature.parameters.values())[1:]]
    assert ("Args:\n" in text) == bool(taken)
    described = re.findall(r"^    (\*?\w+): ", said_of_parameters(method), re.MULTILINE)
    assert described == taken
    assert ("Returns:\n" in text) == (signature.return_annotation not in (None, "None"))
    assert ("Raises:\n" in text) >= refuses(method)


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype float64")
@pytest.mark.parametrize("found", NAMES)
def test_the_example_runs(found):
    examples = doctest.DocTestParser().get_doctest(inspect.getdoc(found), {}, found.__name__, None, None)
    assert examples.examples
    report = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(examples, out=report.append)
    assert not report, "".join(report)
