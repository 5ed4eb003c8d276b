"""Compaction of segments against a model: the last record of every key, at the offset and in the batch it had"""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.log.compaction_world import LOGS, RETENTION_MS, NewBatch, World, newest
from tests.broker.log.log_world import NOW_MS
from tidemill.broker.log import compaction
from tidemill.broker.log.compaction import CleaningFailed, Rules, SourceSegment, compact, compact_batch, fill
from tidemill.broker.log.offset_map import OffsetMap
from tidemill.broker.log.segment import Segment
from tidemill.broker.log.segment_files import segment_name
from tidemill.core.records.batch import HEADER_BYTES, BatchView, read_header
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord, decode_records


@settings(max_examples=150, deadline=None)
@given(LOGS)
def test_the_last_record_of_every_key_survives_unchanged_and_nothing_else_does(log: list[list[NewBatch]]) -> None:
    world = World()
    for batches in log:
        world.write(batches)
    before, headers = world.records(), {view.base_offset: view for view in world.batches()}
    producers = world.producers
    assert world.clean(0, NOW_MS) == world.offset
    last = newest(before)
    assert world.records() == sorted(last.values(), key=lambda record: record.offset)
    for view in world.batches():
        was = headers[view.base_offset]
        same = ("last_offset", "leader_epoch", "producer_id", "producer_epoch", "base_sequence", "timestamp_type")
        assert [getattr(view, name) for name in same] == [getattr(was, name) for name in same]
        if view.record_count:
            assert view.codec == was.codec
            records = decode_records(view)
            assert view.max_timestamp == max(record.timestamp for record in records)
            assert view.has_delete_horizon == any(record.value is None for record in records)
            if view.has_delete_horizon:
                assert view.base_timestamp == NOW_MS + RETENTION_MS
        else:
            assert producers[view.producer_id] == view.last_offset, "only for the sake of its producer"
    kept = {view.producer_id: view.last_sequence for view in world.batches() if view.producer_id >= 0}
    for producer_id, next_sequence in world.sequences.items():
        assert kept[producer_id] == next_sequence - 1, "the sequence number that is due must be known after a restart"


@settings(max_examples=100, deadline=None)
@given(LOGS, LOGS, st.integers(0, 2 * RETENTION_MS))
def test_cleaning_in_two_goes_is_cleaning_once_and_tombstones_have_their_time(
    first: list[list[NewBatch]], second: list[list[NewBatch]], later_ms: int
) -> None:
    world = World()
    for batches in first:
        world.write(batches)
    first_dirty = world.clean(0, NOW_MS)
    horizons = {view.base_offset: view.base_timestamp for view in world.batches() if view.has_delete_horizon}
    for batches in second:
        world.write(batches)
    before = world.records()
    owner = {record.offset: view.base_offset for view in world.batches() for record in decode_records(view)}
    world.clean(first_dirty, NOW_MS + later_ms)
    expected = [
        record
        for record in sorted(newest(before).values(), key=lambda record: record.offset)
        if record.value is not None or horizons.get(owner[record.offset], NOW_MS + later_ms + 1) > NOW_MS + later_ms
    ]
    assert world.records() == expected
    for view in world.batches():
        if view.has_delete_horizon:
            due = horizons.get(view.base_offset, NOW_MS + later_ms + RETENTION_MS)
            assert view.base_timestamp == due, "the horizon is set once"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 300), min_size=60, max_size=300))
def test_a_map_that_is_full_means_another_round_not_another_result(keys: list[int]) -> None:
    world = World()
    for start in range(0, len(keys), 40):
        world.write([NewBatch([(key, b"v")], "none", -1, False) for key in keys[start : start + 40]])
    last = newest(world.records())
    covered, rounds = 0, 0
    while covered < world.offset:
        reached = world.clean(covered, NOW_MS, budget_bytes=64 * 24)
        assert reached > covered
        covered, rounds = reached, rounds + 1
    assert rounds >= len(set(keys)) // 64
    assert world.records() == sorted(last.values(), key=lambda record: record.offset)


def test_a_batch_with_more_keys_than_the_map_holds_is_refused_in_a_sentence() -> None:
    world = World()
    world.write([NewBatch([(key, b"v") for key in range(100)], "none", -1, False)])
    with pytest.raises(CleaningFailed, match=r"100 records .* log\.cleaner\.dedupe\.buffer\.size: it holds 57 keys"):
        fill(world.directory, world.sources, (0, 100), OffsetMap(1, keys_expected=100), lambda _size: None)


def test_a_batch_that_loses_nothing_is_copied_byte_by_byte() -> None:
    world = World()
    world.write([NewBatch([(1, b"a"), (2, b"b")], "zstd", 1, False)])
    before = bytes(world.batches()[0].batch_bytes())
    world.clean(0, NOW_MS)
    assert bytes(world.batches()[0].batch_bytes()) == before


def test_records_without_a_key_go() -> None:
    batch = build_batch([NewRecord(NOW_MS, None, b"a"), NewRecord(NOW_MS, b"k", b"b")])
    offset_map = OffsetMap(1, keys_expected=1)
    rules = Rules(now_ms=NOW_MS, delete_retention_ms=0, covered_offset=2, producers={})
    remains = compact_batch(read_header(batch), batch, offset_map, rules)
    assert remains is not None
    assert [record.key for record in decode_records(BatchView(remains[1]))] == [b"k"]
    beyond = replace(rules, covered_offset=0)
    assert compact_batch(read_header(batch), batch, offset_map, beyond) == (read_header(batch), batch)


def test_an_empty_batch_stays_until_its_producer_wrote_another_or_is_forgotten() -> None:
    world = World()
    world.write([NewBatch([(1, b"a")], "gzip", 7, False), NewBatch([(1, b"b")], "none", -1, False)])
    world.clean(0, NOW_MS)
    empty, _ = world.batches()
    assert (empty.record_count, empty.size_bytes, empty.codec, empty.last_sequence) == (0, HEADER_BYTES, 0, 0)
    first = bytes(empty.batch_bytes())
    world.clean(2, NOW_MS)
    assert bytes(world.batches()[0].batch_bytes()) == first
    world.producers.clear()
    world.clean(2, NOW_MS)
    assert [view.producer_id for view in world.batches()] == [-1]


@pytest.mark.parametrize("at", [3, 30, HEADER_BYTES + 4])
def test_a_corrupt_batch_ends_the_work_and_leaves_no_files(at: int) -> None:
    world = World()
    world.write([NewBatch([(1, b"a")], "none", -1, False), NewBatch([(2, b"b")], "none", -1, False)])
    name = segment_name(0)
    file = world.directory.open(name)
    byte = file.read_at(at, 1)[0]
    file.write_at(at, bytes([byte ^ 4]))
    names = world.directory.list()
    with pytest.raises(CleaningFailed, match=f"corrupt: {name}"):
        world.clean(0, NOW_MS)
    rules = Rules(now_ms=NOW_MS, delete_retention_ms=0, covered_offset=2, producers={})
    with pytest.raises(CleaningFailed, match=f"corrupt: {name}"):
        compact(world.directory, world.sources, OffsetMap(1, keys_expected=1), rules, 4096, lambda _size: None)
    assert world.directory.list() == names


def test_a_segment_too_large_for_its_index_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.write([NewBatch([(1, b"a")], "none", -1, False), NewBatch([(2, None)], "none", -1, False)])
    monkeypatch.setattr(compaction, "SEGMENT_BYTES_MAX", world.sources[0].size_bytes)
    names = world.directory.list()
    with pytest.raises(CleaningFailed, match=r"from 0 on are too large: lower segment\.bytes"):
        world.clean(0, NOW_MS)  # the tombstone's batch grows with its delete horizon
    assert world.directory.list() == names


def test_batches_of_transactions_are_refused() -> None:
    world = World()
    segment = Segment.create(world.directory, 0)
    batch = bytearray(build_batch([NewRecord(NOW_MS, b"k", b"v")], producer_id=1, base_sequence=0, transactional=True))
    segment.append(batch, NOW_MS, 0, 4096)
    source = SourceSegment(base_offset=0, size_bytes=segment.size_bytes, dense=True)
    with pytest.raises(CleaningFailed, match="batch of a transaction at offset 0"):
        fill(world.directory, [source], (0, 1), OffsetMap(1, keys_expected=1), lambda _size: None)
