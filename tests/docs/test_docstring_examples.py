"""The examples in the docstrings of public names run as users run them, and public names say what they take and return.

A module joins `COMPLETE` once all its public names comply; what is in the list stays complete.
"""

import doctest
import importlib
import inspect

import pytest

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


NAMES = [pytest.param(found, id=f"{module}.{name}") for module in COMPLETE for name, found in public_names(module)]


def parameters(found):
    """What a call takes, by name."""
    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    if inspect.isclass(found) and issubclass(found, Exception):
        return []
    return [own.name for own in inspect.signature(found).parameters.values() if own.kind in kinds]


def test_public_names_are_found():
    assert len(NAMES) > 90
    for module in COMPLETE:
        home = importlib.import_module(module)
        assert len(set(home.__all__)) == len(home.__all__) and all(hasattr(home, name) for name in home.__all__)


@pytest.mark.parametrize("found", NAMES)
def test_public_names_say_what_they_take_and_return(found):
    text = inspect.getdoc(found)
    assert text is not None and "Examples:\n" in text
    sections = [part for part in ("Args:\n", "Attributes:\n") if part in text]
    names = parameters(found)
    assert bool(sections) >= bool(names)
    if names:
        described = text.split(sections[0])[1].split("\n\n")[0]
        assert [name for name in names if f"    {name}: " not in described] == []
    if inspect.isfunction(found):
        answers = inspect.signature(found).return_annotation
        assert ("Returns:\n" in text) == (answers not in (None, "None"))


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype float64")
@pytest.mark.parametrize("found", NAMES)
def test_the_example_runs(found):
    examples = doctest.DocTestParser().get_doctest(inspect.getdoc(found), {}, found.__qualname__, None, None)
    assert examples.examples
    report = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(examples, out=report.append)
    assert not report, "".join(report)
