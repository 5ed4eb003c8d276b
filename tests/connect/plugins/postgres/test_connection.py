"""What failures of a connection mean"""

import socket
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tidemill.connect.api import Fatal, NotConnected
from tidemill.connect.plugins.postgres.config import PostgresConfig
from tidemill.connect.plugins.postgres.connection import SESSION, connect, one_line, parameters, translate


def config(**changes: str) -> PostgresConfig:
    return PostgresConfig.model_validate(
        {
            "database.hostname": "127.0.0.1",
            "database.user": "u",
            "database.password": "p",
            "database.dbname": "d",
            "topic.prefix": "t",
        }
        | {name.replace("_", "."): value for name, value in changes.items()}
    )


def test_session_settings_travel_with_the_connection() -> None:
    made = parameters(config(database_sslmode="require"), replication="database")
    for name, value in SESSION.items():
        assert f"-c {name}={value}" in made["options"]
    assert (made["sslmode"], made["replication"], made["password"]) == ("require", "database", "p")
    assert "statement_timeout" not in made["options"], "a stream never ends"
    assert "statement_timeout" in parameters(config())["options"]
    assert "sslcert" not in made, "what is not set is libpq's business"


def test_a_peer_that_acknowledges_nothing_is_given_up_within_a_minute() -> None:
    made = parameters(config())
    unanswered_s = made["keepalives_idle"] + made["keepalives_interval"] * made["keepalives_count"]
    assert unanswered_s <= 60
    assert made["tcp_user_timeout"] == 60_000


def test_hidden_rows_are_explained() -> None:
    error = translate(
        errors.InsufficientPrivilege('query would be affected by row-level security policy for table "a"'), config()
    )
    assert isinstance(error, Fatal)
    assert "ALTER ROLE u BYPASSRLS" in str(error)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.AdminShutdown("terminating"), NotConnected),
        (errors.CannotConnectNow("starting up"), NotConnected),
        (errors.TooManyConnections("too many"), NotConnected),
        (psycopg.OperationalError("server closed the connection unexpectedly"), NotConnected),
        (psycopg.DatabaseError("server closed the connection unexpectedly"), NotConnected),
        (psycopg.InterfaceError("the connection is closed"), NotConnected),
        (errors.ConnectionTimeout("timeout"), NotConnected),
        (errors.InvalidPassword("no"), Fatal),
        (psycopg.OperationalError('FATAL: password authentication failed for user "u"'), Fatal),
        (psycopg.OperationalError('FATAL: database "d" does not exist'), Fatal),
        (psycopg.OperationalError("FATAL: no pg_hba.conf entry for host"), Fatal),
        (psycopg.OperationalError('root certificate file "/x" does not exist'), Fatal),
        (psycopg.OperationalError("server does not support SSL, but SSL was required"), Fatal),
        (psycopg.OperationalError("SSL connection has been closed unexpectedly"), NotConnected),
        (psycopg.OperationalError('connection to server on socket "/x" failed: does not exist'), NotConnected),
        (errors.InsufficientPrivilege("permission denied"), Fatal),
        (errors.ObjectNotInPrerequisiteState("can no longer get changes"), Fatal),
        (errors.SyntaxError("a bug"), errors.SyntaxError),
    ],
    ids=lambda value: str(value)[:30],
)
def test_driver_errors_become_plugin_errors(error: psycopg.Error, kind: type[Exception]) -> None:
    assert type(translate(error, config())) is kind


def test_messages_are_one_line() -> None:
    assert one_line(psycopg.OperationalError("a\n\tb\n")) == "a b"
    assert one_line(psycopg.OperationalError()) == "OperationalError"


def test_an_unreachable_server_is_not_connected() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        with pytest.raises(NotConnected, match=r"127\.0\.0\.1"):
            connect(config(database_port=str(taken.getsockname()[1])))


@pytest.mark.integration
@pytest.mark.postgres
def test_values_look_the_same_whatever_the_database_says(database: Any) -> None:
    database.run(
        f"ALTER DATABASE \"{database.name}\" SET timezone = 'Asia/Tokyo'",
        f"ALTER DATABASE \"{database.name}\" SET datestyle = 'German'",
        f"ALTER DATABASE \"{database.name}\" SET intervalstyle = 'sql_standard'",
        f"ALTER DATABASE \"{database.name}\" SET bytea_output = 'escape'",
        f'ALTER DATABASE "{database.name}" SET extra_float_digits = 0',
    )
    with connect(PostgresConfig.model_validate(database.config())) as connection:
        row = connection.execute(
            "SELECT '2026-02-03 04:05:06+00'::timestamptz::text, '1 day'::interval::text, '\\x01ff'::bytea::text, "
            "(0.1::float8 + 0.2)::text"
        ).fetchone()
    assert row == ("2026-02-03 04:05:06+00", "P1D", "\\x01ff", "0.30000000000000004")
