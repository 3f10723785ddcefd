"""Texts cut short or changed at random: what the readers of graphs must survive."""

import time

from hypothesis import strategies as st

from cavity.discrete import DiscreteGraph


def check_damaged(text, parse, data):
    """Cut a text or change some of its characters: a graph or a ValueError with a line, within a second."""
    letters = list(text[: data.draw(st.integers(0, len(text)))] if data.draw(st.booleans()) else text)
    for _ in range(data.draw(st.integers(0, 4)) if letters else 0):
        place = data.draw(st.integers(0, len(letters) - 1))
        letters[place] = data.draw(st.one_of(st.sampled_from('0123456789 -.en{}()";,|#/*'), st.characters()))
    start = time.perf_counter()
    try:
        graph, sentence = parse("".join(letters)), ""
    except ValueError as error:
        graph, sentence = DiscreteGraph(), str(error)
    assert sentence == "" or sentence.startswith("line ")
    assert len(list(graph)) == len(graph.factors)
    assert time.perf_counter() - start < 1
