"""Debezium's settings, read as they are"""

from typing import Any

import pytest
from pydantic import ValidationError

from tidemill.connect.plugins.postgres.config import PostgresConfig
from tidemill.connect.plugins.postgres.types.conversion import Modes

TYPICAL = {
    "database.hostname": "db",
    "database.port": "5433",
    "database.user": "debezium",
    "database.password": "dbz",
    "database.dbname": "inventory",
    "topic.prefix": "dbserver1",
    "plugin.name": "pgoutput",
    "schema.include.list": "inventory",
    "table.include.list": "inventory.customers,inventory.orders",
    "tombstones.on.delete": "false",
    "decimal.handling.mode": "string",
    "snapshot.mode": "schema_only",
    "skipped.operations": "none",
    "heartbeat.interval.ms": "10000",
}


def config(**changes: Any) -> PostgresConfig:
    return PostgresConfig.model_validate(TYPICAL | {name.replace("_", "."): value for name, value in changes.items()})


def test_a_typical_configuration_is_read() -> None:
    read = config()
    assert (read.hostname, read.port, read.dbname) == ("db", 5433, "inventory")
    assert read.password.get_secret_value() == "dbz"
    assert read.snapshot_mode == "no_data"
    assert read.skipped == frozenset()
    assert read.modes == Modes(decimal="string")
    assert read.heartbeat_topic == "__debezium-heartbeat.dbserver1"
    assert config(topic_heartbeat_name="beats").heartbeat_topic == "beats"
    assert read.selection.table("inventory", "orders")
    assert not read.selection.table("public", "orders")


def test_defaults_are_debeziums_but_for_the_plugin() -> None:
    read = PostgresConfig.model_validate({name: TYPICAL[name] for name in list(TYPICAL)[:6]})
    assert (read.plugin_name, read.slot_name, read.publication_name) == ("pgoutput", "debezium", "dbz_publication")
    assert read.publication_autocreate == "all_tables"
    assert read.skipped == {"t"}
    assert read.tombstones_on_delete
    assert read.snapshot_mode == "initial"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("plugin.name", "decoderbufs", "plugin.name=pgoutput"),
        ("database.hostname", "", "at least 1 character"),
        ("database.port", "0", "greater than or equal to 1"),
        ("table.include.list", "public.(", "not a regular expression"),
        ("message.key.columns", "orders", "message.key.columns"),
        ("message.key.columns", "(:a", "not a regular expression"),
        ("topic.prefix", "a b", "part of a topic's name"),
        ("slot.name", "My-Slot", "pattern"),
        ("skipped.operations", "x", "pattern"),
        ("provide.transaction.metadata", "true", "transaction metadata is not available"),
        ("time.precision.mode", "structured", "isostring"),
    ],
)
def test_a_wrong_setting_says_what_to_do(name: str, value: str, message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        PostgresConfig.model_validate(TYPICAL | {name: value})
    [problem] = caught.value.errors()
    assert problem["loc"] == (name,)
    assert message in str(problem)


def test_secrets_do_not_show() -> None:
    assert "dbz'" not in repr(config())
