"""Clients: the user's own is left alone, bad ones are refused."""

import pytest

from cavity.distributed.clients import client_or_local, local_client


def test_a_client_that_was_handed_in_stays_open(client):
    with client_or_local(client) as found:
        assert found is client
    assert client.status == "running"


def test_workers_have_one_thread_each_and_those_asked_for(client):
    assert list(client.nthreads().values()) == [1, 1]


@pytest.mark.parametrize("workers", [0, 1.5, "two"])
def test_a_wrong_number_of_workers_is_refused(workers):
    with pytest.raises(ValueError, match="workers must be a whole number"), local_client(workers):
        pass


def test_what_is_no_client_is_refused():
    with pytest.raises(TypeError, match=r"client must be a distributed\.Client"), client_or_local("here"):  # type: ignore[arg-type]
        pass
