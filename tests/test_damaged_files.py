"""Hundreds of damaged files of every format: read rightly or refused by name, nothing else, and soon."""

import damaged_files
import pytest

#: changes of every format; those of whole models take longest
COUNTS = {"network .uai": 400, "network .fg": 400, "network .bif": 400, "evidence": 400, "table .csv": 200,
          "model, bytes": 200, "model, values": 250, "fit on shards": 300, "learned operator": 40}  # fmt: skip


@pytest.fixture(scope="module")
def formats(tmp_path_factory):
    return damaged_files.formats(tmp_path_factory.mktemp("models"))


@pytest.mark.filterwarnings("ignore")  # of a model that was changed
@pytest.mark.parametrize("name", COUNTS)
def test_a_damaged_file_is_read_rightly_or_refused_by_name(formats, tmp_path, name):
    tally = damaged_files.tried(formats[name], tmp_path, COUNTS[name])
    assert not tally.examples, tally.examples
    assert tally.counts["refused"] > COUNTS[name] // 10
