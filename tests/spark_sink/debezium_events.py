"""Change events as Debezium's JSON converter writes them, and the table they lead to

`Shop` plays a source table: every call of `change` picks a row by a seeded generator, inserts, updates or deletes it
and returns the records of the change, while `rows` keeps what the table holds.
"""

import base64
import json
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from tidemill.spark_sink.rows import Rows

EPOCH = datetime(1970, 1, 1)
UNAVAILABLE = "__debezium_unavailable_value"


def _field(name: str, kind: str, logical: str | None = None, **more: Any) -> dict[str, Any]:
    return {"field": name, "type": kind, "optional": name != "id", **({"name": logical} if logical else {}), **more}


FIELDS = [
    _field("id", "int64"),
    _field("Name", "string"),  # capitals and spaces have to survive SQL
    _field(
        "unit price",
        "bytes",
        "org.apache.kafka.connect.data.Decimal",
        parameters={"scale": "2", "connect.decimal.precision": "12"},
    ),
    _field("paid", "boolean"),
    _field("placed", "string", "io.debezium.time.ZonedTimestamp"),
    _field("local", "int64", "io.debezium.time.MicroTimestamp"),
    _field("due", "int32", "io.debezium.time.Date"),
    _field("tags", "array", items={"type": "string", "optional": True}),
    _field("raw", "bytes"),
    _field("note", "string"),
]


def value_schema(fields: list[dict[str, Any]]) -> dict[str, Any]:
    """An envelope schema over a row's fields."""
    row = {"type": "struct", "optional": True, "name": "shop.public.orders.Value", "fields": fields}
    return {
        "type": "struct",
        "name": "shop.public.orders.Envelope",
        "optional": False,
        "fields": [
            {**row, "field": "before"},
            {**row, "field": "after"},
            {"type": "struct", "field": "source", "optional": False, "fields": [_field("lsn", "int64")]},
            {"type": "string", "field": "op", "optional": False},
        ],
    }


KEY_SCHEMA = {"type": "struct", "name": "shop.public.orders.Key", "optional": False, "fields": FIELDS[:1]}
VALUE_SCHEMA = value_schema(FIELDS)


class Message(NamedTuple):
    """A record's key and value."""

    key: bytes | None
    value: bytes | None


def encode(tree: Any, schema: Any = None) -> bytes:
    """JSON as the converter writes it, with the schema part unless there is none."""
    if schema is not None:
        tree = {"schema": schema, "payload": tree}
    return json.dumps(tree, separators=(",", ":"), ensure_ascii=False).encode()


def decimal_text(unscaled: int) -> str:
    """Base64 of the shortest two's complement form."""
    size = (unscaled.bit_length() // 8) + 1
    return base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode()


def event(
    op: str,
    key: dict[str, Any] | None,
    after: dict[str, Any] | None = None,
    before: dict[str, Any] | None = None,
    *,
    schema: Any = VALUE_SCHEMA,
    key_schema: Any = KEY_SCHEMA,
) -> Message:
    """One change event."""
    value = encode({"before": before, "after": after, "source": {"lsn": 1}, "op": op}, schema)
    return Message(None if key is None else encode(key, key_schema if schema else None), value)


def rows_of(messages: list[Message], first_offset: int = 0) -> Rows:
    """The messages as the reader's columns."""
    count = len(messages)
    return Rows(
        key=pa.array([message.key for message in messages], pa.binary()),
        value=pa.array([message.value for message in messages], pa.binary()),
        offset=pa.array(range(first_offset, first_offset + count), pa.int64()),
        timestamp_ms=pa.array([0] * count, pa.int64()),
        timestamp_type=pa.array([0] * count, pa.int32()),
        headers=None,
    )


class Shop:
    """A source table that changes."""

    def __init__(self, seed: int = 1, keys: int = 50) -> None:
        self._random = random.Random(seed)
        self._keys = keys
        self._raw: dict[int, dict[str, Any]] = {}

    def _row(self, key: int) -> dict[str, Any]:
        pick = self._random
        return {
            "id": key,
            "Name": pick.choice(["Ann", "Zoë", "O'Brien", 'say "hi"', ""]),
            "unit price": decimal_text(pick.randrange(-(10**6), 10**12)),
            "paid": pick.random() < 0.5,
            "placed": (EPOCH + timedelta(microseconds=pick.randrange(2 * 10**15))).isoformat() + "Z",
            "local": pick.randrange(2 * 10**15),
            "due": None if pick.random() < 0.3 else pick.randrange(-10_000, 30_000),
            "tags": pick.sample(["a", "b c", "d\ne"], pick.randrange(4)),
            "raw": None if pick.random() < 0.5 else base64.b64encode(pick.randbytes(9)).decode(),
            "note": None if pick.random() < 0.2 else f"note {pick.randrange(10**6)}",
        }

    def change(self) -> tuple[int, list[Message]]:
        """Change one row; return its key, which decides on the partition, and the records."""
        key = self._random.randrange(self._keys)
        old = self._raw.get(key)
        if old is not None and self._random.random() < 0.2:
            del self._raw[key]
            gone = event("d", {"id": key}, before={**dict.fromkeys(old), "id": key})
            return key, [gone, Message(gone.key, None)]
        new = self._row(key)
        sent = dict(new)
        if old is not None and self._random.random() < 0.3:
            new["note"], sent["note"] = old["note"], UNAVAILABLE
        self._raw[key] = new
        return key, [event("u" if old else "c", {"id": key}, sent)]

    def load(self, changes: int, partitions: int) -> list[list[Message]]:
        """Make changes and spread their records over partitions."""
        logs: list[list[Message]] = [[] for _ in range(partitions)]
        for _ in range(changes):
            key, messages = self.change()
            logs[key % partitions] += messages
        return logs

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What the table holds, ordered by key, with the types of the warehouse."""
        return [table_row(self._raw[key]) for key in sorted(self._raw)]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)


SMALL = value_schema(FIELDS[:2])


def small_row(key: int, name: str) -> Message:
    """The creation of a row of two columns."""
    return event("c", {"id": key}, {"id": key, "Name": name}, schema=SMALL)


def table_row(raw: dict[str, Any]) -> dict[str, Any]:
    """The warehouse's row for a row as it is sent."""
    unscaled = int.from_bytes(base64.b64decode(raw["unit price"]), "big", signed=True)
    return {
        **raw,
        "unit price": Decimal(unscaled).scaleb(-2),
        "placed": datetime.fromisoformat(raw["placed"][:-1]).replace(tzinfo=UTC),
        "local": EPOCH + timedelta(microseconds=raw["local"]),
        "due": None if raw["due"] is None else date(1970, 1, 1) + timedelta(days=raw["due"]),
        "raw": None if raw["raw"] is None else base64.b64decode(raw["raw"]),
    }
