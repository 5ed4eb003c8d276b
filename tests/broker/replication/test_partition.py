from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tidemill.broker.log.epochs import LeaderEpochs
from tidemill.broker.quorum.image import PartitionImage
from tidemill.broker.replication.actions import Action, Follow, LogStartMoved, ProposeIsr, RefuseWaiting, Truncate
from tidemill.broker.replication.partition import Asking, Divergence, PartitionMachine, Role
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    StaleBrokerEpoch,
    UnknownLeaderEpoch,
)


def image(
    leader: int = 1,
    isr: tuple[int, ...] = (1,),
    replicas: tuple[int, ...] = (1, 2, 3),
    epoch: int = 0,
    version: int = 0,
) -> PartitionImage:
    return PartitionImage(
        partition=0, replicas=replicas, isr=isr, leader=leader, leader_epoch=epoch, partition_epoch=version
    )


class Led:
    """Broker 1 leads; `end` is where its log ends."""

    def __init__(self, isr: tuple[int, ...], end: int = 10, *, min_in_sync: int = 1, **named: Any) -> None:
        self.machine = PartitionMachine(1, held=end, min_in_sync=min_in_sync, lag_max_ms=1000)
        self.end, self.now_ms = end, 5000
        self.assign(image(isr=isr, **named))

    def assign(self, which: PartitionImage) -> list[Action]:
        return self.machine.assigned(which, log_end=self.end, now_ms=self.now_ms)

    def append(self, count: int = 1, *, durable: bool = True) -> None:
        self.end += count
        if durable:
            self.machine.stored(self.end)

    def fetch(self, replica: int, offset: int, broker_epoch: int = -1, log_start: int = -1) -> list[Action]:
        return self.machine.fetched(
            replica,
            offset,
            leader_epoch=self.machine.leader_epoch,
            log_end=self.end,
            now_ms=self.now_ms,
            broker_epoch=broker_epoch,
            log_start=log_start,
        )

    def tick(self, later_ms: int = 0, asking: Mapping[int, Asking] | None = None) -> list[Action]:
        self.now_ms += later_ms
        return self.machine.tick(self.now_ms, self.end, asking)


def asked(isr: tuple[int, ...], version: int = 0, epochs: tuple[int, ...] | None = None) -> ProposeIsr:
    return ProposeIsr(isr=isr, broker_epochs=epochs or (-1,) * len(isr), leader_epoch=0, partition_epoch=version)


# --- a node by itself


def test_a_replica_alone_shows_what_it_holds() -> None:
    machine = PartitionMachine(1, held=7, high_watermark=3)
    assert (machine.high_watermark, machine.role) == (3, Role.NONE)
    assert machine.assigned(image(replicas=(1,)), log_end=9, now_ms=0) == []
    assert (machine.leads, machine.alone, machine.high_watermark) == (True, True, 7)
    machine.stored(9)
    assert machine.high_watermark == 9
    assert machine.tick(10**6, 12) == []


def test_a_checkpoint_beyond_the_log_is_bounded_by_it() -> None:
    assert PartitionMachine(1, held=7, high_watermark=30).high_watermark == 7


def test_one_replica_is_enough_where_there_is_but_one() -> None:
    led = Led((1,), replicas=(1,), min_in_sync=2)
    assert (led.machine.alone, led.machine.high_watermark) == (True, 10)
    led.machine.check_in_sync(2)  # more than there are is not demanded
    led.assign(image(isr=(1,), version=1))
    led.machine.check_in_sync(1)
    with pytest.raises(NotEnoughReplicas, match=r"1 replicas in sync; min\.insync\.replicas is 2"):
        led.machine.check_in_sync(2)


# --- the high watermark


def test_it_is_the_least_that_a_member_of_the_isr_holds() -> None:
    led = Led((1, 2, 3))
    assert led.machine.high_watermark == 0, "nobody has been heard of"
    led.fetch(2, 8)
    assert led.machine.high_watermark == 0
    led.fetch(3, 5)
    assert led.machine.high_watermark == 5
    led.fetch(3, 10)
    assert led.machine.high_watermark == 8
    led.fetch(2, 6)  # an old one that came late
    assert led.machine.high_watermark == 8


def test_it_does_not_count_what_is_not_durable_here() -> None:
    led = Led((1, 2))
    led.append(5, durable=False)
    led.fetch(2, 15)
    assert led.machine.high_watermark == 10
    led.machine.stored(15)
    assert led.machine.high_watermark == 15


def test_it_stands_still_while_too_few_are_in_sync() -> None:
    led = Led((1, 2), min_in_sync=2)
    led.fetch(2, 10)
    assert led.assign(image(isr=(1,), version=1)) == [RefuseWaiting(error=ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)]
    led.append(3)
    assert (led.machine.high_watermark, led.machine.alone) == (10, False)
    assert led.machine.configured(min_in_sync=1, lag_max_ms=1000, log_end=led.end) == []
    assert (led.machine.high_watermark, led.machine.alone) == (13, True)


def test_a_new_leader_knows_less_than_the_one_before_may_have_shown() -> None:
    led = Led((1, 2))
    assert not led.machine.is_settled
    led.fetch(2, 9)
    assert not led.machine.is_settled
    led.fetch(2, 10)
    assert led.machine.is_settled


# --- the isr


def test_who_has_everything_is_asked_in_and_counts_from_then_on() -> None:
    led = Led((1,))
    assert led.fetch(2, 4) == []
    assert led.fetch(2, 10, broker_epoch=6) == [asked((1, 2), epochs=(-1, 6))]
    assert not led.machine.alone
    led.append(5)
    assert led.machine.high_watermark == 10, "it may be a member by now, and has no more"
    led.fetch(2, 12)
    assert led.machine.high_watermark == 12
    led.assign(image(isr=(1, 2), version=1))
    assert (led.machine.isr, led.machine.proposal, led.machine.high_watermark) == ((1, 2), None, 12)


def test_nobody_is_asked_in_before_what_was_promised_alone_is_durable() -> None:
    led = Led((1,))
    led.append(3, durable=False)  # whoever waits for these waits for the disk only
    assert led.fetch(2, 10) == []
    led.fetch(2, 13)
    assert (led.machine.alone, led.machine.proposal) == (False, None)
    led.machine.stored(13)
    assert led.machine.high_watermark == 13
    assert led.fetch(2, 13) == [asked((1, 2))]


def test_what_is_appended_while_somebody_is_about_to_join_waits_for_it() -> None:
    led = Led((1,))
    led.append(3, durable=False)
    led.fetch(2, 13)
    led.append(2)
    assert led.machine.high_watermark == 13
    led.tick(2000)
    assert (led.machine.high_watermark, led.machine.alone) == (15, True), "it has fallen behind: nobody waits for it"


def test_who_does_not_keep_up_is_asked_out_and_counts_until_that_is_decided() -> None:
    led = Led((1, 2, 3))
    for replica in (2, 3):
        led.fetch(replica, 10)
    led.append(5)
    led.now_ms += 900
    led.fetch(2, 15)
    assert led.tick(200) == [asked((1, 2))]
    assert led.machine.high_watermark == 10
    assert led.tick(100) == [asked((1, 2))], "until there is an answer"
    led.assign(image(isr=(1, 2), version=1))
    assert led.machine.high_watermark == 15


def test_a_silent_follower_of_a_silent_partition_stays() -> None:
    led = Led((1, 2))
    led.fetch(2, 10)
    assert led.tick(10**6) == []


def test_a_follower_of_a_partition_that_was_silent_for_long_has_time_for_what_comes_then() -> None:
    led = Led((1, 2))
    led.fetch(2, 10)
    led.tick(10**6)
    led.append()
    assert led.tick(900) == [], "it has not even been asked yet"
    assert led.tick(200) == [asked((1,))]


def test_a_refusal_proves_nothing_so_the_committed_isr_is_asked_for() -> None:
    led = Led((1,))
    led.fetch(2, 10)
    assert led.machine.refused(0, led.end) == [asked((1,))]
    led.append(1)
    assert led.machine.high_watermark == 10, "the first question may still be under way"
    assert led.machine.refused(0, led.end) == []
    led.assign(image(isr=(1,), version=1))
    led.tick(2000)
    assert (led.machine.alone, led.machine.high_watermark) == (True, 11)


def test_a_follower_that_has_restarted_may_have_lost_everything() -> None:
    led = Led((1, 2))
    led.fetch(2, 10, broker_epoch=4)
    led.append(2)
    led.fetch(2, 0, broker_epoch=5)
    with pytest.raises(StaleBrokerEpoch):
        led.fetch(2, 12, broker_epoch=4)
    assert led.machine.high_watermark == 10


# --- epochs


def test_fetches_of_other_epochs_count_for_nothing() -> None:
    led = Led((1, 2), epoch=3, version=5)
    with pytest.raises(FencedLeaderEpoch):
        led.machine.fetched(2, 10, leader_epoch=2, log_end=10, now_ms=0)
    with pytest.raises(UnknownLeaderEpoch):
        led.machine.fetched(2, 10, leader_epoch=4, log_end=10, now_ms=0)
    with pytest.raises(OffsetOutOfRange):
        led.fetch(2, 11)
    with pytest.raises(NotLeaderOrFollower, match="broker 9 has no replica"):
        led.fetch(9, 10)
    led.machine.check_epoch(-1)
    assert led.machine.high_watermark == 0


def test_an_older_decision_means_nothing() -> None:
    led = Led((1, 2), epoch=3, version=5)
    assert led.assign(image(leader=2, isr=(2,), epoch=2, version=4)) == []
    assert led.assign(image(leader=1, isr=(1,), epoch=3, version=5)) == []
    assert (led.machine.isr, led.machine.leads) == ((1, 2), True)


def test_who_leads_no_more_acknowledges_no_more() -> None:
    led = Led((1, 2))
    led.append(5)
    assert led.assign(image(leader=2, isr=(1, 2), epoch=1, version=1)) == [
        RefuseWaiting(error=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        Follow(leader=2, leader_epoch=1),
    ]
    with pytest.raises(NotLeaderOrFollower):
        led.machine.check_leads()
    assert led.tick(10**6) == []
    assert led.assign(image(leader=2, isr=(1, 2, 3), epoch=1, version=2)) == [], "the same leader, the same epoch"
    assert led.assign(image(leader=-1, isr=(1, 2, 3), epoch=2, version=3)) == [Follow(leader=-1, leader_epoch=2)]
    assert led.assign(image(leader=2, isr=(2,), replicas=(2,), epoch=3, version=4)) == [
        Follow(leader=-1, leader_epoch=3)
    ]
    assert led.machine.role is Role.NONE


def test_a_follower_that_is_elected_follows_nobody() -> None:
    machine = following()
    assert machine.assigned(image(leader=2, isr=(1, 2), epoch=4, version=4), log_end=10, now_ms=0) == [
        Follow(leader=-1, leader_epoch=4)
    ]
    assert machine.assigned(image(leader=2, isr=(2,), epoch=5, version=5), log_end=10, now_ms=0) == []


# --- a follower


def following(held: int = 10, high_watermark: int = 4) -> PartitionMachine:
    machine = PartitionMachine(2, held=held, high_watermark=high_watermark)
    assert machine.assigned(image(isr=(1, 2), epoch=3, version=3), log_end=held, now_ms=0) == [
        Follow(leader=1, leader_epoch=3)
    ]
    return machine


def answer(
    machine: PartitionMachine, high_watermark: int, divergence: Divergence | None = None, epoch: int = 3, end: int = 10
) -> list[Action]:
    epochs = LeaderEpochs([(0, 0), (1, 5), (2, 8)])
    return machine.answered(epoch, high_watermark=high_watermark, divergence=divergence, epochs=epochs, log_end=end)


def test_a_follower_takes_the_high_watermark_as_far_as_it_holds() -> None:
    machine = following()
    assert answer(machine, 12) == []
    assert machine.high_watermark == 10
    machine.stored(11)
    machine.stored(20)
    assert machine.high_watermark == 12
    answer(machine, 5)
    assert machine.high_watermark == 12
    answer(machine, 15, epoch=2)
    assert machine.high_watermark == 12, "of another epoch"


@pytest.mark.parametrize(
    ("divergence", "cut"),
    [
        (Divergence(2, 9), 9),  # of the last epoch the leader has less
        (Divergence(1, 7), 7),  # it has nothing of the last one, and less of the one before
        (Divergence(1, 30), 8),  # it has more of that one
        (Divergence(0, 4), 4),
        (Divergence(2, 30), None),
    ],
)
def test_a_follower_cuts_where_the_epochs_part(divergence: Divergence, cut: int | None) -> None:
    machine = following()
    actions = answer(machine, 99, divergence)
    assert actions == ([] if cut is None else [Truncate(offset=cut, lost=0)])
    assert machine.high_watermark == 4, "of a log that parts from the leader's nothing is known to be committed"
    if cut is not None:
        machine.truncated(cut)
        assert machine.held == cut


def test_an_epoch_that_the_follower_does_not_have_is_cut_at_its_own() -> None:
    """KIP-279: the leader's answer is about an epoch of which there is nothing here; what came after goes."""
    machine = PartitionMachine(2, held=10)
    machine.assigned(image(isr=(1, 2), epoch=3, version=3), log_end=10, now_ms=0)
    epochs = LeaderEpochs([(0, 0), (2, 6)])
    actions = machine.answered(3, high_watermark=0, divergence=Divergence(1, 9), epochs=epochs, log_end=10)
    assert actions == [Truncate(offset=6, lost=0)]


def test_a_cut_below_what_was_committed_is_told() -> None:
    machine = following(high_watermark=10)
    assert answer(machine, 0, Divergence(1, 7)) == [Truncate(offset=7, lost=3)]
    machine.truncated(7)
    assert (machine.high_watermark, machine.held) == (7, 7)


def test_a_follower_that_was_at_the_end_before_the_leader_held_it_is_asked_in_all_the_same() -> None:
    """It has fetched everything, so nothing more comes of it; what it waits for is the leader's own disk."""
    led = Led(isr=(1,))
    led.append(durable=False)
    assert led.fetch(2, led.end) == []
    assert led.machine.stored(led.end)
    (asked,) = led.machine.ask_in(led.end)
    assert isinstance(asked, ProposeIsr)
    assert asked.isr == (1, 2)
    assert not led.machine.stored(led.end), "once"
    assert led.machine.ask_in(led.end) == []


def test_one_that_waits_while_another_is_asked_in_comes_next() -> None:
    led = Led(isr=(1,))
    (first,) = led.fetch(2, led.end)
    assert isinstance(first, ProposeIsr)
    assert led.fetch(3, led.end) == []
    (second,) = led.assign(image(isr=(1, 2), version=first.partition_epoch + 1))
    assert isinstance(second, ProposeIsr)
    assert second.isr == (1, 2, 3)


def test_one_that_was_refused_is_asked_in_again_at_the_next_tick() -> None:
    led = Led(isr=(1,))
    (first,) = led.fetch(2, led.end)
    assert isinstance(first, ProposeIsr)
    (instead,) = led.machine.refused(first.partition_epoch, led.end)
    assert isinstance(instead, ProposeIsr)
    assert instead.isr == (1,)
    assert led.assign(image(isr=(1,), version=first.partition_epoch + 1)) == [], "not at once: it was refused"
    (again,) = led.tick(500)
    assert isinstance(again, ProposeIsr)
    assert again.isr == (1, 2)


def test_who_may_not_be_in_sync_is_neither_asked_in_nor_waited_for() -> None:
    led = Led((1,))
    fetch = led.machine.fetched
    assert fetch(2, 10, leader_epoch=0, log_end=10, now_ms=led.now_ms, may_join=False) == []
    led.append()
    assert (led.machine.alone, led.machine.high_watermark) == (True, 11)
    assert fetch(2, 11, leader_epoch=0, log_end=11, now_ms=led.now_ms) == [asked((1, 2))]


@pytest.mark.parametrize(
    ("asking", "joins"),
    [
        ({2: Asking(broker_epoch=7, may_join=True, asked_ms=5500)}, True),
        ({2: Asking(broker_epoch=7, may_join=False, asked_ms=5500)}, False),
        ({2: Asking(broker_epoch=8, may_join=True, asked_ms=5500)}, False),  # its copy may be another by now
        ({2: Asking(broker_epoch=7, may_join=True, asked_ms=4500)}, False),  # nobody is there
        ({}, False),
    ],
)
def test_of_a_silent_partition_only_a_follower_that_still_asks_for_others_is_asked_in(
    asking: dict[int, Asking], joins: bool
) -> None:
    led = Led((1, 2))
    led.fetch(2, 10, broker_epoch=7)
    led.assign(image(version=1))
    assert led.tick(600, asking) == ([asked((1, 2), version=1, epochs=(-1, 7))] if joins else [])
    assert led.machine.alone is not joins


def test_as_long_as_others_may_be_elected_for_what_they_hold_nothing_is_committed_without_them() -> None:
    """The controller may go by a larger min.insync.replicas than this broker, or hear of another before it."""
    led = Led((1, 2))
    led.fetch(2, 10)
    assert led.machine.high_watermark == 10
    actions = led.assign(replace(image(isr=(1,), version=1), eligible_leader_replicas=(2,)))
    assert actions == [RefuseWaiting(error=ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)]
    led.append()
    assert (led.machine.alone, led.machine.high_watermark) == (False, 10), "else 2 is elected and 11 is gone"
    with pytest.raises(NotEnoughReplicas, match=r"\[2\]"):
        led.machine.check_in_sync(1)
    led.assign(image(isr=(1,), version=2))
    assert (led.machine.alone, led.machine.high_watermark) == (True, 11)
    led.machine.check_in_sync(1)


# --- the low watermark


def test_it_is_the_least_offset_at_which_any_replica_begins_that_counts() -> None:
    led = Led((1, 2))
    assert led.machine.begins(7) == [LogStartMoved()]
    assert led.machine.low_watermark({1, 2, 3}) == -1, "nobody has been heard of"
    assert led.fetch(2, 10, log_start=4) == [LogStartMoved()]
    assert led.fetch(2, 10, log_start=4) == []
    assert led.machine.low_watermark({1, 2}) == 4
    assert led.machine.low_watermark({1, 2, 3}) == -1, "3 is live, in sync or not"
    led.fetch(3, 2, log_start=1)
    assert (led.machine.low_watermark({1, 2, 3}), led.machine.low_watermark({1, 3})) == (1, 1)
    assert led.machine.low_watermark({1}) == 4, "2 may be elected as long as it is in the ISR"
    led.fetch(2, 10, log_start=8)
    assert led.machine.low_watermark({1, 2}) == 7
    led.assign(replace(image(isr=(1,), version=1), eligible_leader_replicas=(3,)))
    assert (led.machine.low_watermark({1}), led.machine.low_watermark({1, 2})) == (1, 1), "so may 3"
    led.assign(image(isr=(1,), version=2))
    assert led.machine.low_watermark({1}) == 7


def test_who_has_been_asked_in_counts_until_it_is_decided() -> None:
    led = Led((1,))
    assert led.fetch(2, 10, log_start=0)[-1] == asked((1, 2))
    led.machine.begins(7)
    assert led.machine.low_watermark({1}) == 0


def test_nobody_is_asked_in_who_would_show_what_was_deleted() -> None:
    led = Led((1,))
    led.machine.begins(7)
    assert led.fetch(2, 10, log_start=6) == [LogStartMoved()]
    assert led.tick() == []
    assert led.fetch(2, 10, log_start=7) == [LogStartMoved(), asked((1, 2))]


def test_nobody_waits_for_who_cannot_join_yet_because_of_what_was_deleted() -> None:
    led = Led((1,))
    led.machine.begins(7)
    led.fetch(2, 10, log_start=6)
    led.append(2)
    assert led.machine.high_watermark == 12
    led.fetch(2, 12, log_start=6)
    led.tick()  # of a silent partition
    led.append(1)
    assert led.machine.high_watermark == 13
    assert led.fetch(2, 12, log_start=7) == [LogStartMoved()]
    led.append(1)
    assert led.machine.high_watermark == 13, "now it may, and could not if nobody waited"
    assert led.fetch(2, 13, log_start=7) == [asked((1, 2))]


def test_one_replica_is_all_that_there_is() -> None:
    led = Led((1,), replicas=(1,))
    led.machine.begins(7)
    assert led.machine.low_watermark(set()) == 7
