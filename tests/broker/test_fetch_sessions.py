"""Sessions: what a client sees through one equals what full fetches show, and nobody is starved or robbed of memory."""

import itertools
import uuid
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.fetch_sessions_world import (
    FOLLOWER,
    IMAGE,
    Log,
    cluster,
    elected,
    grown,
    places,
    request,
    sessions,
    sources,
)
from tidemill.broker.fetch_sessions import EPOCH_MAX, EVICTION_MS, FetchSessions, FetchTurn, Marks, next_epoch
from tidemill.broker.quorum.image import ClusterImage, apply_batch
from tidemill.broker.quorum.records import (
    ConfigRecord,
    RemoveTopicRecord,
)
from tidemill.core.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch, KafkaError
from tidemill.core.wire.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

TOPICS = ("a", "b")
PARTITIONS = tuple((topic, number) for topic in TOPICS for number in range(3))


def quiet(turn: FetchTurn, **more: object) -> list[PartitionData]:
    return [
        PartitionData(
            **{
                "partition_index": wanted.partition.partition,
                "high_watermark": 5,
                "log_start_offset": 0,
                "records": b"",
            }
            | more  # type: ignore[arg-type]
        )
        for wanted in turn.wanted
    ]


def created(cache: FetchSessions, count: int = 1, now_ms: int = 0, **more: object) -> int:
    turn = cache.begin(request({("t", number): 0 for number in range(count)}, **more), 12, now_ms)  # type: ignore[arg-type]
    return cache.finish(turn, quiet(turn), now_ms).session_id


def test_a_full_fetch_gets_everything_and_a_session() -> None:
    cache = sessions()
    turn = cache.begin(request({("a", 0): 0, ("b", 1): 7}), 12, 0)
    assert places(turn) == [("a", 0), ("b", 1)]
    answer = cache.finish(turn, quiet(turn), 0)
    assert (answer.session_id, list(answer.numbers)) == (1, [0, 1])
    assert (len(cache), cache.partitions) == (1, 2)


@pytest.mark.parametrize(("epoch", "partitions"), [(-1, {("a", 0): 0}), (0, {})])
def test_without_a_wish_or_without_partitions_there_is_no_session(
    epoch: int, partitions: dict[tuple[str, int], int]
) -> None:
    cache = sessions()
    turn = cache.begin(request(partitions, epoch=epoch), 12, 0)
    assert cache.finish(turn, quiet(turn), 0).session_id == 0
    assert len(cache) == 0


def test_only_news_is_told_and_an_error_until_it_is_over() -> None:
    cache = sessions()
    session_id = created(cache, 2)
    epoch = itertools.count(1)

    def ask(*rows: dict[str, object]) -> list[int]:
        turn = cache.begin(request({}, session_id, next(epoch)), 12, 0)
        data = [
            PartitionData(
                **{"partition_index": number, "high_watermark": 5, "log_start_offset": 0, "records": b""} | row  # type: ignore[arg-type]
            )
            for number, row in enumerate(rows)
        ]
        answer = cache.finish(turn, data, 0)
        assert answer.session_id == session_id
        return list(answer.numbers)

    assert ask({}, {}) == []
    assert ask({"high_watermark": 6}, {}) == [0]
    assert ask({"high_watermark": 6}, {"log_start_offset": 2}) == [1]
    moved: dict[str, object] = {"log_start_offset": 2}
    assert ask({"high_watermark": 6, "last_stable_offset": 3}, moved) == [0]
    known: dict[str, object] = {"high_watermark": 6, "last_stable_offset": 3}
    assert ask(known, moved | {"error_code": 3}) == [1]
    assert ask(known, moved | {"error_code": 3}) == [1]
    assert ask(known, moved) == [1], "that it is over is news"
    assert ask(known, moved) == []
    assert ask(known | {"diverging_epoch": EpochEndOffset(epoch=1, end_offset=2)}, moved) == [0]
    assert ask(known | {"preferred_read_replica": 2}, moved) == [0]


def test_partitions_that_brought_records_are_read_last_the_next_time() -> None:
    cache = sessions()
    session_id = created(cache, 3)
    turn = cache.begin(request({}, session_id, 1), 12, 0)
    data = quiet(turn)
    data[0] = PartitionData(partition_index=0, high_watermark=5, log_start_offset=0, records=b"x")
    cache.finish(turn, data, 0)
    assert places(cache.begin(request({}, session_id, 2), 12, 0)) == [("t", 1), ("t", 2), ("t", 0)]


def test_partitions_are_changed_added_and_forgotten() -> None:
    cache = sessions()
    session_id = created(cache, 2)
    turn = cache.begin(request({("t", 1): 9, ("u", 0): 4}, session_id, 1, forgotten=(("t", 0), ("t", 7))), 12, 0)
    assert [
        (place, wanted.partition.fetch_offset) for place, wanted in zip(places(turn), turn.wanted, strict=True)
    ] == [
        (("t", 1), 9),
        (("u", 0), 4),
    ]
    assert list(cache.finish(turn, quiet(turn), 0).numbers) == [1]
    assert cache.partitions == 2
    turn = cache.begin(request({}, session_id, 2, forgotten=(("t", 1), ("u", 0))), 12, 0)
    assert (turn.wanted, cache.finish(turn, [], 0).session_id) == ((), 0)
    assert (len(cache), cache.partitions) == (0, 0)


def test_wrong_ids_and_epochs_are_refused() -> None:
    cache = sessions()
    session_id = created(cache)
    with pytest.raises(FetchSessionIdNotFound):
        cache.begin(request({}, session_id + 1, 1), 12, 0)
    with pytest.raises(FetchSessionIdNotFound):
        cache.begin(request({}, 0, 1), 12, 0)
    with pytest.raises(InvalidFetchSessionEpoch):
        cache.begin(request({}, session_id, 2), 12, 0)
    with pytest.raises(FetchSessionTopicIdError):
        cache.begin(request({}, session_id, 1), 13, 0)
    turn = cache.begin(request({}, session_id, 1), 12, 0)
    with pytest.raises(InvalidFetchSessionEpoch):
        cache.begin(request({}, session_id, 1), 12, 0)
    cache.finish(turn, quiet(turn), 0)


def test_a_session_by_topic_id_is_one_of_its_own() -> None:
    cache = sessions()
    topic = FetchTopic(topic_id=uuid.UUID(int=7), partitions=(FetchPartition(partition=0),))
    turn = cache.begin(FetchRequest(session_epoch=0, topics=(topic,)), 13, 0)
    session_id = cache.finish(turn, quiet(turn), 0).session_id
    with pytest.raises(FetchSessionTopicIdError):
        cache.begin(request({}, session_id, 1), 12, 0)
    forgotten = ForgottenTopic(topic_id=uuid.UUID(int=7), partitions=(0,))
    turn = cache.begin(FetchRequest(session_id=session_id, session_epoch=1, forgotten_topics_data=(forgotten,)), 13, 0)
    assert turn.wanted == ()


def test_an_answer_that_was_overtaken_is_refused() -> None:
    cache = sessions()
    session_id = created(cache)
    first = cache.begin(request({}, session_id, 1), 12, 0)
    cache.begin(request({}, session_id, 2), 12, 0)
    with pytest.raises(InvalidFetchSessionEpoch):
        cache.finish(first, quiet(first), 0)


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_fetch_ends_the_session_that_it_names(epoch: int) -> None:
    cache = sessions()
    session_id = created(cache)
    turn = cache.begin(request({("t", 0): 0}, session_id, epoch), 12, 0)
    answer = cache.finish(turn, quiet(turn), 0)
    assert answer.session_id == (2 if epoch == 0 else 0)
    with pytest.raises(FetchSessionIdNotFound):
        cache.begin(request({}, session_id, 1), 12, 0)


def test_epochs_begin_again_at_one() -> None:
    assert (next_epoch(0), next_epoch(1), next_epoch(EPOCH_MAX)) == (1, 2, 1)


@pytest.mark.parametrize(
    ("age_ms", "unused_ms", "size", "more", "evicts"),
    [
        (0, 0, 5, {}, False),  # young
        (EVICTION_MS + 1, 0, 1, {}, False),  # old, but worth more
        (EVICTION_MS + 1, 0, 2, {}, False),  # old and worth as much
        (EVICTION_MS + 1, 0, 3, {}, True),  # old and worth less
        (EVICTION_MS + 1, EVICTION_MS + 1, 1, {}, True),  # unused
        (0, 0, 1, FOLLOWER, True),  # a follower is worth more than any consumer
    ],
)
def test_a_full_cache_gives_way_to_what_is_worth_more(
    age_ms: int, unused_ms: int, size: int, more: dict[str, object], evicts: bool
) -> None:
    cache = sessions(1)
    old = created(cache, 2, 0)
    used_at = age_ms - unused_ms
    turn = cache.begin(request({}, old, 1), 12, used_at)
    cache.finish(turn, quiet(turn), used_at)
    new = created(cache, size, age_ms, **more)
    assert (new != 0, cache.evictions, len(cache)) == (evicts, int(evicts), 1)


def test_a_follower_gives_way_to_followers_only_when_it_is_old() -> None:
    cache = sessions(1)
    assert created(cache, 2, 0, **FOLLOWER)
    assert created(cache, 3, 5, **FOLLOWER) == 0
    assert created(cache, 99, EVICTION_MS - 1) == 0
    assert created(cache, 3, EVICTION_MS + 1, **FOLLOWER) != 0


def test_a_refusal_is_remembered_for_a_moment_but_never_against_more_worth() -> None:
    cache = sessions(2)
    old = EVICTION_MS + 1
    for _ in range(2):
        session_id = created(cache, 5, 0)
        turn = cache.begin(request({}, session_id, 1), 12, old)
        cache.finish(turn, quiet(turn), old)
    assert created(cache, 5, old) == 0
    forgotten = (("t", 1), ("t", 2), ("t", 3))
    cache.begin(request({}, 1, 2, forgotten=forgotten), 12, old)
    assert created(cache, 3, old + 999) == 0, "the first session is worth less by now, which is not noticed at once"
    assert created(cache, 3, old + 1000) != 0
    assert created(cache, 5, old + 1001) == 0
    assert created(cache, 6, old + 1002) != 0
    assert len(cache) == 2


def test_no_slots_are_no_sessions_and_ids_are_not_given_twice() -> None:
    assert created(sessions(0)) == 0
    cache = FetchSessions(5, iter([0, 7, 7, 8]).__next__)
    assert [created(cache), created(cache)] == [7, 8]


def test_partitions_of_all_sessions_are_limited() -> None:
    cache = sessions(partitions_max=5)
    first = created(cache, 3)
    assert created(cache, 3) == 0
    assert created(cache, 2) != 0
    turn = cache.begin(request({("u", 0): 0}, first, 1), 12, 0)
    assert len(turn.wanted) == 4
    assert cache.finish(turn, quiet(turn), 0).session_id == 0, "too large now: it goes on without a session"
    assert cache.partitions == 2


def test_names_that_no_topic_can_have_are_not_remembered() -> None:
    cache = sessions()
    turn = cache.begin(request({("x" * 250, 0): 0, ("t", 0): 0}), 12, 0)
    assert cache.finish(turn, quiet(turn), 0).session_id == 0
    session_id = created(cache)
    turn = cache.begin(request({("x" * 250, 0): 0}, session_id, 1), 12, 0)
    assert len(turn.wanted) == 2
    assert cache.finish(turn, quiet(turn), 0).session_id == 0
    assert (len(cache), cache.partitions) == (0, 0)


def quietened(cache: FetchSessions, logs: dict[int, "Log"], image: ClusterImage = IMAGE) -> int:
    """A session of partitions that have been read to their ends."""
    turn = cache.begin(request({("t", number): log.end for number, log in logs.items()}), 12, 0)
    data = [log.data(number, log.end) for number, log in logs.items()]
    return cache.finish(turn, data, 0, sources(logs, image=image)).session_id


def test_a_partition_is_quiet_for_a_follower_when_it_has_all_committed_or_not() -> None:
    cache = sessions()
    logs = {0: Log(end=5, stable=5, beyond=2), 1: Log(end=5, stable=5, beyond=2)}
    turn = cache.begin(request({("t", 0): 5, ("t", 1): 7}, **FOLLOWER), 15, 0)
    assert (turn.told(0), turn.privileged) == (2**63 - 1, True)
    data = [log.data(number, 9) for number, log in logs.items()]
    session_id = cache.finish(turn, data, 0, sources(logs)).session_id

    def ask(epoch: int, changed: dict[tuple[str, int], int]) -> list[int]:
        turn = cache.begin(request(changed, session_id, epoch, **FOLLOWER), 15, 0)
        assert all(turn.told(number) == 5 for number in range(len(turn.wanted)))
        asked = [number for _, number in places(turn)]
        cache.finish(turn, [logs[number].data(number, 9) for number in asked], 0, sources(logs, asked))
        return asked

    assert ask(1, {}) == [0], "it has been told all that is committed, and there is more"
    assert ask(2, {("t", 0): 7}) == [0]
    assert ask(3, {}) == []
    logs[1].beyond += 1
    assert ask(4, {}) == [1]
    assert ask(5, {("t", 1): 8}) == [1]
    assert ask(6, {}) == []
    logs[0].end, logs[0].beyond = 6, 1
    assert ask(7, {}) == [0], "more of it is committed"


def test_a_follower_is_told_where_the_log_begins_until_its_own_begins_there() -> None:
    cache = sessions()

    def ask(epoch: int, session_id: int, *log_starts: int) -> tuple[int, int, int]:
        """Its own log begins there now, if it says so: what it was told before, the session, and what it is told of."""
        rows = tuple(FetchPartition(partition=0, fetch_offset=5, log_start_offset=start) for start in log_starts)
        topics = (FetchTopic(topic="t", partitions=rows),) if rows else ()
        asked = FetchRequest(session_id=session_id, session_epoch=epoch, topics=topics, **FOLLOWER)  # type: ignore[arg-type]
        turn = cache.begin(asked, 15, 0)
        answer = cache.finish(turn, quiet(turn, log_start_offset=3), 0)
        return turn.told_start(0), answer.session_id, len(answer.numbers)

    told, session_id, _ = ask(0, 0, 1)
    assert told == 2**63 - 1, "without a session nobody knows"
    assert ask(1, session_id) == (3, session_id, 1)
    assert ask(2, session_id, 2) == (3, session_id, 1)
    assert ask(3, session_id, 3) == (3, session_id, 0)


def test_quiet_partitions_are_not_read_until_their_logs_say_something_new() -> None:
    cache = sessions()
    logs = {number: Log(end=5, stable=5) for number in range(4)}
    session_id = quietened(cache, logs)
    epoch = itertools.count(1)

    def ask(*changed: int) -> list[int]:
        turn = cache.begin(request({("t", number): 5 for number in changed}, session_id, next(epoch)), 12, 0)
        asked = [number for _, number in places(turn)]
        assert not turn.is_empty
        read = sources(logs, asked) if asked else {}
        cache.finish(turn, [logs[number].data(number, 5) for number in asked], 0, read)
        return asked

    assert ask() == []
    logs[0].end, logs[1].start, logs[2].stable, logs[3].error = 6, 1, 6, 3
    assert ask() == [0, 1, 2, 3]
    assert ask() == [3, 0], "what has records to fetch or an error to tell is read until that is over"
    logs[0].end = 5
    logs[3].error = 0
    assert ask() == [3, 0]
    assert ask(2) == [2], "what is asked for anew is read"
    assert ask() == []


def by_name(_: ClusterImage) -> tuple[FetchTopic, int]:
    return FetchTopic(topic="t", partitions=tuple(FetchPartition(partition=number) for number in range(4))), 12


def by_id(image: ClusterImage) -> tuple[FetchTopic, int]:
    return by_name(image)[0]._replace(topic="", topic_id=image.topics["t"].topic_id), 13


def recreated(image: ClusterImage, partitions: int) -> ClusterImage:
    """The topic is another one of the same name."""
    gone = apply_batch(image, (RemoveTopicRecord(topic_id=image.topics["t"].topic_id),))
    return grown(gone, "t", partitions)


CHANGES: dict[str, tuple[Callable[[ClusterImage], ClusterImage], list[int]]] = {
    "nothing": (lambda image: image, []),
    "another topic": (lambda image: grown(image, "u"), []),
    "a setting": (
        lambda image: apply_batch(
            image, (ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1"),)
        ),
        [],
    ),
    "the leader of one": (lambda image: elected(image, "t", 2), [2]),
    "the leaders of two": (lambda image: elected(elected(image, "t", 2), "t", 0), [0, 2]),
    "deleted": (
        lambda image: apply_batch(image, (RemoveTopicRecord(topic_id=image.topics["t"].topic_id),)),
        [0, 1, 2, 3],
    ),
    "created anew": (lambda image: recreated(image, 4), [0, 1, 2, 3]),
    "created anew and smaller": (lambda image: recreated(image, 1), [0, 1, 2, 3]),
}


def tell(logs: dict[int, "Log"], image: ClusterImage) -> None:
    """What a broker's partitions hear of another image."""
    topic = image.topics.get("t")
    for number, log in logs.items():
        here = topic is not None and topic.topic_id == IMAGE.topics["t"].topic_id
        log.image = topic.partitions[number] if topic is not None and here else None


@pytest.mark.parametrize("named", [by_name, by_id])
@pytest.mark.parametrize("change", CHANGES)
def test_another_image_ends_the_quiet_of_what_it_changes(
    change: str, named: Callable[[ClusterImage], tuple[FetchTopic, int]]
) -> None:
    cache = sessions()
    logs = {number: Log() for number in range(4)}
    topic, version = named(IMAGE)
    turn = cache.begin(FetchRequest(session_epoch=0, topics=(topic,)), version, 0)
    data = [log.data(number, 0) for number, log in logs.items()]
    session_id = cache.finish(turn, data, 0, sources(logs)).session_id
    assert places(cache.begin(request({}, session_id, 1), version, 0)) == []
    make, read = CHANGES[change]
    tell(logs, make(IMAGE))
    for epoch in (2, 3):
        turn = cache.begin(request({}, session_id, epoch), version, 0)
        assert [number for _, number in places(turn)] == read, "until it was read"


def test_what_was_read_in_a_later_image_than_the_request_began_in_is_quiet_in_the_later_one() -> None:
    cache = sessions()
    logs = {number: Log() for number in range(2)}
    session_id = quietened(cache, logs)
    turn = cache.begin(request({("t", 0): 0, ("t", 1): 0}, session_id, 1), 12, 0)
    data = [log.data(number, 0) for number, log in logs.items()]
    cache.finish(turn, data, 0, sources(logs, image=elected(IMAGE, "t", 0)))
    assert places(cache.begin(request({}, session_id, 2), 12, 0)) == []


def test_what_was_read_of_a_partition_that_is_no_more_is_not_quiet() -> None:
    cache = sessions()
    logs = {0: Log()}
    session_id = quietened(cache, logs)
    turn = cache.begin(request({("t", 0): 0}, session_id, 1), 12, 0)
    logs[0].image = None
    cache.finish(turn, [logs[0].data(0, 0)], 0, {0: logs[0]})
    assert places(cache.begin(request({}, session_id, 2), 12, 0)) == [("t", 0)]


@pytest.mark.parametrize(
    "partition",
    [FetchPartition(fetch_offset=4), FetchPartition(fetch_offset=5, last_fetched_epoch=0)],
    ids=["behind", "may diverge"],
)
def test_what_is_behind_or_may_diverge_is_never_quiet(partition: FetchPartition) -> None:
    cache = sessions()
    asked = FetchRequest(session_epoch=0, topics=(FetchTopic(topic="t", partitions=(partition,)),))
    turn = cache.begin(asked, 12, 0)
    log = Log(end=5, stable=5)
    session_id = cache.finish(turn, [log.data(0, 5)], 0, sources({0: log})).session_id
    assert len(cache.begin(request({}, session_id, 1), 12, 0).wanted) == 1


def test_a_turn_can_want_what_was_quiet_and_has_moved() -> None:
    cache = sessions()
    logs = {number: Log(end=5, stable=5) for number in range(3)}
    session_id = quietened(cache, logs)
    turn = cache.begin(request({("t", 1): 5}, session_id, 1), 12, 0)
    assert (places(turn), list(turn.want_moved())) == ([("t", 1)], [])
    logs[2].end = logs[1].end = 7
    assert (list(turn.want_moved()), places(turn)) == ([1], [("t", 1), ("t", 2)])
    assert list(turn.want_moved()) == []
    data = [logs[number].data(number, 5) for number in (1, 2)]
    assert list(cache.finish(turn, data, 0, sources(logs, (1, 2))).numbers) == [0, 1]


def test_a_session_keeps_no_log_alive() -> None:
    cache = sessions()
    logs = {0: Log(), 1: Log()}
    session_id = quietened(cache, logs)
    logs[0].image = None
    gone = weakref.ref(logs.pop(0))
    assert gone() is None
    assert places(cache.begin(request({}, session_id, 1), 12, 0)) == [("t", 0)]


def test_a_turn_without_a_session_has_nothing_quiet() -> None:
    turn = sessions().begin(request({("t", 0): 0}, epoch=-1), 12, 0)
    assert (list(turn.want_moved()), turn.is_empty) == ([], False)
    assert sessions().begin(request({}, epoch=-1), 12, 0).is_empty


def test_what_is_forgotten_and_sessions_that_are_over_are_stirred_no_more() -> None:
    cache = sessions()
    logs = {number: Log(end=5, stable=5) for number in range(2)}
    session_id = quietened(cache, logs)
    assert [len(log.quiet) for log in logs.values()] == [1, 1]
    cache.begin(request({}, session_id, 1, forgotten=(("t", 0),)), 12, 0)
    assert [len(log.quiet) for log in logs.values()] == [0, 1]
    cache.begin(request({}, session_id, -1), 12, 0)
    assert [len(log.quiet) for log in logs.values()] == [0, 0]


def test_a_partition_that_is_named_twice_is_one() -> None:
    cache, log = sessions(), Log(end=5, stable=5)
    topic = FetchTopic(topic="t", partitions=(FetchPartition(fetch_offset=5), FetchPartition(fetch_offset=5)))
    turn = cache.begin(FetchRequest(session_epoch=0, topics=(topic,)), 12, 0)
    data = [log.data(0, 5), log.data(0, 5)]
    session_id = cache.finish(turn, data, 0, {**sources({0: log}), 1: log}).session_id
    assert (cache.partitions, len(log.quiet)) == (1, 1)
    log.end = 6
    assert places(cache.begin(request({}, session_id, 1), 12, 0)) == [("t", 0)]


def test_what_has_moved_between_the_read_and_the_answer_is_not_quiet() -> None:
    cache, log = sessions(), Log(end=5, stable=5)
    turn = cache.begin(request({("t", 0): 5}), 12, 0)
    data = [log.data(0, 5)]
    read = sources({0: log})
    log.start = 2
    session_id = cache.finish(turn, data, 0, read).session_id
    assert places(cache.begin(request({}, session_id, 1), 12, 0)) == [("t", 0)]


@dataclass
class Client:
    """A client as KIP-227 describes it: it keeps what it was told and sends what it has changed."""

    cache: FetchSessions
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    sent: dict[tuple[str, int], int] = field(default_factory=dict)
    told: dict[tuple[str, int], tuple[int, int, int, int]] = field(default_factory=dict)
    session_id: int = 0
    epoch: int = 0

    def fetch(self, logs: dict[tuple[str, int], Log], now_ms: int, image: ClusterImage) -> None:
        """One fetch; afterwards the client must know what a full fetch would have said."""
        for place, log in logs.items():
            log.image = image.topics[place[0]].partitions[place[1]]
        full = self.session_id == 0 or self.epoch == 0
        changed = {place: offset for place, offset in self.offsets.items() if full or self.sent.get(place) != offset}
        forgotten = () if full else tuple(place for place in self.sent if place not in self.offsets)
        sent = request(changed, self.session_id, 0 if full else self.epoch, forgotten)
        try:
            turn = self.cache.begin(sent, 12, now_ms)
        except KafkaError:
            assert not full, "a full fetch is never refused"
            self.session_id = self.epoch = 0
            return self.fetch(logs, now_ms, image)
        wanted = {(each.topic, each.partition.partition): each.partition.fetch_offset for each in turn.wanted}
        if turn.session is None:
            assert wanted == self.offsets, "what the client wants"
        else:
            kept = [each.wanted for each in turn.session.partitions.values()]
            offsets = {(each.topic, each.partition.partition): each.partition.fetch_offset for each in kept}
            assert wanted.items() <= offsets.items() == self.offsets.items(), "the session is what the client wants"
        data = [logs[place].data(place[1], offset) for place, offset in wanted.items()]
        read: dict[int, Marks] = {
            number: logs[place]
            for number, (place, row) in enumerate(zip(wanted, data, strict=True))
            if not row.error_code
        }
        answer = self.cache.finish(turn, data, now_ms, read)
        if full:
            self.told.clear()
        self.told = {place: known for place, known in self.told.items() if place in self.offsets}
        order = list(wanted)
        expected = dict(self.offsets)
        for number in answer.numbers:
            row = data[number]
            self.told[order[number]] = (
                row.error_code,
                row.high_watermark,
                row.last_stable_offset,
                row.log_start_offset,
            )
            self.offsets[order[number]] += len(row.records or b"")
        self.sent = expected
        self.session_id = answer.session_id
        self.epoch = 0 if answer.session_id == 0 else next_epoch(0 if full else self.epoch)
        for place, offset in self.offsets.items():
            now = logs[place].data(place[1], offset)
            full_view = (now.error_code, now.high_watermark, now.last_stable_offset, now.log_start_offset)
            assert self.told[place] == full_view, (place, self.told[place])
            assert now.error_code or offset >= logs[place].end, "no record is held back"
        return None


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from(PARTITIONS), st.integers(1, 3)),
        st.tuples(st.just("stable"), st.sampled_from(PARTITIONS), st.just(0)),
        st.tuples(st.just("delete"), st.sampled_from(PARTITIONS), st.integers(0, 5)),
        st.tuples(st.just("error"), st.sampled_from(PARTITIONS), st.sampled_from([0, 0, 3, 6])),
        st.tuples(st.just("elect"), st.sampled_from(PARTITIONS), st.integers(0, 1)),
        st.tuples(st.just("change"), st.just(PARTITIONS[0]), st.just(0)),
        st.tuples(st.just("want"), st.sampled_from(PARTITIONS), st.integers(0, 2)),
        st.tuples(st.just("forget"), st.sampled_from(PARTITIONS), st.integers(0, 2)),
        st.tuples(st.just("fetch"), st.just(PARTITIONS[0]), st.integers(0, 2)),
        st.tuples(st.just("fetch"), st.just(PARTITIONS[0]), st.integers(0, 2)),
        st.tuples(st.just("lose"), st.just(PARTITIONS[0]), st.integers(0, 2)),
        st.tuples(st.just("wait"), st.just(PARTITIONS[0]), st.just(EVICTION_MS)),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(steps=steps, slots=st.integers(0, 3), partitions_max=st.sampled_from([2, 8, 1000]))
def test_what_clients_see_through_sessions_is_what_full_fetches_show(
    steps: list[tuple[str, tuple[str, int], int]], slots: int, partitions_max: int
) -> None:
    ids = itertools.count(1)
    cache = FetchSessions(slots, ids.__next__, partitions_max=partitions_max)
    logs = {place: Log() for place in PARTITIONS}
    clients = [Client(cache, dict.fromkeys(PARTITIONS[2 * number :][:2], 0)) for number in range(3)]
    now_ms = 0
    image = grown(cluster(3, "a"), "b", 3)
    for action, place, number in steps:
        now_ms += 1
        log = logs[place]
        match action:
            case "append":
                log.end += number
            case "stable":
                log.stable = log.end
            case "delete":
                log.start = min(log.end, log.start + number)
            case "error":
                log.error = number
            case "elect":
                log.led_elsewhere = bool(number)
                image = elected(image, *place)
            case "change":
                image = grown(image, f"other-{now_ms}")
            case "want":
                clients[number].offsets.setdefault(place, log.start)
            case "forget":
                clients[number].offsets.pop(place, None)
            case "fetch":
                clients[number].fetch(logs, now_ms, image)
            case "lose":
                clients[number].epoch += 1  # an answer got lost
            case "wait":
                now_ms += number
        assert len(cache) <= slots
        assert 0 <= cache.partitions <= partitions_max
        assert cache.partitions >= len(cache)
    for client in clients:
        client.fetch(logs, now_ms, image)
    for session_id in range(1, next(ids)):
        cache.begin(request({}, session_id, -1), 12, now_ms)
    assert (len(cache), cache.partitions) == (0, 0), "partitions are counted as they come and go"
