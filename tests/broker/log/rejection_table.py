"""Batches that a producer must not send, and the error code that Apache Kafka 4.3.1 answers each with

The codes were taken from a real node (`tests/integration/test_rejections_kafka.py` asks one again). A batch is made
by the same builder as good ones and then spoiled in one place; unless the CRC is what is wrong, it is renewed, so that
nothing but the named fault can be the reason.

Where we answer otherwise `ours` says what, and the reason stands beside it. The largest difference is deliberate: a
header, its CRC and its counts are judged for every batch, but the records behind a CRC that matches are only walked in
compacted topics, or everywhere under `log.record.validation=records`. What is behind the CRC was put there by the
producer itself, consumers check it again, and the walk costs more than all the rest of an append (0.2 us a record).
Kafka does not compare the offset deltas of uncompressed records either.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from tidemill.core.records.batch import ATTRIBUTES_AT, CRC_AT, HEADER_BYTES
from tidemill.core.records.builder import build_batch, encode_record
from tidemill.core.records.compression import compress
from tidemill.core.records.crc import crc32c
from tidemill.core.records.record import NewRecord
from tidemill.core.records.varint import encode_varint

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
GZIP, LZ4, ZSTD = 1, 3, 4
APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40

_FIELDS = {
    "base_offset": (0, ">q"),
    "length": (8, ">i"),
    "leader_epoch": (12, ">i"),
    "magic": (16, ">b"),
    "crc": (17, ">I"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "count": (57, ">i"),
}

NONE, CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_TIMESTAMP = 0, 2, 10, 32
UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD, OUT_OF_ORDER_SEQUENCE_NUMBER = 76, 87, 45
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, UNKNOWN_SERVER_ERROR = 53, -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """One batch, the topic it is sent to, and what Kafka says."""

    name: str
    batch: bytes
    kafka_code: int
    settings: dict[str, str] = field(default_factory=dict)
    version: int = 9
    ours: int | None = None
    """Our code where it differs, with the reason beside it."""

    @property
    def code(self) -> int:
        """What we answer."""
        return self.kafka_code if self.ours is None else self.ours


def records(count: int = 3, timestamp: int = NOW_MS) -> list[NewRecord]:
    """Records with keys and values, one millisecond apart."""
    return [NewRecord(timestamp + n, b"key-%d" % n, b"value-%d" % n) for n in range(count)]


def spoiled(batch: bytes, **values: int) -> bytes:
    """`batch` with header fields set to `values`, and its CRC renewed unless it is one of them."""
    data = bytearray(batch)
    for name, value in values.items():
        at, code = _FIELDS[name]
        struct.pack_into(code, data, at, value)
    if "crc" not in values and len(data) >= HEADER_BYTES:
        struct.pack_into(">I", data, CRC_AT, crc32c(memoryview(data)[ATTRIBUTES_AT:]))
    return bytes(data)


def with_records(payload: bytes, *, count: int = 3, codec: int = 0, compressed: bool = True) -> bytes:
    """A batch whose header is right and whose records are `payload`."""
    head = build_batch(records(count))[:HEADER_BYTES]
    body = compress(codec, payload) if compressed else payload
    return spoiled(head + body, length=HEADER_BYTES - 12 + len(body), attributes=codec)


def with_deltas(deltas: Sequence[int], *, codec: int = 0) -> bytes:
    """A batch whose records say that they are at `deltas`."""
    rows = records(len(deltas))
    payload = b"".join(encode_record(row, n, delta) for n, (row, delta) in enumerate(zip(rows, deltas, strict=True)))
    return with_records(payload, count=len(deltas), codec=codec)


def raw_record(body: bytes, length: int | None = None) -> bytes:
    """A record with this body, announcing `length` bytes."""
    return encode_varint(len(body) if length is None else length) + body


GOOD = build_batch(records())
GOOD_RECORDS = GOOD[HEADER_BYTES:]
IDEMPOTENT = build_batch(records(), producer_id=4000, producer_epoch=0, base_sequence=0)
# attributes, timestamp delta 0, offset delta 0, key "k", value "v", then headers
PLAIN_BODY = b"\0\0\0\x02k\x02v"
COMPACTED = {"cleanup.policy": "compact"}
APPEND_TIME_TOPIC = {"message.timestamp.type": "LogAppendTime"}


def _accepted() -> list[Rejection]:
    """Odd, and yet taken: the table must not be stricter than Kafka."""
    return [
        Rejection(name="a good batch", batch=GOOD, kafka_code=NONE),
        Rejection(name="a leader epoch", batch=spoiled(GOOD, leader_epoch=7), kafka_code=NONE),
        Rejection(name="no timestamps", batch=build_batch([NewRecord(-1, b"k", b"v")]), kafka_code=NONE),
        Rejection(name="a very old timestamp", batch=build_batch(records(timestamp=1)), kafka_code=NONE),
        Rejection(name="unused attribute bits", batch=spoiled(GOOD, attributes=0x7F00), kafka_code=NONE),
        Rejection(name="delete horizon", batch=spoiled(GOOD, attributes=DELETE_HORIZON), kafka_code=NONE),
        Rejection(
            name="an unknown producer in the middle of its sequence",
            batch=spoiled(IDEMPOTENT, base_sequence=50, producer_id=4001),
            kafka_code=NONE,
        ),
        Rejection(name="sequence without producer id", batch=spoiled(GOOD, base_sequence=4), kafka_code=NONE),
        Rejection(name="zstd from version 7 on", batch=build_batch(records(), codec=ZSTD), kafka_code=NONE, version=7),
    ]


def _framing() -> list[Rejection]:
    return [
        Rejection(name="nothing", batch=b"", kafka_code=INVALID_RECORD),
        Rejection(name="ten bytes", batch=GOOD[:10], kafka_code=INVALID_RECORD),
        Rejection(name="sixteen bytes", batch=GOOD[:16], kafka_code=INVALID_RECORD),
        Rejection(name="a header without its last byte", batch=GOOD[:60], kafka_code=INVALID_RECORD),
        Rejection(name="one byte short", batch=GOOD[:-1], kafka_code=INVALID_RECORD),
        # Kafka trims bytes that are no batch; we store what was sent or nothing
        Rejection(name="one byte too many", batch=GOOD + b"\0", kafka_code=NONE, ours=INVALID_RECORD),
        Rejection(name="two batches", batch=GOOD + GOOD, kafka_code=INVALID_RECORD),
        Rejection(name="zero length", batch=spoiled(GOOD, length=0), kafka_code=CORRUPT_MESSAGE),
        Rejection(name="negative length", batch=spoiled(GOOD, length=-1), kafka_code=CORRUPT_MESSAGE),
        Rejection(
            name="length one less",
            batch=spoiled(GOOD, length=len(GOOD) - 13),
            kafka_code=CORRUPT_MESSAGE,
            ours=INVALID_RECORD,  # the same: a byte behind the batch
        ),
        Rejection(name="length one more", batch=spoiled(GOOD, length=len(GOOD) - 11), kafka_code=INVALID_RECORD),
        Rejection(
            name="length of a header",
            batch=spoiled(GOOD, length=49),
            kafka_code=CORRUPT_MESSAGE,
            ours=INVALID_RECORD,  # the same
        ),
        Rejection(
            name="largest length",
            batch=spoiled(GOOD, length=2**31 - 1),
            kafka_code=UNKNOWN_SERVER_ERROR,  # an overflow in Kafka
            ours=INVALID_RECORD,
        ),
        Rejection(name="magic 0", batch=spoiled(GOOD, magic=0), kafka_code=INVALID_RECORD),
        Rejection(name="magic 1", batch=spoiled(GOOD, magic=1), kafka_code=INVALID_RECORD),
        Rejection(name="magic 3", batch=spoiled(GOOD, magic=3), kafka_code=CORRUPT_MESSAGE),
        Rejection(name="magic 127", batch=spoiled(GOOD, magic=127), kafka_code=CORRUPT_MESSAGE),
        Rejection(name="magic -1", batch=spoiled(GOOD, magic=-1), kafka_code=CORRUPT_MESSAGE),
        Rejection(
            name="too large for the topic",
            batch=build_batch([NewRecord(NOW_MS, None, b"x" * 2000)]),
            settings={"max.message.bytes": "1000"},
            kafka_code=MESSAGE_TOO_LARGE,
        ),
        Rejection(
            name="too large for the default",
            batch=build_batch([NewRecord(NOW_MS, None, b"x" * 1_048_588)]),
            kafka_code=MESSAGE_TOO_LARGE,
        ),
    ]


def _header() -> list[Rejection]:
    return [
        Rejection(name="wrong CRC", batch=spoiled(GOOD, crc=0x12345678), kafka_code=CORRUPT_MESSAGE),
        Rejection(name="a flipped bit", batch=GOOD[:-1] + bytes([GOOD[-1] ^ 1]), kafka_code=CORRUPT_MESSAGE),
        Rejection(name="base offset 1", batch=spoiled(GOOD, base_offset=1), kafka_code=INVALID_RECORD),
        Rejection(name="base offset -1", batch=spoiled(GOOD, base_offset=-1), kafka_code=INVALID_RECORD),
        Rejection(name="count one more", batch=spoiled(GOOD, count=4), kafka_code=INVALID_RECORD),
        Rejection(name="count one less", batch=spoiled(GOOD, count=2), kafka_code=INVALID_RECORD),
        Rejection(name="count 0", batch=spoiled(GOOD, count=0), kafka_code=INVALID_RECORD),
        Rejection(name="count -1", batch=spoiled(GOOD, count=-1), kafka_code=INVALID_RECORD),
        Rejection(name="largest count", batch=spoiled(GOOD, count=2**31 - 1), kafka_code=INVALID_RECORD),
        Rejection(name="last offset one more", batch=spoiled(GOOD, last_offset_delta=3), kafka_code=INVALID_RECORD),
        Rejection(name="last offset -1", batch=spoiled(GOOD, last_offset_delta=-1), kafka_code=INVALID_RECORD),
        Rejection(
            name="no records and no count",
            batch=spoiled(GOOD[:HEADER_BYTES], length=49, count=0, last_offset_delta=-1),
            kafka_code=INVALID_RECORD,
        ),
        Rejection(name="control batch", batch=spoiled(GOOD, attributes=CONTROL), kafka_code=INVALID_RECORD),
        Rejection(
            name="compressed control batch",
            batch=spoiled(build_batch(records(), codec=GZIP), attributes=CONTROL | GZIP),
            kafka_code=INVALID_RECORD,
        ),
        Rejection(
            name="transactional without a transactional id",
            batch=spoiled(IDEMPOTENT, attributes=TRANSACTIONAL),
            kafka_code=TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        Rejection(
            name="producer id without sequence",
            batch=spoiled(GOOD, producer_id=4000, producer_epoch=0),
            kafka_code=INVALID_RECORD,
        ),
        Rejection(
            name="producer id with sequence -2",
            batch=spoiled(IDEMPOTENT, base_sequence=-2),
            kafka_code=INVALID_RECORD,
        ),
        Rejection(
            name="producer id with epoch -1",
            batch=spoiled(IDEMPOTENT, producer_epoch=-1, producer_id=4002),
            kafka_code=NONE,
        ),
        Rejection(name="producer id -2", batch=spoiled(IDEMPOTENT, producer_id=-2), kafka_code=NONE),
    ]


def _timestamps() -> list[Rejection]:
    future = NOW_MS * 2
    return [
        Rejection(name="far ahead", batch=build_batch(records(timestamp=future)), kafka_code=INVALID_TIMESTAMP),
        Rejection(
            name="last one far ahead",
            batch=build_batch([NewRecord(NOW_MS, b"k", b"v"), NewRecord(future, b"k", b"v")]),
            kafka_code=INVALID_TIMESTAMP,
        ),
        Rejection(
            name="too old for the topic",
            batch=build_batch(records(timestamp=1000)),
            settings={"message.timestamp.before.max.ms": str(HOUR_MS)},
            kafka_code=INVALID_TIMESTAMP,
        ),
        Rejection(
            name="append time where the producer sets the time",
            batch=spoiled(GOOD, attributes=APPEND_TIME),
            kafka_code=NONE,
        ),
        Rejection(
            name="append time where the broker sets the time",
            batch=spoiled(GOOD, attributes=APPEND_TIME),
            settings=APPEND_TIME_TOPIC,
            kafka_code=INVALID_TIMESTAMP,
        ),
        Rejection(
            name="far ahead where the broker sets the time",
            batch=build_batch(records(timestamp=future)),
            settings=APPEND_TIME_TOPIC,
            kafka_code=NONE,
        ),
        Rejection(name="largest timestamp wrong", batch=spoiled(GOOD, max_timestamp=NOW_MS - 9), kafka_code=NONE),
        Rejection(name="timestamp -2", batch=build_batch([NewRecord(-2, b"k", b"v")]), kafka_code=NONE),
    ]


def _codecs() -> list[Rejection]:
    return [
        *(
            Rejection(
                name=f"codec {codec}",
                batch=spoiled(GOOD, attributes=codec),
                kafka_code=UNKNOWN_SERVER_ERROR,  # an exception in Kafka that nobody catches
                ours=UNSUPPORTED_COMPRESSION_TYPE,
            )
            for codec in (5, 6, 7)
        ),
        Rejection(
            name="zstd before version 7",
            batch=build_batch(records(), codec=ZSTD),
            version=6,
            kafka_code=UNSUPPORTED_COMPRESSION_TYPE,
        ),
    ]


def _inner() -> list[tuple[str, bytes, int]]:
    """Header and CRC are right, the records they are about are not."""
    uncompressed = {
        "fewer records than counted": GOOD_RECORDS[: len(GOOD_RECORDS) // 3],
        "more records than counted": GOOD_RECORDS + raw_record(PLAIN_BODY + b"\0"),
        "a byte behind the records": GOOD_RECORDS + b"\0",
        "no records": b"",
    }
    single = {
        "a record longer than the batch": raw_record(PLAIN_BODY + b"\0", 100),
        "a record shorter than its fields": raw_record(PLAIN_BODY + b"\0", 4),
        "a record longer than its fields": raw_record(PLAIN_BODY + b"\0junk"),
        "a record of negative length": raw_record(PLAIN_BODY + b"\0", -1),
        "a key past the end": raw_record(b"\0\0\0\xc8\x01k\x02v\0"),
        "a value past the end": raw_record(b"\0\0\0\x02k\xc8\x01v\0"),
        "a negative count of headers": raw_record(PLAIN_BODY + b"\x01"),
        "a huge count of headers": raw_record(PLAIN_BODY + b"\xfe\xff\xff\xff\x0f"),
        "a header without a name": raw_record(PLAIN_BODY + b"\x02\x01\x01"),
    }
    not_utf8 = raw_record(PLAIN_BODY + b"\x02\x02\xff\x01")
    cut = compress(GZIP, GOOD_RECORDS)[:-9]
    return [
        *(
            (f"inner offsets {deltas}{where}", with_deltas(deltas, codec=codec), code)
            for deltas in ((1, 2, 3), (0, 0, 1), (2, 1, 0), (0, 1, 5), (0, 1, -1))
            for codec, where, code in (
                (0, "", NONE),
                (GZIP, ", gzip", UNKNOWN_SERVER_ERROR),
                (LZ4, ", lz4", UNKNOWN_SERVER_ERROR),
            )
        ),
        *((name, with_records(payload), INVALID_RECORD) for name, payload in uncompressed.items()),
        *((name, with_records(payload, count=1), INVALID_RECORD) for name, payload in single.items()),
        ("an endless varint", with_records(b"\xff" * 12, count=1), UNKNOWN_SERVER_ERROR),
        ("a header name that is not UTF-8", with_records(not_utf8, count=1), NONE),
        *(
            (f"{name} that is not", with_records(GOOD_RECORDS, codec=codec, compressed=False), UNKNOWN_SERVER_ERROR)
            for name, codec in (("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4))
        ),
        ("more gzip records than counted", with_records(GOOD_RECORDS * 2, codec=GZIP), INVALID_RECORD),
        ("a byte behind gzip records", with_records(GOOD_RECORDS + b"\0", codec=GZIP), INVALID_RECORD),
        ("gzip cut short", with_records(cut, codec=GZIP, compressed=False), UNKNOWN_SERVER_ERROR),
    ]


def _records() -> list[Rejection]:
    """Records that are wrong; in compacted topics every fault is the producer's and final: INVALID_RECORD."""
    null_key = [NewRecord(NOW_MS, None, b"v")]
    keys = [
        Rejection(
            name=f"no key in a compacted topic, {codec}",
            batch=build_batch(null_key, codec=codec),
            settings=COMPACTED,
            kafka_code=INVALID_RECORD,
        )
        for codec in ("none", "gzip")
    ]
    inner = [
        Rejection(name=f"{name}, {where}", batch=batch, settings=settings, kafka_code=code, ours=ours)
        for name, batch, code in _inner()
        for where, settings, ours in (("plain", {}, NONE), ("compacted", COMPACTED, INVALID_RECORD))
    ]
    return keys + inner


REJECTIONS = [*_accepted(), *_framing(), *_header(), *_timestamps(), *_codecs(), *_records()]
