"""The examples in the docstrings of public names run as users run them, and public names say what they take and return.

This holds for all that the reference lists, for the other public names of the packages in `COMPLETE`, and for those of
a module that the reference lists whole.
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


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype float64")
@pytest.mark.parametrize("found", NAMES)
def test_the_example_runs(found):
    examples = doctest.DocTestParser().get_doctest(inspect.getdoc(found), {}, found.__name__, None, None)
    assert examples.examples
    report = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(examples, out=report.append)
    assert not report, "".join(report)
