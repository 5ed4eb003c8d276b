"""Looking at records, few or many: the same outcome wherever it is done"""

import pytest

from tests.broker.log.log_world import NOW_MS, LogWorld
from tests.broker.log.rejection_table import REJECTIONS, with_records
from tests.broker.many_records import many_records
from tests.sim.disk import SimulatedDisk
from tidemill.broker.log import examination
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.examination import Examination
from tidemill.core.errors import InvalidRecord, InvalidTimestamp, KafkaError, MessageTooLarge
from tidemill.core.records.batch import BatchView
from tidemill.core.records.builder import build_batch
from tidemill.core.records.compression import CODECS
from tidemill.core.records.record import NewRecord, decode_records


def wanted(batch: bytes, config: LogConfig) -> Examination | None:
    """What the log wants to have examined; None if nothing, or if the batch is refused by its header."""
    log = LogWorld(SimulatedDisk().root, config, group_commit=False).open()
    try:
        found = log.try_append(bytearray(batch), NOW_MS)
    except KafkaError:
        return None
    return found if isinstance(found, Examination) else None


def outcome(found: Examination, *, many: bool) -> bytes | str:
    try:
        return bytes(found.run() if many else found.outcome(found.records(1 << 24)))
    except KafkaError as error:
        return f"{error.code}: {error}"


@pytest.mark.parametrize("wants", ["producer", "gzip", "uncompressed"])
def test_few_or_many_makes_no_difference(wants: str) -> None:
    config = LogConfig(record_validation="records", compression_type=wants)
    examined = 0
    for row in REJECTIONS:
        found = wanted(row.batch, config)
        if found is not None:
            examined += 1
            assert outcome(found, many=True) == outcome(found, many=False), row.name
    assert examined > 50


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("becomes", ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_records_that_are_not_copied(codec: str, becomes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "COPIED_BYTES_MAX", 1000)
    batch = many_records(2000, codec=codec)
    found = wanted(batch, LogConfig(cleanup_policy=("compact",), compression_type=becomes))
    assert found is not None
    stored = BatchView(found.run())
    assert stored.verify_crc()
    assert stored.codec == CODECS[{"producer": codec, "uncompressed": "none"}.get(becomes, becomes)]
    assert decode_records(stored) == decode_records(BatchView(batch))


def test_more_than_may_be_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "DECOMPRESSED_BYTES_MAX", 10_000)
    found = wanted(many_records(2000), LogConfig(cleanup_policy=("compact",)))
    assert found is not None
    with pytest.raises(MessageTooLarge, match="zstd data is larger than 10000 bytes"):
        found.run()
    with pytest.raises(MessageTooLarge):
        found.records(10_000)


def test_damage_behind_a_checksum_that_matches_is_final() -> None:
    found = wanted(with_records(b"\xff" * 12, count=1), LogConfig(cleanup_policy=("compact",)))
    assert found is not None
    with pytest.raises(InvalidRecord):
        found.run()


def test_a_time_out_of_bounds_is_looked_for_in_any_topic() -> None:
    batch = build_batch([NewRecord(NOW_MS, b"k", b"v"), NewRecord(2 * NOW_MS, b"k", b"v")], codec="zstd")
    found = wanted(batch, LogConfig())
    assert found is not None
    with pytest.raises(InvalidTimestamp) as caught:
        found.run()
    assert [number for number, _ in caught.value.record_errors] == [1]


def test_a_good_batch_for_an_ordinary_topic_is_not_examined() -> None:
    assert wanted(build_batch([NewRecord(NOW_MS, None, b"v")]), LogConfig()) is None


def test_where_records_are_walked_anyway_the_oldest_is_found_wherever_it_stands() -> None:
    batch = build_batch([NewRecord(NOW_MS, b"k", b"v"), NewRecord(NOW_MS - 5000, b"k", b"v")])
    found = wanted(batch, LogConfig(cleanup_policy=("compact",), message_timestamp_before_max_ms=1000))
    assert found is not None
    with pytest.raises(InvalidTimestamp) as caught:
        found.run()
    assert [number for number, _ in caught.value.record_errors] == [1]
