"""Batches from another node: taken as they are, or refused as a whole."""

import random

import pytest

from tidemill.broker.quorum.control import LeaderChange, control_batch
from tidemill.broker.quorum.log_batches import FetchedDataRefused, LogBatch, check_fetched, decode_log
from tidemill.broker.quorum.records import MetadataFormatError, MetadataRecord, ProducerIdsRecord
from tidemill.broker.quorum.store import encode_batch
from tidemill.core.records.builder import build_batch, build_empty_batch
from tidemill.core.records.record import NewRecord

NOW_MS = 1_700_000_000_000


def records(number: int, count: int = 1) -> tuple[MetadataRecord, ...]:
    return tuple(ProducerIdsRecord(broker_id=1, broker_epoch=0, next_producer_id=number + n) for n in range(count))


def batch(base_offset: int, epoch: int, count: int = 1) -> bytes:
    return encode_batch(records(base_offset, count), base_offset, NOW_MS, epoch)


LEADER = LeaderChange(leader_id=3, voters=(1, 2, 3), granting_voters=(2, 3))
DATA = batch(10, 4, 2) + control_batch([LEADER], base_offset=12, epoch=5, now_ms=NOW_MS) + batch(13, 5, 3)


def test_batches_are_decoded_with_their_offsets_and_epochs() -> None:
    assert list(decode_log(DATA)) == [
        LogBatch(10, 12, 4, records(10, 2), ()),
        LogBatch(12, 13, 5, (), (LEADER,)),
        LogBatch(13, 16, 5, records(13, 3), ()),
    ]
    assert list(decode_log(b"")) == []
    with pytest.raises(MetadataFormatError, match="byte"):
        list(decode_log(DATA[:-1]))


def test_what_follows_is_taken() -> None:
    found = check_fetched(DATA, offset_due=10, epoch_min=4)
    assert [(view.base_offset, view.leader_epoch) for view in found] == [(10, 4), (12, 5), (13, 5)]
    assert check_fetched(b"", offset_due=10, epoch_min=4) == []


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (batch(9, 4), "at byte 0 begins at offset 9, 10 is due"),
        (batch(11, 4), "at byte 0 begins at offset 11, 10 is due"),
        (batch(10, 4) + batch(12, 4), "begins at offset 12, 11 is due"),
        (batch(10, 3), "offset 10, is of epoch 3 behind 4"),
        (batch(10, 5) + batch(11, 4), "offset 11, is of epoch 4 behind 5"),
        (batch(10, 4) + b"\0" * 30, r"offset 11, ends after 30 bytes"),
        (batch(10, 4) + b"\0" * 90, r"offset 11, has magic 0"),
        (batch(10, 4) + batch(11, 4, 2)[:-1], r"offset 11, ends after \d+ of \d+ bytes"),
        (build_empty_batch(10, 11, leader_epoch=4), "has 0 records up to 11"),
        (control_batch([LEADER], base_offset=10, epoch=4, now_ms=0)[:-1], "ends after"),
        (
            build_batch([NewRecord(0, b"\0\0\0\x06", b"\0\x09")], base_offset=10, leader_epoch=4, control=True),
            "cannot be read: version 9 of the voters record",
        ),
    ],
)
def test_what_cannot_follow_is_refused_and_named(data: bytes, says: str) -> None:
    with pytest.raises(FetchedDataRefused, match=says):
        check_fetched(data, offset_due=10, epoch_min=4)


@pytest.mark.parametrize("seed", range(100))
def test_no_bit_can_be_another_one_below_the_crc(seed: int) -> None:
    rng = random.Random(seed)
    position = rng.choice([n for n in range(len(DATA)) if n % len(batch(10, 4, 2)) >= 8])
    damaged = bytearray(DATA)
    damaged[position] ^= 1 << rng.randrange(8)
    try:
        found = check_fetched(bytes(damaged), offset_due=10, epoch_min=4)
    except FetchedDataRefused:
        return
    epochs = [view.leader_epoch for view in found]
    assert epochs != [4, 5, 5], "only epochs lie outside the CRC and may pass for others"
    assert epochs == sorted(epochs)
