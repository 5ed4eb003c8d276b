"""What is asked of a leader, and what is made of its answers"""

import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from tidemill.broker.replication.fetching import (
    BACKOFF_FIRST_MS,
    Action,
    BeginAnew,
    Copied,
    FetchSettings,
    Held,
    Key,
    LeaderFetches,
    Parted,
    Report,
    Stage,
)
from tidemill.broker.replication.partition import Divergence
from tidemill.core.error_code import ErrorCode
from tidemill.core.types import TopicPartition
from tidemill.core.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

ONE, TWO = uuid.UUID(int=1), uuid.UUID(int=2)
A, B, C = Key.of(ONE, 0), Key.of(ONE, 1), Key.of(TWO, 0)
BROKER_EPOCH = 12


def name(key: Key) -> TopicPartition:
    return TopicPartition("one" if key.topic_id == ONE else "two", key.partition)


def held(offset: int = 0, last_epoch: int = -1, high_watermark: int = 0) -> Held:
    return Held(offset=offset, last_epoch=last_epoch, log_start=0, high_watermark=high_watermark)


def row(key: Key, records: bytes = b"", **more: Any) -> PartitionData:
    told = {"high_watermark": 3, "log_start_offset": 0} | more
    return PartitionData(partition_index=key.partition, records=records, **told)


def response(rows: dict[Key, PartitionData], session_id: int = 0, error: int = 0) -> FetchResponse:
    return FetchResponse(
        error_code=error,
        session_id=session_id,
        responses=tuple(
            FetchableTopicResponse(topic_id=key.topic_id, partitions=(each,)) for key, each in rows.items()
        ),
    )


class World:
    """Broker 2 follows some partitions at one leader, in epoch 7."""

    def __init__(self, *keys: Key, **settings: int) -> None:
        self.machine = LeaderFetches(2, FetchSettings(**settings))
        self.now_ms = 1000
        for key in keys:
            self.machine.follow(key, name(key), 7)
        for key in keys:
            self.held(key)

    def held(self, key: Key, offset: int = 0, last_epoch: int = -1, epoch: int = 7) -> list[Action]:
        return self.machine.held(key, epoch, held(offset, last_epoch))

    def ask(self, later_ms: int = 0) -> FetchRequest | None:
        self.now_ms += later_ms
        return self.machine.next_request(self.now_ms, BROKER_EPOCH)

    def answer(self, rows: dict[Key, PartitionData], session_id: int = 0, error: int = 0) -> list[Action]:
        return self.machine.answered(response(rows, session_id, error), self.now_ms)


def rows_of(request: FetchRequest | None) -> dict[Key, FetchPartition]:
    """What is asked, by partition."""
    assert request is not None
    return {Key.of(topic.topic_id, each.partition): each for topic in request.topics for each in topic.partitions}


def asked(request: FetchRequest | None) -> dict[Key, int]:
    """Offsets by partition."""
    return {key: each.fetch_offset for key, each in rows_of(request).items()}


def forgotten(request: FetchRequest | None) -> set[Key]:
    assert request is not None
    return {Key.of(topic.topic_id, number) for topic in request.forgotten_topics_data for number in topic.partitions}


def copied(key: Key, records: bytes = b"", offset: int = 0, high_watermark: int = 3) -> Copied:
    return Copied(key=key, leader_epoch=7, offset=offset, records=records, high_watermark=high_watermark, log_start=0)


def reports(actions: Sequence[Action]) -> list[tuple[str, bool]]:
    return [(str(each.partition), bool(each.reason)) for each in actions if isinstance(each, Report)]


# --- what is asked


def test_the_first_request_says_who_asks_and_where_everything_stands() -> None:
    world = World()
    assert (world.ask(), world.machine.next_deadline_ms()) == (None, None)
    world.machine.follow(A, name(A), 7)
    assert world.ask() is None, "nobody knows yet how far it is held"
    world.machine.held(A, 7, Held(offset=4, last_epoch=6, log_start=1, high_watermark=3))
    request = world.ask()
    assert request is not None
    assert (request.replica_id, request.replica_state.replica_id, request.replica_state.replica_epoch) == (-1, 2, 12)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 10 * 2**20)
    assert (request.session_id, request.session_epoch) == (0, 0)
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert (partition.current_leader_epoch, partition.fetch_offset, partition.last_fetched_epoch) == (7, 4, 6)
    assert (partition.log_start_offset, partition.high_watermark, partition.partition_max_bytes) == (1, 3, 2**20)
    assert world.ask() is None, "one at a time"


def test_nothing_is_asked_before_what_came_last_is_held() -> None:
    world = World(A, B)
    assert asked(world.ask()) == {A: 0, B: 0}
    assert world.answer({A: row(A, b"abc"), B: row(B)}) == [copied(A, b"abc"), copied(B)]
    assert (world.ask(1000), world.machine.stage(A)) == (None, Stage.STORING), "its offset would be no word for it"
    world.held(A, 3, 7)
    assert asked(world.ask()) == {A: 3, B: 0}


def test_without_a_session_whoever_has_had_something_comes_last() -> None:
    world = World(A, B, C)
    assert list(asked(world.ask())) == [A, B, C]
    world.answer({A: row(A, b"abc")})
    world.held(A, 3, 7)
    assert list(asked(world.ask())) == [B, A, C], "of one topic: an answer that is full has had no room for the others"


def test_in_a_session_only_what_differs_is_sent() -> None:
    world = World(A, B, C)
    assert asked(world.ask()) == {A: 0, B: 0, C: 0}
    world.answer({A: row(A, b"abc"), B: row(B), C: row(C)}, session_id=5)
    world.held(A, 3)
    request = world.ask()
    assert request is not None
    assert (request.session_id, request.session_epoch, asked(request), forgotten(request)) == (5, 1, {A: 3}, set())
    world.answer({C: row(C, b"c")}, session_id=5)
    world.machine.unfollow(B)
    world.held(C, 1)
    request = world.ask()
    assert request is not None
    assert (request.session_epoch, asked(request), forgotten(request)) == (2, {C: 1}, {B})
    world.answer({}, session_id=5)
    assert asked(world.ask()) == {}


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ],
)
def test_a_session_that_is_over_is_begun_again_at_once(error: ErrorCode) -> None:
    world = World(A, B)
    world.ask()
    world.answer({A: row(A), B: row(B)}, session_id=5)
    world.ask()
    assert world.answer({}, error=error) == []
    request = world.ask()
    assert request is not None
    assert (request.session_epoch, asked(request)) == (0, {A: 0, B: 0})
    assert reports(world.answer({}, error=error)) == [("None", True)], "of a request without one it makes no sense"
    assert world.ask() is None


def test_without_a_session_everything_is_sent_each_time() -> None:
    world = World(A, B)
    for _ in range(2):
        assert asked(world.ask()) == {A: 0, B: 0}
        assert world.answer({A: row(A), B: row(B)}) == [copied(A), copied(B)]


def test_a_leader_is_told_which_high_watermark_it_has_told() -> None:
    """It answers at once while that is another than its own."""
    world = World(A)

    def told() -> int:
        request = world.ask()
        assert request is not None
        return request.topics[0].partitions[0].high_watermark

    assert told() == 0
    world.answer({A: row(A, high_watermark=3)})
    assert told() == 3
    world.answer({A: row(A, b"abc", high_watermark=6)})
    world.held(A, 6)
    assert told() == 6
    world.answer({A: row(A, high_watermark=6)}, session_id=4)
    assert asked(world.ask()) == {}, "a session knows it"
    world.answer({A: row(A, high_watermark=8)}, session_id=4)
    assert asked(world.ask()) == {}
    assert world.answer({A: row(A, b"more", high_watermark=8)}, session_id=4) == [
        copied(A, b"more", 6, high_watermark=8)
    ]


@pytest.mark.parametrize("session_id", [0, 5])
def test_a_leader_is_told_where_a_log_begins_also_when_there_is_nothing_new(session_id: int) -> None:
    world = World(A, B)
    told = lambda: {key: each.log_start_offset for key, each in rows_of(world.ask()).items()}  # noqa: E731
    assert told() == {A: 0, B: 0}
    world.answer({A: row(A), B: row(B)}, session_id)
    world.machine.begins(A, 2)
    assert told() == ({A: 2} if session_id else {A: 2, B: 0})
    world.machine.begins(B, 1)  # while a request is under way, whose answer is about what was asked
    assert world.answer({B: row(B, b"abc")}, session_id) == [copied(B, b"abc")]
    world.machine.held(B, 7, Held(offset=3, last_epoch=7, log_start=3, high_watermark=3))
    assert told() == ({B: 3} if session_id else {A: 2, B: 3})
    assert world.answer({B: row(B, b"de")}, session_id) == [copied(B, b"de", 3)]
    world.machine.begins(B, 4)
    world.machine.refused(B, 7, "the disk is full", world.now_ms)
    world.machine.unfollow(A)
    world.machine.begins(A, 9)
    world.now_ms += 1000
    assert told() == {B: 4}


def test_what_is_throttled_is_left_out_for_a_while() -> None:
    world = World(A, B)
    world.machine.hold_back(A, world.now_ms + 200)
    assert asked(world.ask()) == {B: 0}
    world.answer({B: row(B)})
    world.machine.rested(world.now_ms + 199)
    assert world.machine.stage(A) is Stage.RESTING
    world.machine.rested(world.now_ms + 200)
    assert set(world.machine.ready) == {A, B}
    assert asked(world.ask(200)) == {A: 0, B: 0}


# --- what is answered


def test_answers_about_what_has_changed_meanwhile_mean_nothing() -> None:
    world = World(A, B, C)
    world.ask()
    world.machine.follow(A, name(A), 8)
    world.machine.unfollow(B)
    world.held(C, 9)
    assert world.answer({A: row(A, b"a"), B: row(B, b"b"), C: row(C, b"c")}) == []
    assert world.held(A, 5, epoch=7) == [], "of the leadership before"
    assert world.machine.stage(A) is Stage.STORING
    world.held(A, 5, epoch=8)
    assert asked(world.ask()) == {A: 5, C: 9}


def test_logs_that_part_are_left_out_until_they_are_cut() -> None:
    world = World(A, B)
    world.ask()
    parted = row(A, diverging_epoch=EpochEndOffset(epoch=3, end_offset=2))
    assert world.answer({A: parted, B: row(B)}, session_id=5) == [
        Parted(key=A, leader_epoch=7, divergence=Divergence(3, 2)),
        copied(B),
    ]
    request = world.ask()
    assert (asked(request), forgotten(request)) == ({}, {A}), "the others go on"
    world.answer({}, session_id=5)
    world.held(A, 2, 3)
    assert asked(world.ask()) == {A: 2}


def test_what_the_leader_has_deleted_is_begun_anew_where_it_begins() -> None:
    world = World(A, B)
    world.held(A, 5, 6)
    world.ask()
    gone = row(A, error_code=ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=40)
    beyond = row(B, error_code=ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=0)
    assert world.answer({A: gone, B: beyond}) == [
        BeginAnew(key=A, leader_epoch=7, offset=40),
        BeginAnew(key=B, leader_epoch=7, offset=0),
    ]
    assert world.ask() is None
    world.machine.follow(A, name(A), 7)
    world.held(A, 40)
    assert asked(world.ask()) == {A: 40}


def test_a_log_with_records_is_not_thrown_away_because_the_leader_has_fewer() -> None:
    world = World(A)
    world.held(A, 5, 9)
    world.ask()
    actions = world.answer({A: row(A, error_code=ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=0)})
    assert (reports(actions), world.machine.stage(A)) == ([("one-0", True)], Stage.RESTING)


# --- trouble


def test_who_is_refused_waits_longer_each_time_and_says_so_once() -> None:
    world = World(A, B, replica_fetch_backoff_ms=400)
    storage = row(A, error_code=ErrorCode.KAFKA_STORAGE_ERROR, high_watermark=-1)
    pauses, told = [], []
    for _ in range(6):
        assert A in asked(world.ask())
        told += reports(world.answer({A: storage, B: row(B)}))
        assert world.machine.stage(A) is Stage.RESTING
        begun = world.now_ms
        while A not in asked(world.ask(1)):
            world.answer({B: row(B)})
        pauses.append(world.now_ms - begun)
        world.machine.failed("", world.now_ms)
        world.now_ms += 10_000
    assert pauses == [50, 100, 200, 400, 400, 400]
    assert told == [("one-0", True)]


def test_what_the_two_just_do_not_know_yet_is_told_when_it_does_not_end() -> None:
    world = World(A)
    told = []
    for _ in range(8):
        world.ask(10_000)
        told.append(reports(world.answer({A: row(A, error_code=ErrorCode.UNKNOWN_LEADER_EPOCH)})))
    assert told == [[], [], [], [], [], [("one-0", True)], [], []]
    world.ask(10_000)
    assert reports(world.answer({A: row(A)})) == [("one-0", False)]
    world.ask()
    world.answer({A: row(A, error_code=ErrorCode.UNKNOWN_LEADER_EPOCH)})
    assert world.machine.next_deadline_ms() == world.now_ms + BACKOFF_FIRST_MS, "it begins with a short one again"


def test_what_cannot_be_stored_is_asked_for_again() -> None:
    world = World(A)
    world.ask()
    world.answer({A: row(A, b"torn")})
    assert reports(world.machine.refused(A, 7, "torn", world.now_ms)) == [("one-0", True)]
    assert world.held(A) == []
    assert world.ask() is None
    assert asked(world.ask(BACKOFF_FIRST_MS)) == {A: 0}
    world.answer({A: row(A, b"whole")})
    assert reports(world.held(A, 1, 7)) == [("one-0", False)]
    assert world.machine.refused(A, 6, "of another epoch", world.now_ms) == []


def test_how_long_a_partition_is_not_copied_is_known_of_each() -> None:
    world = World(A, B)
    world.ask()
    world.answer({A: row(A, error_code=ErrorCode.KAFKA_STORAGE_ERROR), B: row(B)})
    began_ms = world.now_ms
    for _ in range(3):
        assert A in asked(world.ask(10_000))
        assert (world.machine.failing_since_ms(A), world.machine.failing_since_ms(B)) == (began_ms, None)
        world.answer({A: row(A, b"torn"), B: row(B)})
        world.machine.refused(A, 7, "torn", world.now_ms)
    world.ask(10_000)
    world.answer({A: row(A, b"whole")})
    assert world.machine.failing_since_ms(A) == began_ms, "nothing is held yet"
    world.held(A, 1, 7)
    assert world.machine.failing_since_ms(A) is None
    world.ask()
    world.answer({A: row(A, error_code=ErrorCode.KAFKA_STORAGE_ERROR)})
    assert world.machine.failing_since_ms(A) == world.now_ms
    world.machine.unfollow(A)
    assert world.machine.failing_since_ms(A) is None


def test_a_leader_that_is_gone_is_left_alone_in_longer_and_longer_pauses() -> None:
    world = World(A, B)
    world.ask()
    world.answer({A: row(A), B: row(B)}, session_id=5)
    told, pauses = [], []
    for _ in range(7):
        assert asked(world.ask()).keys() <= {A, B}
        told += reports(world.machine.failed("nobody answers", world.now_ms))
        due_ms = world.machine.next_deadline_ms()
        assert due_ms is not None
        pauses.append(due_ms - world.now_ms)
        assert world.ask(pauses[-1] - 1) is None
        world.now_ms = due_ms
    assert (pauses, told) == ([50, 100, 200, 400, 800, 1000, 1000], [("None", True)])
    request = world.ask()
    assert request is not None
    assert (request.session_epoch, asked(request)) == (0, {A: 0, B: 0}), "it may be another by now"
    assert reports(world.answer({A: row(A), B: row(B)})) == [("None", False)]


def test_the_ends_of_partitions_are_the_end_of_their_pauses() -> None:
    world = World(A, B)
    world.ask()
    world.answer({A: row(A, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER), B: row(B)})
    world.machine.unfollow(B)
    world.machine.unfollow(B)
    assert (world.machine.next_deadline_ms(), len(world.machine)) == (world.now_ms + 50, 1)
    world.machine.unfollow(A)
    assert (world.machine.next_deadline_ms(), world.machine.stage(A)) == (None, None)
    world.machine.away(A)
    world.machine.hold_back(A, 10**6)
    assert len(world.machine.ready) == 0
