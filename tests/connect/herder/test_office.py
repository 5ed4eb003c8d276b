"""Taking office, writing in it and losing it: several workers on one topic in memory"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from tidemill.connect.herder.office import NotInOffice, Office, OfficeSettings
from tidemill.connect.herder.terms import NUMBER_MAX, TERM_HEADER, Term
from tidemill.connect.session_key import KeySettings
from tidemill.connect.stores import (
    ConfigRecord,
    ConnectorConfig,
    KeyValue,
    RestartRequest,
    SessionKey,
    TargetState,
    TargetStateChange,
    decode_config,
    encode_config,
)
from tidemill.connect.topic_log import Headers, LogRecord, TopicLogError
from tidemill.core.runtime.clock import ManualClock

CONFIG = ConnectorConfig(connector="c", properties={"a": "1"})
OTHER = ConnectorConfig(connector="c", properties={"a": "2"})


class Topic:
    """A topic that every worker reads at once; writes may be held up on their way, or fail."""

    def __init__(self) -> None:
        self.records: list[LogRecord] = []
        self.readers: list[Callable[[LogRecord], object]] = []
        self.held: asyncio.Event | None = None
        self.failures = 0

    async def append(self, records: Sequence[KeyValue], headers: Headers = ()) -> dict[int, int]:
        if self.held is not None:
            await self.held.wait()
        await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            raise TopicLogError("the broker is away")
        for key, value in records:
            record = LogRecord(0, len(self.records), key, value, tuple(headers))
            self.records.append(record)
            for read in self.readers:
                read(record)
        return {0: len(self.records) - 1}


class Worker:
    """A worker: its office, and what it believes."""

    def __init__(
        self, topic: Topic, life: str, clock: ManualClock, key: KeySettings | None = None, *, afresh: bool = False
    ) -> None:
        self.leads = False
        self.believes: list[ConfigRecord] = []
        self.writing = asyncio.Lock()
        settings = OfficeSettings(
            life=life, key=key or KeySettings(), leads=lambda: self.leads, clock=clock, afresh=afresh
        )
        self.office = Office(topic, self.writing, settings)
        for record in topic.records:
            self.read(record)
        topic.readers.append(self.read)

    def read(self, record: LogRecord) -> None:
        decoded = self.office.take(record)
        if decoded is not None:
            self.believes.append(decoded)

    async def write(self, *records: ConfigRecord) -> None:
        await self.decide(lambda: records)

    async def decide(self, decision: Callable[[], Sequence[ConfigRecord]]) -> None:
        async with self.office.deciding():
            await self.office.append(decision())

    @property
    def configs(self) -> list[ConfigRecord]:
        return [record for record in self.believes if not isinstance(record, SessionKey)]


@asynccontextmanager
async def keeping(*workers: Worker) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        kept = [tasks.create_task(worker.office.keep()) for worker in workers]
        yield
        for task in kept:
            task.cancel()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110  (it holds after some turns of the loop that nobody tells of)
            await asyncio.sleep(0)


def appoint(leader: Worker, *others: Worker) -> None:
    for worker in (leader, *others):
        worker.leads = worker is leader
        worker.office.look()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def test_a_leader_takes_office_with_a_key_that_everybody_learns(clock: ManualClock) -> None:
    topic = Topic()
    leader, other = Worker(topic, "a", clock), Worker(topic, "b", clock)
    async with keeping(leader, other):
        appoint(leader, other)
        await until(lambda: leader.office.is_taken)
    assert not other.office.is_taken
    key = leader.office.key
    assert key is not None and len(key.key) == 32 and key.algorithm == "HmacSHA256" and other.office.key == key
    (record,) = topic.records
    assert decode_config(record.key, record.value) == key
    assert record.headers == ((TERM_HEADER, Term(1, "a").encoded()),)


async def test_a_write_waits_for_the_office(clock: ManualClock) -> None:
    topic = Topic()
    leader = Worker(topic, "a", clock)
    leader.leads = True
    async with keeping(leader):
        await leader.write(CONFIG)
    assert leader.configs == [CONFIG]
    assert topic.records[-1].headers == ((TERM_HEADER, b"1:a"),)


async def test_who_does_not_lead_writes_nothing(clock: ManualClock) -> None:
    topic = Topic()
    worker = Worker(topic, "a", clock)
    async with keeping(worker):
        with pytest.raises(NotInOffice):
            await worker.write(CONFIG)
    assert topic.records == []


async def test_a_leader_that_is_cut_off_hears_of_it_by_its_own_write(clock: ManualClock) -> None:
    """The write of the old leader is on its way while the next one takes office: nobody believes it, and it is told."""
    topic = Topic()
    old, new = Worker(topic, "old", clock), Worker(topic, "new", clock)
    async with keeping(old, new):
        appoint(old, new)
        await old.write(CONFIG)
        topic.held = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            late = tasks.create_task(
                refused(old.write(OTHER, RestartRequest(connector="c", include_tasks=True, only_failed=False)))
            )
            await asyncio.sleep(0)
            held, topic.held = topic.held, None
            new.leads = True
            new.office.look()
            await until(lambda: new.office.is_taken)
            held.set()
        assert late.result()
        await until(lambda: not new.office.terms.needs_repair)
    assert old.configs == new.configs == [CONFIG, CONFIG]  # the truth was written over what did not count
    assert not old.office.is_taken


async def refused(write: object) -> bool:
    with pytest.raises(NotInOffice):
        await write  # type: ignore[misc]
    return True


async def test_what_counted_in_full_is_no_failure_though_the_office_is_lost(clock: ManualClock) -> None:
    topic = Topic()
    old, new = Worker(topic, "old", clock), Worker(topic, "new", clock)

    def replace(record: LogRecord) -> None:
        if record.key == b"connector-c" and len(topic.records) == 2:
            new.leads, old.leads = True, False
            term = new.office.terms.next("new")
            assert term is not None
            key = encode_config(SessionKey(key=b"k" * 32, algorithm="HmacSHA256", created_ms=clock.now_ms()))
            taking = LogRecord(0, 2, *key, ((TERM_HEADER, term.encoded()),))
            topic.records.append(taking)
            for read in (old.read, new.read):
                read(taking)

    async with keeping(old, new):
        appoint(old, new)
        await until(lambda: old.office.is_taken)
        topic.readers.append(replace)
        await old.write(CONFIG)
    assert not old.office.is_taken and new.configs == [CONFIG]


async def test_the_key_is_renewed_when_it_is_old_and_not_before(clock: ManualClock) -> None:
    topic = Topic()
    leader = Worker(topic, "a", clock, KeySettings(ttl_ms=60_000))
    async with keeping(leader):
        appoint(leader)
        await until(lambda: leader.office.is_taken)
        first = leader.office.key
        clock.advance(59_999)
        leader.office.look()
        await leader.write(CONFIG)
        assert leader.office.key == first
        clock.advance(1)
        leader.office.look()
        await until(lambda: leader.office.key != first)
    assert leader.office.is_taken and leader.office.key is not None
    assert leader.office.key.created_ms == clock.now_ms()
    assert topic.records[-1].headers == ((TERM_HEADER, b"1:a"),)


async def test_the_next_leader_keeps_a_key_that_is_good(clock: ManualClock) -> None:
    topic = Topic()
    first, second = Worker(topic, "a", clock), Worker(topic, "b", clock)
    async with keeping(first, second):
        appoint(first, second)
        await until(lambda: first.office.is_taken)
        key = first.office.key
        appoint(second, first)
        await until(lambda: second.office.is_taken)
    assert second.office.key == key and topic.records[-1].headers == ((TERM_HEADER, b"2:b"),)


async def test_a_key_of_a_java_leader_is_used_and_its_term_is_over_when_we_lead(clock: ManualClock) -> None:
    topic = Topic()
    ours = Worker(topic, "a", clock)
    async with keeping(ours):
        appoint(ours)
        await until(lambda: ours.office.is_taken)
        java = SessionKey(key=b"j" * 32, algorithm="HmacSHA256", created_ms=clock.now_ms())
        ours.leads = False
        await topic.append([encode_config(java)])
        assert ours.office.key == java and not ours.office.is_taken
        appoint(ours)
        await until(lambda: ours.office.is_taken)
    assert ours.office.key == java and ours.office.terms.current == Term(2, "a")


async def test_who_leads_again_after_one_that_names_no_term_is_in_office_when_it_has_read_what_that_one_wrote(
    clock: ManualClock,
) -> None:
    """A leader of Java's that finds a good key writes none, so nothing tells that it was there."""
    topic = Topic()
    leader = Worker(topic, "a", clock, afresh=True)
    async with keeping(leader):
        appoint(leader)
        await until(lambda: leader.office.is_taken)
        leader.leads = False
        leader.office.look()
        await topic.append([encode_config(OTHER)])
        topic.held = asyncio.Event()
        appoint(leader)
        await asyncio.sleep(0)
        assert not leader.office.is_taken
        topic.held.set()
        await until(lambda: leader.office.is_taken)
    assert leader.configs == [OTHER]
    assert [Term.decoded(record.header(TERM_HEADER)) for record in topic.records] == [Term(1, "a"), None, Term(2, "a")]


async def test_a_worker_that_starts_reads_what_counts(clock: ManualClock) -> None:
    topic = Topic()
    old, new = Worker(topic, "old", clock), Worker(topic, "new", clock)
    paused = TargetStateChange(connector="c", state=TargetState.PAUSED)
    async with keeping(old, new):
        appoint(old, new)
        await old.write(CONFIG)
        appoint(new, old)
        await new.write(paused)
    zombie = LogRecord(0, len(topic.records), *encode_config(OTHER), ((TERM_HEADER, b"1:old"),))
    topic.records.append(zombie)
    late = Worker(topic, "late", clock)
    assert late.configs == [CONFIG, paused]
    async with keeping(late):
        appoint(late)
        await until(lambda: late.office.is_taken and not late.office.terms.needs_repair)
    assert topic.records[-1][2:4] == encode_config(CONFIG)


async def test_a_topic_that_cannot_be_written_is_tried_again_with_the_next_tick(clock: ManualClock) -> None:
    topic = Topic()
    topic.failures = 1
    leader = Worker(topic, "a", clock)
    async with keeping(leader):
        appoint(leader)
        await until(lambda: topic.failures == 0)
        assert not leader.office.is_taken
        leader.office.look()
        await until(lambda: leader.office.is_taken)


async def test_a_topic_that_uses_up_all_terms_is_told_and_survived(clock: ManualClock) -> None:
    topic = Topic()
    leader = Worker(topic, "a", clock)
    await topic.append([encode_config(CONFIG)], ((TERM_HEADER, Term(NUMBER_MAX, "hostile").encoded()),))
    async with keeping(leader):
        with capture_logs() as logs:
            appoint(leader)
            await until(lambda: any("nobody can take office" in line["event"] for line in logs))
        assert not leader.office.is_taken and leader.configs == [CONFIG]


async def test_nothing_to_write_needs_the_office_all_the_same(clock: ManualClock) -> None:
    topic = Topic()
    worker = Worker(topic, "a", clock)
    with pytest.raises(NotInOffice):
        await worker.write()


async def test_nothing_is_decided_before_the_leader_before_has_been_read_to_its_end(clock: ManualClock) -> None:
    topic = Topic()
    before, leader = Worker(topic, "a", clock), Worker(topic, "b", clock)
    async with keeping(before, leader):
        appoint(before, leader)
        await until(lambda: before.office.is_taken)
        topic.held = asyncio.Event()
        written = asyncio.ensure_future(before.write(CONFIG))  # it is on its way when the next one is appointed
        await until(lambda: before.writing.locked())
        leader.leads = True
        leader.office.look()

        def create() -> Sequence[ConfigRecord]:
            return () if CONFIG in leader.configs else (OTHER,)

        created = asyncio.ensure_future(leader.decide(create))
        for _ in range(10):
            await asyncio.sleep(0)
        topic.held.set()
        await asyncio.gather(written, created)
    assert leader.configs == [CONFIG]


async def test_who_waits_for_the_office_does_not_keep_it_from_writing_over_what_was_left_out(
    clock: ManualClock,
) -> None:
    topic = Topic()
    await topic.append([encode_config(CONFIG)], ((TERM_HEADER, Term(2, "b").encoded()),))
    await topic.append([encode_config(OTHER)], ((TERM_HEADER, Term(1, "a").encoded()),))
    leader = Worker(topic, "c", clock)
    leader.leads = True
    more = ConnectorConfig(connector="d", properties={})
    async with keeping(leader), asyncio.timeout(5):
        await leader.write(more)
    assert leader.configs == [CONFIG, CONFIG, more]


async def test_whoever_is_in_office_can_make_sure_of_it(clock: ManualClock) -> None:
    topic = Topic()
    leader = Worker(topic, "a", clock)
    leader.leads = True
    async with keeping(leader):
        await leader.write(CONFIG)
        key = leader.office.key
        async with leader.office.deciding():
            await leader.office.confirm()
    assert leader.configs == [CONFIG] and leader.office.key == key


async def test_who_was_replaced_while_it_did_something_else_hears_of_it(clock: ManualClock) -> None:
    topic = Topic()
    old, new = Worker(topic, "old", clock), Worker(topic, "new", clock)
    async with keeping(old, new):
        appoint(old, new)
        await old.write(CONFIG)
        async with old.office.deciding():
            topic.held = asyncio.Event()
            async with asyncio.TaskGroup() as tasks:
                late = tasks.create_task(refused(old.office.confirm()))
                await asyncio.sleep(0)
                held, topic.held = topic.held, None
                new.leads = True
                new.office.look()
                await until(lambda: new.office.is_taken)
                held.set()
            assert late.result()
            assert await refused(old.office.confirm())


async def test_who_was_replaced_and_is_back_in_office_decides_anew(clock: ManualClock) -> None:
    topic = Topic()
    leader, rival = (Worker(topic, life, clock) for life in ("leader", "rival"))
    async with keeping(leader, rival):
        appoint(leader, rival)
        await until(lambda: leader.office.is_taken)
        async with leader.office.deciding():
            appoint(rival, leader)
            await until(lambda: rival.office.is_taken)
            appoint(leader, rival)
            await until(lambda: leader.office.is_taken)
            assert await refused(leader.office.confirm())
            assert await refused(leader.office.append([CONFIG]))
        await leader.write(OTHER)
    assert leader.configs == rival.configs == [OTHER]


async def test_a_key_that_is_being_renewed_is_not_taken_back_by_whoever_makes_sure(clock: ManualClock) -> None:
    topic = Topic()
    leader = Worker(topic, "a", clock, KeySettings(ttl_ms=1_000))
    leader.leads = True

    async def make_sure() -> None:
        async with leader.office.deciding():
            await leader.office.confirm()

    async with keeping(leader):
        await leader.write(CONFIG)
        first = leader.office.key
        topic.held = asyncio.Event()
        clock.advance(2_000)
        leader.office.look()
        for _ in range(5):
            await asyncio.sleep(0)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(make_sure())
            for _ in range(5):
                await asyncio.sleep(0)
            topic.held.set()
        assert leader.office.key != first
