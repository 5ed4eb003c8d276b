"""A Debezium Postgres connector's JSON configuration, posted unchanged, works.

The body is what a team that runs Debezium has in its repository: class name, converters, heartbeat, snapshot and type
settings and some that only matter to the Java connector.
"""

import json
import time
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx
import psycopg
import pytest
from confluent_kafka import Consumer

from tidemill import services

if TYPE_CHECKING:
    from tidemill.services import Service
    from tidemill.testing.postgres_server import PostgresServer

pytestmark = [pytest.mark.integration, pytest.mark.postgres]

READ_TIMEOUT_S = 60


@pytest.fixture(scope="module")
def worker(tidemill_broker: "Service", tmp_path_factory: pytest.TempPathFactory) -> Iterator["Service"]:
    folder = tmp_path_factory.mktemp("worker")
    settings = {
        "group.id": "debezium-config",
        **{f"{s}.storage.topic": f"dbz-{s}" for s in ("config", "offset", "status")},
    }
    service = services.connect_worker(
        "worker", tidemill_broker.facts["address"], settings=settings, log=folder / "connect.log"
    ).start()
    yield service
    service.stop()


def body(server: "PostgresServer") -> dict[str, Any]:
    return {
        "name": "inventory-connector",
        "config": {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "tasks.max": "1",
            "plugin.name": "pgoutput",
            "database.hostname": server.host,
            "database.port": server.port,
            "database.user": server.user,
            "database.password": server.password or "",
            "database.dbname": server.dbname,
            "database.sslmode": "prefer",
            "database.tcpKeepAlive": True,
            "topic.prefix": "dbserver1",
            "schema.include.list": "inventory",
            "table.include.list": "inventory.customers",
            "column.exclude.list": "inventory.customers.secret",
            "slot.name": "inventory_slot",
            "slot.max.retries": "6",
            "publication.name": "inventory_publication",
            "publication.autocreate.mode": "filtered",
            "snapshot.mode": "initial",
            "snapshot.isolation.mode": "repeatable_read",
            "decimal.handling.mode": "string",
            "time.precision.mode": "adaptive",
            "binary.handling.mode": "base64",
            "hstore.handling.mode": "json",
            "interval.handling.mode": "string",
            "tombstones.on.delete": "true",
            "heartbeat.interval.ms": "10000",
            "max.batch.size": "2048",
            "max.queue.size": "8192",
            "poll.interval.ms": "500",
            "errors.max.retries": "-1",
            "include.unknown.datatypes": "false",
            "provide.transaction.metadata": "false",
            "schema.name.adjustment.mode": "none",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "key.converter.schemas.enable": "false",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
        },
    }


def read(address: str, topic: str, count: int) -> list[tuple[Any, Any]]:
    """The first `count` records of the topic as parsed key and value."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[tuple[Any, Any]] = []
    deadline = time.monotonic() + READ_TIMEOUT_S
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(100, timeout=1):
            if message.error() is None:
                value = message.value()
                found.append((json.loads(message.key()), None if value is None else json.loads(value)))
    consumer.close()
    return found


def test_a_debezium_configuration_posted_unchanged_captures_the_table(
    tidemill_broker: "Service", tidemill_postgres: "PostgresServer", worker: "Service"
) -> None:
    url = worker.facts["url"]
    with psycopg.connect(tidemill_postgres.dsn, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA inventory")
        connection.execute(
            "CREATE TABLE inventory.customers "
            "(id serial PRIMARY KEY, name text NOT NULL, credit numeric(10, 2), secret text)"
        )
        connection.execute("INSERT INTO inventory.customers (name, credit, secret) VALUES ('Sally', 12.50, 'x')")
        answer = httpx.post(f"{url}/connectors", json=body(tidemill_postgres), timeout=60)
        assert answer.status_code == 201, answer.text
        assert answer.json()["type"] == "source"
        topic = "dbserver1.inventory.customers"
        assert len(read(tidemill_broker.facts["address"], topic, 1)) == 1
        connection.execute("UPDATE inventory.customers SET credit = 99 WHERE name = 'Sally'")
        connection.execute("DELETE FROM inventory.customers WHERE name = 'Sally'")
        events = read(tidemill_broker.facts["address"], topic, 4)
    httpx.delete(f"{url}/connectors/inventory-connector", timeout=60).raise_for_status()
    assert [key for key, _ in events] == [{"id": 1}] * 4
    snapshot, update, delete, tombstone = (value for _, value in events)
    assert snapshot["op"] == "r"
    assert snapshot["before"] is None
    assert snapshot["after"] == {"id": 1, "name": "Sally", "credit": "12.50"}
    assert update["op"] == "u"
    assert update["after"] == {"id": 1, "name": "Sally", "credit": "99.00"}
    assert update["source"]["connector"] == "postgresql"
    assert update["source"]["name"] == "dbserver1"
    assert (update["source"]["schema"], update["source"]["table"]) == ("inventory", "customers")
    assert delete["op"] == "d"
    assert delete["after"] is None
    assert delete["before"]["id"] == 1
    assert tombstone is None


CHAIN = {
    "transforms": "after,money,route,gone",
    "transforms.after.type": "org.apache.kafka.connect.transforms.ExtractField$Value",
    "transforms.after.field": "after",
    "transforms.after.predicate": "captured",
    "transforms.money.type": "org.apache.kafka.connect.transforms.Cast$Value",
    "transforms.money.spec": "credit:float64",
    "transforms.money.predicate": "captured",
    "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.route.regex": "(?<server>[^.]+)\\.([^.]+)\\.(.*)",
    "transforms.route.replacement": "${server}-flat-$3",
    "transforms.gone.type": "org.apache.kafka.connect.transforms.Filter",
    "transforms.gone.predicate": "tombstone",
    "predicates": "captured,tombstone",
    "predicates.captured.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
    "predicates.captured.pattern": ".*\\.inventory\\..*",
    "predicates.tombstone.type": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
}


@pytest.mark.parametrize("schemas", ["false", "true"])
def test_captured_changes_go_through_transforms(
    tidemill_broker: "Service", tidemill_postgres: "PostgresServer", worker: "Service", schemas: str
) -> None:
    url, table = worker.facts["url"], f"flat_{schemas}"
    wanted = body(tidemill_postgres)
    wanted["name"] = table
    wanted["config"] |= CHAIN | {
        "table.include.list": f"inventory.{table}",
        "slot.name": f"{table}_slot",
        "publication.name": f"{table}_publication",
        "value.converter.schemas.enable": schemas,
    }
    with psycopg.connect(tidemill_postgres.dsn, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA IF NOT EXISTS inventory")
        connection.execute(f"CREATE TABLE inventory.{table} (id int PRIMARY KEY, credit numeric(10, 2))")
        connection.execute(f"INSERT INTO inventory.{table} VALUES (1, 12.50)")
        answer = httpx.post(f"{url}/connectors", json=wanted, timeout=60)
        assert answer.status_code == 201, answer.text
        topic = f"dbserver1-flat-{table}"
        assert len(read(tidemill_broker.facts["address"], topic, 1)) == 1
        connection.execute(f"DELETE FROM inventory.{table}")
        connection.execute(f"INSERT INTO inventory.{table} VALUES (2, 7)")
        events = read(tidemill_broker.facts["address"], topic, 2)
    httpx.delete(f"{url}/connectors/{table}", timeout=60).raise_for_status()
    assert [key for key, _ in events] == [{"id": 1}, {"id": 2}]
    values = [value["payload"] for _, value in events] if schemas == "true" else [value for _, value in events]
    assert values == [{"id": 1, "credit": 12.5}, {"id": 2, "credit": 7.0}]
    if schemas == "true":
        assert [each["type"] for each in events[0][1]["schema"]["fields"]] == ["int32", "double"]


@pytest.mark.parametrize(
    ("setting", "value", "complaint"),
    [
        ("database.port", "1", "database"),
        ("database.user", "nobody_here", "nobody_here"),
        ("database.dbname", "no_such_database", "no_such_database"),
        ("plugin.name", "decoderbufs", "pgoutput"),
        ("snapshot.mode", "sometimes", "snapshot.mode"),
        ("topic.prefix", "", "topic.prefix"),
        ("table.include.list", "inventory.(", "table.include.list"),
        ("transforms", "unwrap", "transforms"),
        ("value.converter", "io.confluent.connect.avro.AvroConverter", "value.converter"),
    ],
)
def test_a_bad_configuration_is_refused_with_the_setting_to_change(
    tidemill_postgres: "PostgresServer", worker: "Service", setting: str, value: str, complaint: str
) -> None:
    wrong = body(tidemill_postgres)
    wrong["name"] = f"bad-{setting}"
    wrong["config"][setting] = value
    answer = httpx.post(f"{worker.facts['url']}/connectors", json=wrong, timeout=60)
    assert answer.status_code == 400, answer.text
    assert complaint in answer.json()["message"]
    assert "Traceback" not in answer.json()["message"]
    assert httpx.get(f"{worker.facts['url']}/connectors/{wrong['name']}", timeout=60).status_code == 404
