"""Words are cut from a text as `str.split` does, wherever they are asked for, without a list of all of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cavity.discrete.io import tokens
from cavity.discrete.io.tokens import Tokens, Words

TEXTS = st.text(st.sampled_from("ab1.-\x00\x7f \t\n\r\v\f\x1c\x1d\x1e\x1f"), max_size=60)


@given(TEXTS, st.data())
def test_words_are_those_of_split(text, data):
    wanted, words = text.split(), Words(text)
    assert len(words) == len(wanted)
    for k in data.draw(st.lists(st.integers(0, max(len(wanted) - 1, 0)), max_size=5)) if wanted else []:
        assert words[k] == wanted[k]
    with pytest.raises(IndexError):
        words[len(wanted)]


@pytest.mark.parametrize("step", [1, 2, 7])
def test_numbers_are_read_some_at_a_time(monkeypatch, step):
    monkeypatch.setattr(tokens, "STEP", step)
    numbers = np.arange(40) * 3
    own = Tokens("\n".join(map(str, numbers)))
    np.testing.assert_array_equal(own.array(range(40), "a number"), numbers)
    np.testing.assert_array_equal(own.array(range(5, 31), "a number", float), numbers[5:31])
    places = np.array([0, 1, 4, 20, 21, 22, 39])
    np.testing.assert_array_equal(own.array(places, "a number"), numbers[places])
    assert [own.integer(k, "a number") for k in (39, 0, 20)] == [117, 0, 60]


def test_digits_of_other_scripts_are_no_numbers():
    with pytest.raises(ValueError, match="line 2: expected a number; found '1٣'"):
        Tokens("1 2\n0 1٣ 4")
