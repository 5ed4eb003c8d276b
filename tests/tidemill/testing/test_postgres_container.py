"""The container variant: the same attributes as the server of our own, or None without an engine."""

import contextlib
from pathlib import Path

import psycopg
import pytest

from tidemill.testing.postgres_container import IMAGE_VARIABLE, ContainerServer, container_server
from tidemill.testing.postgres_server import PostgresServerError

pytestmark = [pytest.mark.integration, pytest.mark.postgres]


def test_a_container_answers_or_there_is_none() -> None:
    with contextlib.ExitStack() as stack:
        server = container_server(stack)
        if server is None:
            return  # no Docker engine here: None is the documented answer
        with psycopg.connect(server.dsn) as connection:
            assert connection.execute("SHOW wal_level").fetchone() == ("logical",)


def test_no_container_where_one_is_asked_for_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    with contextlib.ExitStack() as stack:
        assert container_server(stack, {}) is None
        with pytest.raises(PostgresServerError, match=f"^no container of {IMAGE_VARIABLE}=mine: ") as error:
            container_server(stack, {IMAGE_VARIABLE: "mine"})
    assert "\n" not in str(error.value)


def test_the_connection_string_names_everything() -> None:
    server = ContainerServer(host="h", port=5, user="u", password="p", dbname="d")
    assert server.dsn == "host=h port=5 user=u password=p dbname=d"
