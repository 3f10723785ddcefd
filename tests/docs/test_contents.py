"""The page that lists what exists lists exactly that."""

import re
from pathlib import Path

import pytest

import cavity
from cavity import baselines, distributed, factors, families, kernels, learned, models
from cavity._cli import app
from cavity.factors import Factor
from cavity.inference import methods, schedule
from cavity.inference.schedule import Schedule

PAGE = (Path(__file__).parents[2] / "docs" / "contents.md").read_text(encoding="utf-8")
DESIGN = (Path(__file__).parents[2] / "docs" / "design.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", PAGE, re.MULTILINE))


def listed(section):
    """Names in backticks, of a table those in its first column."""
    text = SECTIONS[section]
    rows = re.findall(r"^\| `([^`]+)`", text, re.MULTILINE)
    return set(rows or re.findall(r"`([^`]+)`", text))


def classes(module, base):
    """Public classes of a module that are of a kind."""
    return {name for name, own in vars(module).items() if isinstance(own, type) and issubclass(own, base)}


EXISTS = {
    "Methods": {name for name in cavity.__all__ if name in vars(methods) and name != "Method"},
    "Schedules": classes(schedule, Schedule) - {"Schedule"},
    "Integration": {"ClosedForm", "Quadrature", "Enumeration", "Importance"} & set(cavity.__all__),
    "Factors": classes(factors, Factor) | {"from_log_density", "from_log_z"},
    "Families": classes(families, families.Family) - {"Family"},
    "Kernels": {*classes(kernels, kernels.Kernel), *classes(kernels, kernels.Basis)} - {"Kernel", "Basis"},
    "Learned messages": {name for name in learned.__all__ if name.islower()},
    "Many machines": {name for name in distributed.__all__ if name.islower()},
    "Baselines": {name for name in baselines.__all__ if name.islower() and name != "gibbs_density"},
    "Models": {f"models.{name}" for name in models.__all__} | {"FactorGraph", "DiscreteGraph"},
    "Commands": {command.name or command.callback.__name__ for command in app.registered_commands},
    "Statuses": {str(status) for status in cavity.Status},
    "Estimators": set(cavity.PLACES["cavity.estimators"].split()),
}


@pytest.mark.parametrize("section", EXISTS)
def test_the_page_lists_what_exists(section):
    assert listed(section) == EXISTS[section]


@pytest.mark.parametrize("section", sorted(set(EXISTS) - {"Commands", "Statuses"}))
def test_what_the_page_lists_is_public(section):
    homes = (cavity, baselines, distributed, factors, families, kernels, learned, models)
    public = {name for home in homes for name in home.__all__}
    assert {name.removeprefix("models.") for name in listed(section)} <= public


def test_every_section_is_compared():
    assert set(SECTIONS) == set(EXISTS)


def test_every_public_name_is_on_the_page():
    named = set(re.findall(r"`(?:models\.)?(\w+)`", PAGE))
    helpers = {"Check", "Clusters", "Tree", "Cowell", "Method", "Problem", "SiteGroup", "Solution", "Status"}
    modules = {"factors", "families", "kernels", "learned", "models", "stepping"}
    others = {"exact", "max_product", "__version__"}  # infer is a command, too
    assert set(cavity.__all__) - named == helpers | modules | others


def test_the_design_page_lists_the_modules():
    listed = set(re.findall(r"^\| `(\w+)` \|", DESIGN, re.MULTILINE))
    assert listed == {path.parent.name for path in Path(cavity.__file__).parent.glob("*/__init__.py")}
