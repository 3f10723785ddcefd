"""For tests of a question that may be answered rightly or refused: a refusal has to name what is wrong."""

from collections.abc import Callable
from typing import Any


def unless_refused(call: Callable[[], Any], naming: str) -> Any:
    """What the call gives; None where it is refused by a sentence that has this word in it."""
    try:
        return call()
    except (TypeError, ValueError) as error:
        sentence = str(error)
    assert naming in sentence, f"refused without naming {naming}: {sentence}"
    return None


def assert_refused(call: Callable[[], Any], naming: str) -> None:
    """The call is refused by a sentence that has this word in it."""
    found = unless_refused(call, naming)
    assert found is None, f"accepted: {found!r}"
