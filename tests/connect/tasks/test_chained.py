"""The chain of a task, and rows of a batch as records"""

from decimal import Decimal
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from tidemill.connect.api import EncodedBatch, Record
from tidemill.connect.converters.bytes import BytesConverter
from tidemill.connect.converters.json import JsonConverter
from tidemill.connect.converters.registry import Converter
from tidemill.connect.converters.string import StringConverter
from tidemill.connect.tasks.chained import chain_of, columns_of, log_notices, records_of, unless_encoded
from tidemill.connect.transforms.chain import Encoded


@pytest.mark.parametrize("config", [{}, {"transforms": " "}])
def test_without_transforms_there_is_no_chain(config: dict[str, str]) -> None:
    assert chain_of(config, StringConverter(), JsonConverter()) is None


def test_a_chain_reads_with_the_converters_in_force() -> None:
    config = {"transforms": "h", "transforms.h.type": "HoistField$Value", "transforms.h.field": "v"}
    chain = chain_of(config, StringConverter(), JsonConverter(schemas_enable=False))
    assert chain is not None
    [out] = chain.apply(records_of(EncodedBatch(topic="t", keys=[b"k"], values=[b"[1]"])))
    assert isinstance(out, Record) and out.value == {"v": [1]} and type(out.key) is Encoded


@pytest.mark.parametrize(
    ("converter", "exactly"),
    [(StringConverter(), "decode"), (BytesConverter(), "decode")]
    + [
        (JsonConverter(schemas_enable=schemas, decimal_numeric=numeric), "decode_exactly")
        for schemas in (True, False)
        for numeric in (True, False)
    ],
    ids=["string", "bytes", "schemas-numeric", "schemas", "numeric", "plain"],
)
def test_a_column_is_what_its_values_are_alone(converter: Converter, exactly: str) -> None:
    plain = not isinstance(converter, JsonConverter)
    values: list[Any] = [b"a", b"b"] if plain else [{"a": 1, "b": None}, {"a": 0.1}, [Decimal("1.10")], "x"]
    data = [b"a", b"b"] if plain else [converter.encode(value, None) for value in values]
    columns = columns_of(converter)
    read, schemas = columns.decode_all([each for each in data if each is not None])
    alone = [getattr(converter, exactly)(each) for each in data]
    assert list(zip(read, schemas or [None] * len(read), strict=True)) == alone
    assert [*columns.encode_all(read, schemas)] == [converter.encode(*each) for each in alone]


def test_rows_become_records() -> None:
    more: dict[str, Any] = {"headers": [(("h", b"x"),), ()], "timestamps_ms": [1, 2]}
    first, second = records_of(EncodedBatch(topic="t", keys=[None, b"k"], values=[b"v", None], **more))
    assert first == Record(topic="t", value=b"v", headers=(("h", b"x"),), timestamp_ms=1)
    assert second == Record(topic="t", key=b"k", timestamp_ms=2) and type(second.key) is Encoded


def test_only_what_its_source_has_serialised_passes_a_converter() -> None:
    encode = unless_encoded(JsonConverter(schemas_enable=False).encode)
    assert encode(Encoded(b"as it is"), None) == b"as it is"
    assert encode(b"bytes", None) == b'"Ynl0ZXM="'


def test_what_transforms_have_to_say_is_written_down_once_per_batch() -> None:
    kind = "io.debezium.transforms.outbox.EventRouter"
    chain = chain_of({"transforms": "o", "transforms.o.type": kind}, StringConverter(), JsonConverter())
    assert chain is not None
    update = {"op": "u", "source": {}, "before": None, "after": {"id": 1}}
    chain.apply([Record(topic="outbox", value=update)] * 3)
    with capture_logs() as lines:
        for _ in range(2):
            log_notices(chain, structlog.get_logger("tidemill.connect.source"), "c-0")
    text = "o: an updated row of the outbox outbox was left out"
    assert lines == [{"event": text, "log_level": "warning", "task": "c-0", "records": 3}]
