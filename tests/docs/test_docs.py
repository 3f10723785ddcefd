"""Every ```python block of README.md and docs/ runs, page by page, and prints what the ```text block below it says."""

import contextlib
import io
import re
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def blocks(page):
    """(language, text, whether it follows the block before directly) of every fenced block."""
    source, end, found = page.read_text(encoding="utf-8"), 0, []
    for match in FENCE.finditer(source):
        found.append((match[1], match[2], not source[end : match.start()].strip()))
        end = match.end()
    return found


def agree(printed, promised):
    """The same words, and numbers that differ by no more than machines do."""
    assert NUMBER.sub("#", printed).split() == NUMBER.sub("#", promised).split()
    for ours, theirs in zip(NUMBER.findall(printed), NUMBER.findall(promised), strict=True):
        a, b = float(ours), float(theirs)
        whole = "." not in ours and "e" not in ours
        slack = max(2.0, 0.25 * abs(b)) if whole else 2e-3 + 0.01 * abs(b)
        assert abs(a - b) <= slack, (ours, theirs)


def test_the_pages_are_found():
    names = {page.name for page in PAGES}
    assert {"README.md", "start.md", "own-factor.md", "when-ep-fails.md"} <= names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_says_what_happens(page):
    assert page.read_text(encoding="utf-8").count("```") % 2 == 0
    namespace, printed = {"__name__": "page"}, None
    with jax.enable_x64(False):  # as users have it
        for language, text, follows in blocks(page):
            assert language in ("python", "text")
            if language == "text":
                if follows and printed is not None:
                    agree(printed, text)
                printed = None
                continue
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(text, str(page), "exec"), namespace)
            printed = output.getvalue()
