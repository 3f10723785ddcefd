"""What keeps the code base readable: its size, names that mean one thing, no imports hidden inside functions."""

import ast
import collections
import importlib
import inspect
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "cavity"
DOCS = Path(__file__).parents[1] / "docs"
FILES = sorted(ROOT.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
#: packages that are optional, or slow and needed by one call alone: imported where they are used
OPTIONAL = {"arviz", "dask", "distributed", "matplotlib", "networkx", "pandas", "pgmpy", "pyarrow", "sklearn"}
DOCUMENTED = (ast.Module, ast.FunctionDef, ast.ClassDef)
#: what every package names in its `__all__`; the package of plumbing is private
PACKAGES = [
    ".".join(("cavity", *path.parent.relative_to(ROOT).parts))
    for path in FILES
    if path.name == "__init__.py" and path.parent.name != "_core"
]
SILENT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def docstring_lines(tree):
    """Line numbers of all docstrings."""
    lines = set()
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            lines.update(range(first.lineno, first.end_lineno + 1))
    return lines


def code_lines(path):
    """How many lines are neither docstrings, comments nor blank."""
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type not in SILENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstring_lines(TREES[path]))


def shared_names(kind):
    """Names of top-level functions or classes that more than one module defines."""
    places = collections.defaultdict(list)
    for path, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, kind):
                places[node.name].append(str(path.relative_to(ROOT)))
    return {name: found for name, found in places.items() if len(found) > 1}


def test_the_library_stays_small():
    assert sum(map(code_lines, FILES)) <= 24_800


def test_a_file_is_one_idea_and_at_most_400_lines():
    long = {str(path): count for path in FILES if (count := len(path.read_text(encoding="utf-8").splitlines())) > 400}
    assert not long


@pytest.mark.parametrize(("kind", "allowed"), [(ast.FunctionDef, 25), (ast.ClassDef, 8)])
def test_a_name_means_one_thing(kind, allowed):
    found = shared_names(kind)
    assert len(found) <= allowed, found


def test_no_class_has_a_constant_hash():
    found = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for own in node.body
        if isinstance(own, ast.FunctionDef) and own.name == "__hash__"
        if not any(isinstance(name, ast.Name) and name.id == "self" for name in ast.walk(own))
    ]
    assert not found


def test_imports_inside_functions_are_of_optional_packages_only():
    """But for the front door, which loads what is asked for."""
    found = []
    for path, tree in TREES.items():
        if path == ROOT / "__init__.py":
            continue
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef):
                for node in ast.walk(function):
                    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                    names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                    found += [f"{path.relative_to(ROOT)}: {n}" for n in names if n.split(".")[0] not in OPTIONAL]
    assert not found


def test_functions_name_the_types_of_their_parameters_and_results():
    untyped = []
    for path, tree in TREES.items():
        for own in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            given = [*own.args.posonlyargs, *own.args.args, *own.args.kwonlyargs, own.args.vararg, own.args.kwarg]
            bare = [arg.arg for arg in given if arg and arg.annotation is None and arg.arg not in ("self", "cls")]
            if bare or own.returns is None:
                untyped.append(f"{path.relative_to(ROOT)}: {own.name} {bare}")
    assert not untyped


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_says_what_is_public(package):
    home = importlib.import_module(package)
    assert len(set(home.__all__)) == len(home.__all__)
    assert [name for name in home.__all__ if not hasattr(home, name)] == []
    assert [name for name in home.__all__ if name.startswith("_") and name != "__version__"] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_function_hides_the_module_of_its_name(package):
    home = importlib.import_module(package)
    modules = [path.stem for path in Path(str(home.__file__)).parent.glob("*.py")]
    assert [name for name in modules if inspect.isfunction(getattr(home, name, None))] == []


def test_what_the_reference_lists_is_public():
    listed = re.findall(r"^::: (cavity[.\w]*)\.(\w+)$", (DOCS / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(listed) > 150
    hidden = [(home, name) for home, name in listed if name not in importlib.import_module(home).__all__]
    assert hidden == []


def test_the_stable_interface_is_small_enough_to_learn():
    """Of the packages the reference calls stable; a name counts once, wherever it can be imported from."""
    stable = re.search(
        r"\*\*Stable\*\*.*?\*\*Provisional\*\*", (DOCS / "api.md").read_text(encoding="utf-8"), re.DOTALL
    )
    assert stable is not None
    packages = re.findall(r"`(cavity[.\w]*)`", stable.group())
    assert len(packages) == 10
    named = {
        id(getattr(importlib.import_module(home), name))
        for home in packages
        for name in importlib.import_module(home).__all__
    }
    assert len(named) <= 136
