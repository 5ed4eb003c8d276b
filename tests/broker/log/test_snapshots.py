"""Producer snapshots: Kafka's bytes in front, everything remembered"""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.broker.log.producers import KeptBatch, ProducerState, unbroken_run
from tidemill.broker.log.snapshots import SnapshotDamaged, decode, encode
from tidemill.core.records.crc import crc32c

batches = st.builds(
    lambda first, count, base, timestamp: KeptBatch(first, first + count, base, base + count, timestamp),
    st.integers(0, 10**6),
    st.integers(0, 100),
    st.integers(0, 2**50),
    st.integers(-1, 2**45),
)
states = st.lists(
    st.builds(
        ProducerState,
        producer_id=st.integers(0, 2**62),
        epoch=st.integers(0, 2**15 - 1),
        batches=st.lists(batches, max_size=5).map(tuple),
        last_seen_ms=st.just(0),
        transaction_start=st.integers(-1, 2**50),
        coordinator_epoch=st.integers(-1, 2**31 - 1),
        run=st.sampled_from([0, 1, 10**6]),  # beyond the batches that are kept
    ).map(lambda state: state._replace(run=unbroken_run(state.batches) + (state.run if state.batches else 0))),
    max_size=5,
    unique_by=lambda state: state.producer_id,
)


@given(states)
def test_everything_comes_back(written: list[ProducerState]) -> None:
    assert decode(encode(written)) == written


def test_the_front_is_what_kafka_writes() -> None:
    kept = (KeptBatch(0, 1, 10, 11, 100), KeptBatch(2, 6, 12, 16, 200))
    data = encode([ProducerState(producer_id=5, epoch=3, batches=kept, last_seen_ms=0)])
    version, crc, count = struct.unpack_from(">hIi", data)
    assert (version, crc, count) == (1, crc32c(data[6:]), 1)
    assert struct.unpack_from(">qhiqiqiq", data, 10) == (5, 3, 6, 16, 4, 200, -1, -1)


def test_a_file_of_kafkas_is_understood() -> None:
    body = struct.pack(">i", 2)
    body += struct.pack(">qhiqiqiq", 5, 3, 1, 16, 4, 200, -1, -1)  # sequence numbers have wrapped
    body += struct.pack(">qhiqiqiq", 6, 0, -1, -1, 0, 200, 2, -1)  # only a transaction marker
    data = struct.pack(">hI", 1, crc32c(body)) + body
    assert decode(data) == [
        ProducerState(5, 3, (KeptBatch(2**31 - 3, 1, 12, 16, 200),), 0, run=5),
        ProducerState(6, 0, (), 0, coordinator_epoch=2),
    ]


def test_a_run_is_written_where_it_is_longer_than_the_batches_say() -> None:
    kept = (KeptBatch(10, 12, 100, 102, 5),)
    short, long = (ProducerState(7, 3, kept, 0, run=run) for run in (3, 13))
    assert decode(encode([short])) == [short]
    assert decode(encode([long])) == [long]
    assert encode([long]).endswith(struct.pack(">4siqI", b"TMR1", 1, 7, 13)), (
        "behind what releases before this one read"
    )
    assert len(encode([long])) == len(encode([short])) + 20
    endless = ProducerState(7, 3, kept, 0, run=2**40)
    assert decode(encode([endless])) == [endless._replace(run=2**32 - 1)]


@given(states, st.data())
def test_damage_is_noticed(written: list[ProducerState], draw: st.DataObject) -> None:
    data = bytearray(encode(written))
    at = draw.draw(st.integers(0, len(data) - 1))
    data[at] ^= 1 << draw.draw(st.integers(0, 7))
    with pytest.raises(SnapshotDamaged):
        decode(bytes(data))
    with pytest.raises(SnapshotDamaged):
        decode(bytes(data)[:at])


def test_a_count_that_lies_is_noticed() -> None:
    body = struct.pack(">i", 1000)
    with pytest.raises(SnapshotDamaged):
        decode(struct.pack(">hI", 1, crc32c(body)) + body)
