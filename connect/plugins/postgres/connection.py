"""Connections to the server, and what their failures mean

One place that builds connection parameters and one that translates driver errors into the plugin vocabulary: away
(`NotConnected`, tried again for ever), wrong until somebody changes something (`Fatal`), or unknown (the driver's own
error, a bug).

The session settings decide the text form of every value and so belong to the types: UTC, ISO dates, ISO intervals,
shortest exact floats, hexadecimal bytes, money in the C locale.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg import errors

from tidemill.connect.api import Fatal, NotConnected
from tidemill.connect.plugins.postgres.config import PostgresConfig

CONNECT_TIMEOUT_S: Final = 10
"""Debezium waits 60; a server that takes longer than this to answer is as good as away."""

KEEPALIVE_S: Final = 10
SILENCE_S_MAX: Final = 60
"""A machine that acknowledges nothing for so long is away; the kernel alone would try for a quarter of an hour."""

SESSION: Final = {
    "TimeZone": "UTC",
    "DateStyle": "ISO",
    "IntervalStyle": "iso_8601",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "lc_monetary": "C",
}

_AWAY: Final = (
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.TooManyConnections,
    errors.ConnectionException,
    errors.IdleInTransactionSessionTimeout,
    errors.QueryCanceled,
    errors.LockNotAvailable,
    errors.DeadlockDetected,
    errors.DiskFull,
    errors.OutOfMemory,
)
_REFUSED: Final = (errors.InvalidPassword, errors.InvalidAuthorizationSpecification, errors.InvalidCatalogName)
_HOPELESS: Final = (
    errors.InsufficientPrivilege,
    errors.UndefinedObject,
    errors.UndefinedTable,
    errors.ObjectNotInPrerequisiteState,
    errors.ConfigurationLimitExceeded,
)

_TURNED_AWAY: Final = re.compile(
    r'password authentication failed|no password supplied|no pg_hba\.conf entry|(role|database) ".*" does not exist'
)
_INSECURE: Final = re.compile(r"certificate|does not support SSL|private key")


def parameters(config: PostgresConfig, **more: Any) -> dict[str, Any]:
    """Return libpq parameters for one connection."""
    settings = SESSION | ({"statement_timeout": str(config.query_timeout_ms)} if not more.get("replication") else {})
    values: dict[str, Any] = {
        "host": config.hostname,
        "port": config.port,
        "user": config.user,
        "dbname": config.dbname,
        "sslmode": config.sslmode,
        "sslcert": config.sslcert,
        "sslkey": config.sslkey,
        "sslpassword": config.sslpassword.get_secret_value(),
        "sslrootcert": config.sslrootcert,
        "password": config.password.get_secret_value(),
        "connect_timeout": CONNECT_TIMEOUT_S,
        "client_encoding": "UTF8",
        "application_name": f"tidemill {config.topic_prefix}",
        "options": " ".join(f"-c {name}={value}" for name, value in settings.items()),
        "keepalives_idle": KEEPALIVE_S,
        "keepalives_interval": KEEPALIVE_S,
        "keepalives_count": SILENCE_S_MAX // KEEPALIVE_S - 1,
        "tcp_user_timeout": SILENCE_S_MAX * 1000,
    }
    return {name: value for name, value in values.items() if value != ""} | more


def connect(config: PostgresConfig, **more: Any) -> psycopg.Connection[Any]:
    """Open a connection in autocommit mode; raises plugin errors."""
    with translated(config):
        return psycopg.connect(autocommit=True, **parameters(config, **more))


@contextmanager
def translated(config: PostgresConfig) -> Iterator[None]:
    """Turn driver errors into plugin errors."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error, config) from error


def translate(error: psycopg.Error, config: PostgresConfig) -> Exception:
    """Return the plugin error that a driver error means; unknown ones come back as they are."""
    where = f"{config.hostname}:{config.port}/{config.dbname}"
    reason = one_line(error)
    if isinstance(error, _REFUSED) or refused(error):
        return Fatal(
            f"{where} refused the user {config.user}: {reason}; correct database.user, database.password and "
            "database.dbname, or the server's pg_hba.conf"
        )
    if isinstance(error, errors.InsufficientPrivilege) and "row-level security" in reason:
        return Fatal(
            f"{where}: {reason}: the snapshot would leave rows out; run ALTER ROLE {config.user} BYPASSRLS as an "
            "administrator, or leave the table out with table.exclude.list"
        )
    if insecure(error):
        return Fatal(f"{where}: {reason}; correct database.sslmode and the files named by database.ssl…")
    if isinstance(error, _AWAY):
        return NotConnected(f"{where}: {reason}")
    if isinstance(error, _HOPELESS):
        return Fatal(f"{where}: {reason}")
    broken = (
        isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) or type(error) is psycopg.DatabaseError
    )
    if broken and error.sqlstate is None:  # the server had no time to say why
        return NotConnected(f"{where}: {reason}")
    return error


def refused(error: psycopg.Error) -> bool:
    """Tell whether the server turned us away; before a session exists the driver gives only its words."""
    return _is_startup(error) and _TURNED_AWAY.search(str(error)) is not None


def insecure(error: psycopg.Error) -> bool:
    """Tell whether encryption as it was asked for cannot be had."""
    return _is_startup(error) and _INSECURE.search(str(error)) is not None


def _is_startup(error: psycopg.Error) -> bool:
    return isinstance(error, psycopg.OperationalError) and error.sqlstate is None


def one_line(error: BaseException) -> str:
    """Return an error's message on one line."""
    text = " ".join(str(error).split())
    detail = getattr(getattr(error, "diag", None), "message_detail", None)
    return f"{text} ({' '.join(detail.split())})" if detail and detail not in text else text or type(error).__name__
