"""Every rule of the world breaks when what it forbids happens, and holds for what looks like it and is allowed"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sim.disk import SimulatedDisk
from tests.sim.world.events import (
    Acknowledged,
    Assigned,
    CommitAsked,
    Committed,
    Ended,
    Event,
    Fetched,
    HeardAgain,
    Joined,
    OffsetTold,
    OutOfOrder,
    OutOfRange,
    RecordsDeleted,
    Replayed,
    StoredNowhere,
    TopicAsked,
    TopicsSeen,
    TopicTold,
)
from tests.sim.world.inside import (
    DecisionsStay,
    Held,
    HighWatermarksRise,
    NothingElseIsDeleted,
    OneLeaderPerEpoch,
    SameBytesBelowHighWatermarks,
    WhoMayLeadHasDeleted,
    WhoMayLeadHoldsAll,
)
from tests.sim.world.insight import PROMISES_NOTHING, UNKNOWN_ERA
from tests.sim.world.invariants import (
    Begun,
    DeletedStaysDeleted,
    DuplicatesAreThere,
    Era,
    Generations,
    InOrder,
    Invariant,
    MetadataEqualsReplay,
    NothingAcknowledgedIsLost,
    NothingIsMissed,
    OffsetsAreKept,
    SameOffsetSameBytes,
    StoredOnce,
    TheMutedAreNotHeard,
    TopicsAreKept,
    Violation,
)
from tidemill.broker.quorum.delta import ImageDelta
from tidemill.broker.quorum.image import ClusterImage
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord

T = uuid.UUID(int=7)
ANY = Replayed(0.0, "node-1", 0, True)
"""An event that says nothing; rules that look inside look after any."""


def breaks(rule: Invariant, *events: Event) -> bool:
    """Whether the last of these breaks the rule; none before it may."""
    *before, last = events
    for event in before:
        rule.after(event)
    try:
        rule.after(last)
    except Violation:
        return True
    return False


def acknowledged(offset: int, value: bytes = b"v", *, epoch: int = 3) -> Acknowledged:
    return Acknowledged(1.0, "producer", T, 0, offset, value, False, epoch, epoch)


def fetched(
    high_watermark: int,
    *records: tuple[int, bytes],
    offset: int = 0,
    epoch: int = 3,
    asked_at: float = 2.0,
    log_start: int = 0,
) -> Fetched:
    found = tuple((at, epoch, value) for at, value in records)
    newest = max(epoch, 0)
    return Fetched(
        asked_at, "reader", T, 0, asked_at, epoch, offset, high_watermark, found, newest, log_start, made_in=epoch
    )


def lost_in(*epochs: int) -> Era:
    """In every partition these began with an election that may lose records."""
    return lambda _topic_id, _partition, epoch: sum(each <= epoch for each in epochs) if epoch >= 0 else UNKNOWN_ERA


def begun_at(offset: int) -> Begun:
    """Every partition was deleted up to there."""
    return lambda _topic_id, _partition: offset


# -- what clients see


@pytest.mark.parametrize(
    ("last", "is_wrong"),
    [
        (fetched(5, (4, b"v"), offset=4), False),
        (fetched(4), True),
        (fetched(4, epoch=2), False),
        (fetched(4, epoch=PROMISES_NOTHING), False),
        (fetched(4, asked_at=0.5), False),
        (fetched(5, (4, b"other"), offset=4), True),
        (fetched(6, (4, b"v"), (6, b"w"), offset=4), True),
        (OutOfRange(2.0, "reader", T, 0, 2.0, 3, 5), True),
        (OutOfRange(2.0, "reader", T, 0, 2.0, 3, 6), False),
    ],
)
def test_what_was_acknowledged_is_there_for_whoever_knows_of_the_epoch(last: Event, is_wrong: bool) -> None:
    assert breaks(NothingAcknowledgedIsLost(page_cache=False), acknowledged(4), last) is is_wrong


def test_what_was_read_stays_as_well() -> None:
    assert breaks(NothingAcknowledgedIsLost(page_cache=False), fetched(9), fetched(8, asked_at=3.0))


@pytest.mark.parametrize(
    ("begun", "offset", "log_start", "is_wrong"),
    [
        (0, 2, 0, True),
        (3, 2, 3, False),
        (3, 2, -1, True),
        (3, 3, 3, True),  # it is there by the broker's own account
        (3, 2, 4, True),  # so much was never deleted
    ],
)
def test_what_was_deleted_may_be_out_of_range(begun: int, offset: int, log_start: int, is_wrong: bool) -> None:
    rule = NothingAcknowledgedIsLost(page_cache=False, begun=begun_at(begun))
    assert breaks(rule, acknowledged(4), OutOfRange(2.0, "reader", T, 0, 2.0, 3, offset, log_start)) is is_wrong


@pytest.mark.parametrize(("begun", "is_wrong"), [(4, True), (5, False)])
def test_of_what_was_deleted_another_copy_may_come(begun: int, is_wrong: bool) -> None:
    rule = StoredOnce(page_cache=False, begun=begun_at(begun))
    assert breaks(rule, fetched(9, (4, b"once-1")), fetched(9, (6, b"once-1"), offset=6)) is is_wrong


@pytest.mark.parametrize(
    ("last", "is_wrong"),
    [
        (fetched(9, offset=7, log_start=7), False),
        (fetched(9, offset=7, log_start=6), True),
        (fetched(9, (6, b"v"), offset=6, log_start=7), True),
        (fetched(9, (6, b"v"), offset=6, log_start=6, epoch=4), True),  # another leader, which was not to be told late
        (fetched(9, (6, b"v"), offset=6, log_start=6, epoch=2), False),  # one that leads no more
        (fetched(9, (6, b"v"), offset=6, log_start=6, asked_at=0.5), False),
    ],
)
def test_what_was_deleted_stays_deleted(last: Event, is_wrong: bool) -> None:
    told = RecordsDeleted(1.0, "deleter", T, 0, 7, 1, 3)
    assert breaks(DeletedStaysDeleted(), told, last) is is_wrong


@pytest.mark.parametrize(
    ("last", "is_wrong"),
    [
        (fetched(2, (1, b"w"), epoch=4), True),  # nothing was lost before the fifth
        (fetched(2, (1, b"w"), epoch=5, offset=1), False),
        (fetched(5, (4, b"other"), epoch=5, offset=4), False),
        (fetched(5, (4, b"other"), epoch=4, offset=4), True),
        (OutOfRange(2.0, "reader", T, 0, 2.0, 5, 4), False),
        (OutOfRange(2.0, "reader", T, 0, 2.0, 4, 4), True),
    ],
)
def test_an_unclean_election_ends_promises_of_those_before(last: Event, is_wrong: bool) -> None:
    assert breaks(NothingAcknowledgedIsLost(page_cache=False, era=lost_in(5)), acknowledged(4), last) is is_wrong


def test_what_is_promised_behind_an_unclean_election_is_kept_though_it_is_less() -> None:
    rule = NothingAcknowledgedIsLost(page_cache=False, era=lost_in(5))
    rule.after(acknowledged(8))
    assert not breaks(rule, acknowledged(4, epoch=5), fetched(5, (4, b"v"), epoch=6, offset=4))
    assert breaks(rule, fetched(4, epoch=6))


def test_bytes_are_others_in_another_era_only() -> None:
    rule = SameOffsetSameBytes(page_cache=False, era=lost_in(5))
    assert not breaks(rule, fetched(9, (4, b"v")), fetched(9, (4, b"w"), epoch=5), fetched(9, (4, b"w"), epoch=5))
    assert breaks(rule, fetched(9, (4, b"x"), epoch=6))
    rule = SameOffsetSameBytes(page_cache=False, era=lost_in(5))
    kept = replace(fetched(9, (4, b"w")), epoch=6, made_in=6)  # the record is of the epoch before
    assert breaks(rule, fetched(9, (4, b"v")), kept)


@pytest.mark.parametrize(("epoch", "is_wrong"), [(4, True), (5, False)])
def test_what_was_lost_may_be_sent_again(epoch: int, is_wrong: bool) -> None:
    rule = StoredOnce(page_cache=False, era=lost_in(5))
    assert breaks(rule, fetched(9, (4, b"once-1")), fetched(9, (6, b"once-1"), epoch=epoch)) is is_wrong


def test_there_is_a_gap_where_records_were_lost() -> None:
    told = OutOfOrder(9.0, "producer", T, 0)
    assert not breaks(NothingIsMissed(page_cache=False, era=lost_in(5)), told)
    assert breaks(NothingIsMissed(page_cache=False, era=lost_in()), told)


def test_a_record_keeps_its_place_and_its_bytes() -> None:
    rule = SameOffsetSameBytes(page_cache=False)
    assert not breaks(rule, fetched(9, (4, b"v")), fetched(9, (4, b"v")))
    assert breaks(rule, fetched(9, (4, b"w"), epoch=5))


def test_what_is_sent_until_it_is_acknowledged_is_there_once() -> None:
    rule = StoredOnce(page_cache=False)
    assert not breaks(rule, fetched(9, (4, b"once-1"), (5, b"twice")), fetched(9, (4, b"once-1"), (6, b"twice")))
    assert breaks(rule, fetched(9, (7, b"once-1")))


def test_several_batches_of_a_producer_are_there_in_its_order() -> None:
    rule = InOrder()
    assert not breaks(rule, fetched(9, (2, b"once-p.7-1"), (4, b"once-p.7-4"), (5, b"once-p.8-2"), (6, b"once-p.7-5")))
    assert not breaks(rule, fetched(9, (2, b"once-q-3"), (4, b"once-q-1"))), "it names no id"
    assert breaks(rule, fetched(9, (2, b"once-p.7-4"), (5, b"once-p.8-2"), (6, b"once-p.7-1")))


def test_a_producer_is_told_of_a_gap_only_where_records_may_be_lost() -> None:
    told = OutOfOrder(9.0, "producer", T, 0)
    assert breaks(NothingIsMissed(page_cache=False), Ended(4.0, "node-1", 1, "power cut"), told)
    assert breaks(NothingIsMissed(page_cache=True), Ended(4.0, "node-1", 1, "kill"), told)
    assert not breaks(NothingIsMissed(page_cache=True), Ended(4.0, "node-1", 1, "power cut"), told)


def test_what_is_called_a_duplicate_is_there() -> None:
    assert breaks(DuplicatesAreThere(), StoredNowhere(9.0, "producer", T, 0, b"once-p.1-1"))
    assert not breaks(DuplicatesAreThere(), OutOfOrder(9.0, "producer", T, 0))


def test_generations_rise_and_partitions_have_one_owner() -> None:
    def joined(generation: int, *, epoch: int = 1, asked_at: float = 2.0) -> Joined:
        return Joined(asked_at, "member", "g", "m", generation, asked_at, 1, epoch)

    rule = Generations()
    assert not breaks(rule, joined(5), joined(4, asked_at=1.0), joined(4, epoch=2, asked_at=3.0))
    assert breaks(rule, joined(4, asked_at=3.0))
    assert not breaks(
        rule, Assigned(4.0, "m1", "g", "m1", 5, "a-0", 1, 1), Assigned(4.0, "m2", "g", "m2", 6, "a-0", 1, 1)
    )
    assert breaks(rule, Assigned(4.0, "m2", "g", "m2", 5, "a-0", 1, 1))


@pytest.mark.parametrize(
    ("offset", "epoch", "is_wrong"), [(20, 1, False), (10, 1, True), (-1, 1, True), (-1, 0, False), (30, 1, True)]
)
def test_the_last_commit_counts(offset: int, epoch: int, is_wrong: bool) -> None:
    rule = OffsetsAreKept(page_cache=False)
    for at, each in ((1.0, 10), (2.0, 20)):
        rule.after(CommitAsked(at, "member", "g", T, 0, each))
        rule.after(Committed(at + 0.5, "member", "g", T, 0, each, 1))
    assert breaks(rule, OffsetTold(4.0, "member", "g", T, 0, 3.0, offset, epoch)) is is_wrong


def test_topics_are_there_as_a_whole_and_keep_their_ids() -> None:
    rule = TopicsAreKept(alone=False)
    other = uuid.UUID(int=8)

    def seen(*topics: tuple[str, uuid.UUID], known: int = 9, torn: tuple[str, ...] = ()) -> TopicsSeen:
        return TopicsSeen(5.0, "admin", 4.0, known, topics, torn)

    rule.after(TopicAsked(1.0, "admin", "a", True))
    assert not breaks(rule, TopicTold(2.0, "admin", "a", T, 9), seen(("a", T)), seen(known=8))
    assert breaks(rule, seen())
    assert breaks(rule, seen(("a", other)))
    assert breaks(rule, seen(("a", T), torn=("a",)))


def test_the_muted_wait_and_a_replay_leads_to_the_image() -> None:
    assert not breaks(TheMutedAreNotHeard(), HeardAgain(2.0, "reader", "FETCH", 2.0))
    assert breaks(TheMutedAreNotHeard(), HeardAgain(1.9, "reader", "FETCH", 2.0))
    assert breaks(MetadataEqualsReplay(), ANY, replace(ANY, same=False))


# -- what is inside of nodes


@dataclass
class Inside:
    """Nodes of which rules see what a test says."""

    having: list[Held] = field(default_factory=list)
    controllers: dict[int, int] = field(default_factory=dict)
    written: dict[int, int] = field(default_factory=dict)  # other epochs than they lead in
    isr: tuple[int, ...] = (1, 2, 3)
    eligible: tuple[int, ...] = ()
    epoch: int = 3
    disks: dict[int, SimulatedDisk] = field(default_factory=lambda: {each: SimulatedDisk() for each in (1, 2, 3)})

    @property
    def nodes(self) -> list[Any]:
        return [self.node(each) for each in self.disks]

    def node(self, number: int) -> Any:
        epoch = self.controllers.get(number)
        machine = SimpleNamespace(leads=epoch is not None, epoch=epoch)
        store = SimpleNamespace(epochs=SimpleNamespace(latest=self.written.get(number, epoch)))
        inside = SimpleNamespace(place=SimpleNamespace(member=SimpleNamespace(machine=machine), store=store))
        return SimpleNamespace(node_id=number, lives=1, inside=inside, disk=self.disks[number])

    def has(
        self,
        number: int,
        *,
        leads: bool = False,
        epoch: int = 3,
        high_watermark: int = 0,
        held: int = 0,
        log_start: int = 0,
    ) -> None:
        """In place of what was there: that replica on that node."""
        log = SimpleNamespace(held_offset=held, cuts=0, cutting=False, log_start_offset=log_start)
        machine = SimpleNamespace(
            leads=leads, leader_epoch=epoch, high_watermark=high_watermark, readable=leads or number in self.isr
        )
        replica: Any = SimpleNamespace(log=log, machine=machine, high_watermark=high_watermark)
        self.having = [each for each in self.having if each.node.node_id != number]
        self.having.append(Held(self.node(number), (T, 0), "a", replica))

    def writes(self, number: int, *values: bytes, durable: bool = True, start: int = 0) -> None:
        """One batch for each of these, behind what the node has."""
        folder = self.disks[number].root.subdirectory("a-0")
        name = f"{start:020}.log"
        file = folder.open(name) if folder.exists(name) else folder.create(name)
        for offset, value in enumerate(values, start):
            record = NewRecord(0, None, value)
            file.write_at(file.size(), build_batch([record], base_offset=offset, leader_epoch=3))
        if durable:
            file.sync()

    def held(self) -> Iterator[Held]:
        return iter(self.having)

    def partition(self, _key: object) -> Any:
        return SimpleNamespace(isr=self.isr, eligible_leader_replicas=self.eligible, leader_epoch=self.epoch)

    def image(self) -> Any:
        topic = SimpleNamespace(name="a", partitions=[SimpleNamespace(replicas=(1, 2, 3))])
        return SimpleNamespace(topic_by_id=lambda _topic_id: topic)


@pytest.fixture
def inside() -> Any:
    return Inside()


def test_an_epoch_has_one_leader(inside: Any) -> None:
    rule = OneLeaderPerEpoch(inside)
    inside.has(1, leads=True)
    inside.has(2, leads=True, epoch=4)
    assert not breaks(rule, ANY)
    inside.has(2, leads=True)
    assert breaks(rule, ANY)


def test_so_has_one_of_the_quorum(inside: Any) -> None:
    rule = OneLeaderPerEpoch(inside)
    inside.controllers = {1: 7, 2: 8}
    assert not breaks(rule, ANY)
    inside.controllers, inside.written = {3: 7}, {3: 6}
    assert not breaks(rule, ANY), "as far as anybody knows"
    inside.written = {}
    assert breaks(rule, ANY)


def test_a_high_watermark_goes_back_in_another_epoch_only(inside: Any) -> None:
    rule = HighWatermarksRise(inside)
    for epoch, high_watermark, is_wrong in ((3, 9, False), (4, 8, False), (4, 7, True)):
        inside.has(1, leads=True, epoch=epoch, high_watermark=high_watermark)
        assert breaks(rule, ANY) is is_wrong


@pytest.mark.parametrize(
    ("isr", "eligible", "leads", "epoch", "is_wrong"),
    [
        ((1, 2), (), False, 3, False),
        ((1, 2, 3), (), False, 3, True),
        ((1, 2), (3,), False, 3, True),
        ((1, 2), (), True, 3, True),
        ((1, 2), (), True, 2, False),
        ((1, 2, 3), (), False, 2, False),
    ],
)
def test_whoever_lacks_something_may_not_lead(
    inside: Any, isr: Sequence[int], eligible: Sequence[int], leads: bool, epoch: int, is_wrong: bool
) -> None:
    rule = WhoMayLeadHoldsAll(inside)
    for number in (1, 2):
        inside.writes(number, b"v")
    rule.after(acknowledged(0))
    inside.isr, inside.eligible, inside.epoch = isr, eligible, epoch
    inside.has(3, leads=leads, epoch=epoch)
    assert breaks(rule, ANY) is is_wrong


def test_whoever_lacks_what_a_consumer_was_told_of_may_not_lead(inside: Any) -> None:
    rule = WhoMayLeadHoldsAll(inside)
    inside.isr = (1, 2, 3)
    inside.has(3)
    assert not breaks(rule, fetched(0))
    assert breaks(rule, replace(fetched(1, epoch=PROMISES_NOTHING), newest_epoch=3)), "whichever replica has told it"


def test_as_many_disks_as_have_to_have_a_record_that_is_acknowledged(inside: Any) -> None:
    inside.writes(1, b"v")
    assert breaks(WhoMayLeadHoldsAll(inside), acknowledged(0))
    inside.writes(2, b"v", durable=False)
    assert breaks(WhoMayLeadHoldsAll(inside), acknowledged(0))
    inside.writes(3, b"another one, at the same offset")
    assert breaks(WhoMayLeadHoldsAll(inside), acknowledged(0))
    assert breaks(WhoMayLeadHoldsAll(inside, begun_at(0)), acknowledged(0))
    assert not breaks(WhoMayLeadHoldsAll(inside, begun_at(1)), acknowledged(0)), "it was deleted meanwhile"
    inside.disks[2] = SimulatedDisk()
    inside.writes(2, b"v")
    assert not breaks(WhoMayLeadHoldsAll(inside), acknowledged(0))


@pytest.mark.parametrize(
    ("isr", "eligible", "leads", "epoch", "log_start", "is_wrong"),
    [
        ((1, 2), (), False, 3, 6, False),
        ((1, 2, 3), (), False, 3, 6, True),
        ((1, 2, 3), (), False, 3, 7, False),
        ((1, 2), (3,), False, 3, 6, True),
        ((1, 2), (), True, 4, 6, True),
        ((1, 2), (), True, 2, 6, False),
    ],
)
def test_what_somebody_was_told_to_be_gone_is_gone_for_whoever_may_lead(
    inside: Any,
    isr: Sequence[int],
    eligible: Sequence[int],
    leads: bool,
    epoch: int,
    log_start: int,
    is_wrong: bool,
) -> None:
    rule = WhoMayLeadHasDeleted(inside)
    inside.isr, inside.eligible, inside.epoch = isr, eligible, epoch
    inside.has(3, leads=leads, epoch=epoch, log_start=log_start)
    assert not breaks(rule, ANY)
    assert breaks(rule, RecordsDeleted(1.0, "deleter", T, 0, 7, 1, 3)) is is_wrong
    assert breaks(rule, ANY) is is_wrong


def test_an_election_that_may_lose_records_may_bring_back_what_was_deleted(inside: Any) -> None:
    rule = WhoMayLeadHasDeleted(inside, lambda _topic_id, _partition, epoch: int(epoch >= 4))
    inside.isr, inside.epoch = (3,), 4
    inside.has(3, leads=True, epoch=4, log_start=6)
    assert not breaks(rule, RecordsDeleted(1.0, "deleter", T, 0, 7, 1, 3))
    assert breaks(rule, RecordsDeleted(2.0, "deleter", T, 0, 7, 3, 4))


def test_a_log_begins_where_some_broker_has_let_one_begin(inside: Any) -> None:
    inside.has(1, log_start=3)
    assert not breaks(NothingElseIsDeleted(inside, begun_at(3)), ANY)
    assert breaks(NothingElseIsDeleted(inside, begun_at(2)), ANY)
    assert breaks(NothingElseIsDeleted(inside), ANY)


def test_a_log_that_is_begun_anew_is_compared_anew(inside: Any) -> None:
    rule = SameBytesBelowHighWatermarks(inside)
    for number in (1, 2):
        inside.writes(number, b"v", b"w")
        inside.has(number, high_watermark=2)
        assert not breaks(rule, ANY)
    inside.disks[2] = SimulatedDisk()
    inside.writes(2, b"v", b"x")
    inside.has(2, high_watermark=1)
    assert not breaks(rule, ANY)
    inside.has(2, high_watermark=2)
    assert breaks(rule, ANY)


def test_below_high_watermarks_all_have_the_same(inside: Any) -> None:
    rule = SameBytesBelowHighWatermarks(inside)
    inside.writes(1, b"v", b"w")
    inside.writes(2, b"v", b"x")
    inside.has(1, high_watermark=2)
    inside.has(2, high_watermark=1)
    assert not breaks(rule, ANY)
    inside.has(2, high_watermark=2)
    assert breaks(rule, ANY)


def test_what_nobody_can_read_yet_or_any_more_may_differ(inside: Any) -> None:
    rule = SameBytesBelowHighWatermarks(inside)
    inside.writes(1, b"w", start=1)
    inside.has(1, high_watermark=1, log_start=1)
    assert not breaks(rule, ANY), "what it has is not committed"
    inside.writes(2, b"v", b"x")
    inside.has(2, high_watermark=2)
    assert not breaks(rule, ANY)
    inside.writes(3, b"y", b"x")
    inside.has(3, high_watermark=2, log_start=1)
    assert not breaks(rule, ANY), "what differs is deleted there"
    inside.has(1, high_watermark=2, log_start=1)
    assert breaks(rule, ANY)


@pytest.mark.parametrize("epoch", [4, 5])
def test_behind_an_unclean_election_whoever_lacks_something_may_lead(inside: Any, epoch: int) -> None:
    rule = WhoMayLeadHoldsAll(inside, era=lost_in(5))
    for number in (1, 2):
        inside.writes(number, b"v")
    rule.after(acknowledged(0))
    inside.epoch = epoch
    inside.has(3, leads=True, epoch=epoch)
    assert breaks(rule, ANY) is (epoch < 5)
    inside.has(3, leads=True, epoch=5, held=1)
    inside.epoch = 5
    assert not breaks(rule, acknowledged(0, epoch=5))
    inside.has(3, leads=True, epoch=6)
    inside.epoch = 6
    assert breaks(rule, ANY)


def test_behind_an_unclean_election_all_who_are_read_have_the_same(inside: Any) -> None:
    rule = SameBytesBelowHighWatermarks(inside, lost_in(5))
    inside.writes(1, b"v", b"w")
    inside.writes(2, b"v", b"x")
    inside.has(1, epoch=4, high_watermark=2)
    assert not breaks(rule, ANY)
    inside.has(2, leads=True, epoch=5, high_watermark=2)
    inside.isr = (2,)
    inside.has(1, epoch=5, high_watermark=2)
    assert not breaks(rule, ANY), "it is not in sync, and has not found out yet what was lost"
    inside.isr = (1, 2)
    inside.has(1, epoch=5, high_watermark=2)
    assert breaks(rule, ANY)


def test_decisions_up_to_an_offset_are_the_same_everywhere() -> None:
    rule, nobody = DecisionsStay(), ClusterImage()
    node: Any = SimpleNamespace(node_id=1)
    for offset, next_producer_id, is_wrong in ((5, 1, False), (6, 2, False), (5, 1, False), (6, 3, True)):
        after = replace(nobody, offset=offset, next_producer_id=next_producer_id)
        rule.hear(node, ImageDelta.between(nobody, after))
        assert breaks(rule, ANY) is is_wrong
