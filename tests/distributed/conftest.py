"""One local cluster of two processes for all tests here."""

from pathlib import Path

import pytest

from cavity import distributed


def pytest_collection_modifyitems(items):
    """Dask leaves sockets to the garbage collector, which says so."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


@pytest.fixture(scope="session")
def client():
    with distributed.local_client(2) as found:
        yield found
