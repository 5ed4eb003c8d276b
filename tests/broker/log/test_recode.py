"""Batches get the codec of their topic, and nothing else about them changes"""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.log.log_world import NOW_MS, LogWorld, read_all
from tests.broker.log.rejection_table import with_records
from tests.core.records.record_strategies import record_lists
from tests.sim.disk import SimulatedDisk
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.recode import recoded, wanted_codec
from tidemill.core.errors import InvalidRecord, MessageTooLarge
from tidemill.core.records.batch import BatchView
from tidemill.core.records.builder import build_batch
from tidemill.core.records.compression import CODECS, decompress
from tidemill.core.records.record import NewRecord, decode_records
from tidemill.core.records.validate import validate_produced_batch

KEPT = (
    "base_offset",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "record_count",
)
COMPRESSIBLE = [NewRecord(NOW_MS + n, b"key", b"value " * 50) for n in range(20)]


def records_of(batch: bytes) -> bytes:
    """The records of a batch, uncompressed."""
    view = BatchView(batch)
    return decompress(view.codec, view.records_bytes(), 1 << 20)


def config(name: str, **more: Any) -> LogConfig:
    return LogConfig(compression_type=name, **more)


def test_the_names_of_codecs() -> None:
    assert wanted_codec(config("producer")) is None
    assert wanted_codec(config("uncompressed")) == CODECS["none"]
    assert {name: wanted_codec(config(name)) for name in ("gzip", "snappy", "lz4", "zstd")} == {
        name: number for name, number in CODECS.items() if name != "none"
    }


@given(record_lists, st.sampled_from(sorted(CODECS)), st.sampled_from(sorted(CODECS)))
def test_a_recoded_batch_is_the_same_batch_in_another_codec(records: list[NewRecord], was: str, becomes: str) -> None:
    batch = build_batch(records, codec=was, producer_id=9, producer_epoch=2, base_sequence=5)
    name = "uncompressed" if becomes == "none" else becomes
    changed = recoded(batch, records_of(batch), CODECS[becomes], config(name))
    new = BatchView(changed)
    assert validate_produced_batch(changed) == new
    old = BatchView(batch)
    assert new.codec == CODECS[becomes]
    assert {name: getattr(new, name) for name in KEPT} == {name: getattr(old, name) for name in KEPT}
    assert decode_records(new) == decode_records(old)


@pytest.mark.parametrize(("name", "low", "high"), [("gzip", 1, 9), ("zstd", 1, 19)])
def test_levels_are_obeyed(name: str, low: int, high: int) -> None:
    text = [NewRecord(NOW_MS, None, Path(__file__).read_bytes())]
    batch = build_batch(text)
    sizes = [
        len(recoded(batch, records_of(batch), CODECS[name], config(name, **{f"compression_{name}_level": level})))
        for level in (low, high)
    ]
    assert sizes[1] < sizes[0] < len(batch)


def test_a_batch_may_outgrow_what_the_topic_allows() -> None:
    batch = build_batch(COMPRESSIBLE, codec="zstd")
    with pytest.raises(MessageTooLarge, match=r"compression\.type=uncompressed"):
        recoded(batch, records_of(batch), CODECS["none"], config("uncompressed", max_message_bytes=2 * len(batch)))


async def test_records_that_cannot_be_read_are_not_compressed_anew() -> None:
    log = LogWorld(SimulatedDisk().root, config("lz4")).open()
    with pytest.raises(InvalidRecord):
        log.append(with_records(b"\xff" * 12, count=1), now_ms=NOW_MS)


@pytest.mark.parametrize("arrives", sorted(CODECS))
async def test_the_log_holds_the_codec_of_the_topic(arrives: str) -> None:
    world = LogWorld(SimulatedDisk().root, config("zstd"))
    log = world.open()
    sent = build_batch(COMPRESSIBLE, codec=arrives, producer_id=4, producer_epoch=0, base_sequence=0)
    first = log.append(sent, now_ms=NOW_MS)
    again = log.append(sent, now_ms=NOW_MS)
    assert (first.duplicate, again.duplicate, again.base_offset) == (False, True, first.base_offset)
    await log.durable(first.last_offset)
    (stored,) = read_all(log)
    assert stored.codec == CODECS["zstd"]
    assert stored.verify_crc()
    assert [record.value for record in decode_records(stored)] == [record.value for record in COMPRESSIBLE]


async def test_what_the_broker_writes_itself_stays_as_it_is() -> None:
    log = LogWorld(SimulatedDisk().root, config("zstd")).open()
    await log.durable(log.append_own(build_batch(COMPRESSIBLE), now_ms=NOW_MS).last_offset)
    assert [view.codec for view in read_all(log)] == [CODECS["none"]]


async def test_append_times_of_a_recoded_batch() -> None:
    world = LogWorld(SimulatedDisk().root, config("lz4", message_timestamp_type="LogAppendTime"))
    log = world.open()
    await log.durable(log.append(build_batch(COMPRESSIBLE), now_ms=NOW_MS + 77).last_offset)
    (stored,) = read_all(log)
    assert (stored.codec, stored.timestamp_type, stored.max_timestamp) == (CODECS["lz4"], 1, NOW_MS + 77)
    assert stored.verify_crc()
