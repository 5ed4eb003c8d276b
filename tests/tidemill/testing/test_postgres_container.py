"""The container variant: the same attributes as the server of our own, or None without an engine."""

import contextlib

import psycopg
import pytest

from tidemill.testing.postgres_container import ContainerServer, container_server

pytestmark = [pytest.mark.integration, pytest.mark.postgres]


def test_a_container_answers_or_there_is_none() -> None:
    with contextlib.ExitStack() as stack:
        server = container_server(stack)
        if server is None:
            return  # no Docker engine here: None is the documented answer
        with psycopg.connect(server.dsn) as connection:
            assert connection.execute("SHOW wal_level").fetchone() == ("logical",)


def test_the_connection_string_names_everything() -> None:
    server = ContainerServer(host="h", port=5, user="u", password="p", dbname="d")
    assert server.dsn == "host=h port=5 user=u password=p dbname=d"
