"""The part that one broker has in a partition: leader, follower or neither

Pure. The image says who leads in which epoch; the log says how far this broker holds the partition; followers say by
their fetches how far they hold it. From that follow the high watermark (HW), which consumers see up to and which is
also the acknowledgement of acks=all, and the wish for another ISR, which only the controller can grant.

The rules, which are Kafka's unless said otherwise:

* `held` is the end of what survives a crash of this broker, so under `flush.policy=group` it is what is durable. A
  follower fetches from what it holds: its fetch offset is its word for everything below.
* HW is the least that any member of the maximal ISR holds: of the ISR that is committed and every ISR that has been
  asked for since, for one of these may be the one that counts. It stays where it is while the ISR is smaller than
  min.insync.replicas (or the number of replicas, if that is less), and it never goes back on a leader. Nor does it move
  while there are eligible leader replicas (ELR): the controller, whose settings may be others, counts on that.
* A follower joins when it holds all below HW, and all that was there when this leadership began. HW waits for one that
  is about to, or it never would; one that has not been at the end for `lag_max_ms` is not waited for and, if it is a
  member, asked out. Nor is one that may not join yet because its log begins before the leader's.
* Who is fenced, about to stop or gone is not asked in: each refusal would end in a record of the metadata (KIP-841).
* A refusal by the controller does not prove that the question is nowhere under way any more. Those who were asked in
  stay counted until the partition epoch has moved on, which asking for the committed ISR makes it do.
* A follower cuts its log where its epochs part from the leader's, never at its HW (KIP-101, KIP-279).
* The low watermark is the least offset at which any live replica's log begins: what is below is gone (KIP-107). Ours
  also counts whoever may be elected, live or not, and nobody is asked in whose log begins before the leader's: so a new
  leader shows nothing that somebody was told to be deleted.

`alone` is ours: as long as nobody else counts, what is held is acknowledged, and the many who wait may wait for one
round of fsync instead of for this partition. When somebody is about to join, what was appended so far has been promised
that way, so nobody is asked in before HW is there (`_promised`). A partition with one replica is always alone: the
degenerate case, by the same code.

Not here: the log, who waits for what (`replica`), the fetching, and the choice of a leader (the controller).
"""

import enum
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from tidemill.broker.log.epochs import UNKNOWN_EPOCH, LeaderEpochs
from tidemill.broker.quorum.image import PartitionImage
from tidemill.broker.replication.actions import Action, Follow, LogStartMoved, ProposeIsr, RefuseWaiting, Truncate
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    StaleBrokerEpoch,
    UnknownLeaderEpoch,
)

NOBODY = -1
UNKNOWN = -1


class Role(enum.Enum):
    """What this broker is to the partition."""

    NONE = "none"
    LEADER = "leader"
    FOLLOWER = "follower"


class Progress(NamedTuple):
    """How far a follower has come, as its leader knows; `held` is UNKNOWN until it has fetched in this epoch.

    `caught_up_ms` is when it was last known to have everything, `end` where the leader's log ended at its last fetch,
    `log_start` where its own log begins by its own account, durably.
    """

    held: int
    broker_epoch: int
    caught_up_ms: int
    fetched_ms: int
    end: int
    joining: bool
    log_start: int = UNKNOWN


class Asking(NamedTuple):
    """A broker that copies anything from here: in which epoch, and when it asked last.

    `may_join` is whether it is active, as far as the image says; who is not would be refused by the controller.
    """

    broker_epoch: int
    may_join: bool
    asked_ms: int


class Divergence(NamedTuple):
    """Of a leader whose log parts from the follower's: its last epoch up to the one asked about, and where it ends."""

    epoch: int
    end_offset: int


class PartitionMachine:
    """Mutable: one partition on one broker. What it shows changes by its methods only, each of which is one event."""

    __slots__ = (
        "_epoch_start",
        "_followers",
        "_lag_max_ms",
        "_maximal",
        "_min_in_sync",
        "_promised",
        "_proposal",
        "alone",
        "eligible",
        "held",
        "high_watermark",
        "isr",
        "leader",
        "leader_epoch",
        "leader_high_watermark",
        "leads",
        "log_start",
        "node_id",
        "partition_epoch",
        "replicas",
        "role",
    )

    def __init__(
        self, node_id: int, *, held: int, high_watermark: int = 0, min_in_sync: int = 1, lag_max_ms: int = 30_000
    ) -> None:
        """`held` is what the log has at a start, `high_watermark` what the checkpoint says, which may be beyond it."""
        self.node_id = node_id
        self.role = Role.NONE
        self.leads = False  # whether the role is that of the leader
        self.leader = NOBODY
        self.leader_epoch = UNKNOWN
        self.partition_epoch = UNKNOWN
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.eligible: tuple[int, ...] = ()  # ELR, out of the ISR and electable all the same
        self.held = held
        self.log_start = 0
        self.high_watermark = min(high_watermark, held)
        self.alone = False
        self._min_in_sync = min_in_sync
        self._lag_max_ms = lag_max_ms
        self._epoch_start = 0
        self._followers: dict[int, Progress] = {}
        self._maximal: frozenset[int] = frozenset()
        self._proposal: ProposeIsr | None = None
        self._promised = 0  # below this, what this broker holds was acknowledged while it was alone
        self.leader_high_watermark = 0  # as a follower: as far as it goes for the log as it is here

    # -- what holds now

    @property
    def is_settled(self) -> bool:
        """Whether a leader's HW has reached what the leader before may have shown already (KIP-207)."""
        return self.high_watermark >= self._epoch_start

    @property
    def readable(self) -> bool:
        """Whether what consumers read here, be it at a follower, is not far behind what is committed."""
        return self.leads or (self.role is Role.FOLLOWER and self.node_id in self.isr)

    @property
    def proposal(self) -> ProposeIsr | None:
        """The ISR that has been asked for."""
        return self._proposal

    def progress(self, replica: int) -> Progress | None:
        """What a leader knows of a follower."""
        return self._followers.get(replica)

    def low_watermark(self, live: Container[int]) -> int:
        """As a leader knows it, where `live` are the brokers that are; UNKNOWN while one that counts has to fetch."""
        counted = (
            each.log_start
            for replica, each in self._followers.items()
            if replica in live or replica in self._maximal or replica in self.eligible
        )
        return min([self.log_start, *counted])

    def check_epoch(self, believed_epoch: int) -> None:
        """Raise FencedLeaderEpoch or UnknownLeaderEpoch if somebody believes in another epoch; -1 believes nothing."""
        if believed_epoch < 0 or believed_epoch == self.leader_epoch:
            return
        if believed_epoch < self.leader_epoch:
            raise FencedLeaderEpoch(f"leader epoch {believed_epoch} is over, {self.leader_epoch} is the current one")
        raise UnknownLeaderEpoch(f"leader epoch {believed_epoch} is not known here yet")

    def check_leads(self) -> None:
        """Raise NotLeaderOrFollower if this broker does not lead."""
        if self.role is not Role.LEADER:
            raise NotLeaderOrFollower(f"broker {self.node_id} does not lead; {self.leader} does")

    def check_in_sync(self, min_in_sync: int) -> None:
        """Raise NotEnoughReplicas if a batch with acks=all must not even be appended.

        More than there are replicas is never demanded, as in Kafka.
        """
        if self.eligible:
            raise NotEnoughReplicas(f"{len(self.isr)} in sync, while any of {list(self.eligible)} may be elected too")
        if len(self.isr) < min(min_in_sync, len(self.replicas)):
            raise NotEnoughReplicas(f"{len(self.isr)} replicas in sync; min.insync.replicas is {min_in_sync}")

    # -- what happens

    def configured(self, *, min_in_sync: int, lag_max_ms: int, log_end: int) -> list[Action]:
        """Settings are others."""
        self._min_in_sync, self._lag_max_ms = min_in_sync, lag_max_ms
        self._settle(log_end)
        return self._refuse_if_too_few()

    def assigned(self, image: PartitionImage, *, log_end: int, now_ms: int) -> list[Action]:
        """The controller has decided; an older decision than the last one heard of means nothing any more."""
        if image.partition_epoch <= self.partition_epoch or image.leader_epoch < self.leader_epoch:
            return []
        new_epoch = image.leader_epoch > self.leader_epoch
        self.leader, self.leader_epoch = image.leader, image.leader_epoch
        self.partition_epoch = image.partition_epoch
        self.replicas, self.isr, self.eligible = image.replicas, image.isr, image.eligible_leader_replicas
        self._maximal, self._proposal = frozenset(image.isr), None
        if image.leader == self.node_id:
            return self._lead(new_epoch, log_end, now_ms)
        return self._follow(new_epoch)

    def _lead(self, new_epoch: bool, log_end: int, now_ms: int) -> list[Action]:
        followed = self.role is Role.FOLLOWER
        if new_epoch or self.role is not Role.LEADER:
            self.role, self.leads = Role.LEADER, True
            self._epoch_start = log_end
            self._followers = {}
        member = Progress(held=UNKNOWN, broker_epoch=UNKNOWN, caught_up_ms=now_ms, fetched_ms=0, end=0, joining=False)
        stranger = member._replace(caught_up_ms=UNKNOWN)
        self._followers = {
            each: self._followers.get(each) or (member if each in self._maximal else stranger)
            for each in self.replicas
            if each != self.node_id
        }
        self._stop_joining(self._maximal)
        self._settle(log_end)
        ended: list[Action] = [Follow(leader=NOBODY, leader_epoch=self.leader_epoch)] if followed else []
        return ended + self._refuse_if_too_few() + self.ask_in(log_end)

    def _follow(self, new_epoch: bool) -> list[Action]:
        before, self.role = self.role, Role.FOLLOWER if self.node_id in self.replicas else Role.NONE
        self._followers = {}
        self.leads = self.alone = False
        self._promised = 0
        actions: list[Action] = []
        if before is Role.LEADER:
            actions.append(RefuseWaiting(error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        if new_epoch or before is not self.role:
            self.leader_high_watermark = self.high_watermark
            leader = self.leader if self.role is Role.FOLLOWER else NOBODY
            actions.append(Follow(leader=leader, leader_epoch=self.leader_epoch))
        return actions

    def stored(self, held: int) -> bool:
        """This broker holds everything below `held` now; returns whether somebody may be asked in because of that."""
        self.held = held
        if self.alone:  # what `_advance` comes to then; this is heard of with each batch
            if held > self.high_watermark:
                self.high_watermark = held
        elif self.role is Role.LEADER:
            self._advance()
            return self._proposal is None and self._next_to_join() is not None
        elif self.role is Role.FOLLOWER:
            self._take_high_watermark()
        return False

    def begins(self, log_start: int) -> list[Action]:
        """This broker's log begins there now."""
        self.log_start = log_start
        return [LogStartMoved()]

    def ask_in(self, log_end: int) -> list[Action]:
        """Ask for an ISR with the next follower that may join; its own fetches may be over when it may."""
        replica = self._next_to_join()
        if self.role is not Role.LEADER or self._proposal is not None or replica is None:
            return []
        return self._propose((*self.isr, replica), log_end)

    def _next_to_join(self) -> int | None:
        followers = self._followers.items()
        return next((replica for replica, each in followers if each.joining and self._may_join(each)), None)

    def fetched(
        self,
        replica: int,
        offset: int,
        *,
        leader_epoch: int,
        log_end: int,
        now_ms: int,
        broker_epoch: int = UNKNOWN,
        may_join: bool = True,
        log_start: int = UNKNOWN,
    ) -> list[Action]:
        """A follower holds everything below `offset`, and its log has not been found to part from this one.

        `may_join` is as in `Asking`, `log_start` as in `Progress`.

        Raises NotLeaderOrFollower, FencedLeaderEpoch, UnknownLeaderEpoch, StaleBrokerEpoch, OffsetOutOfRange.
        """
        self.check_epoch(leader_epoch)
        self.check_leads()
        before = self._followers.get(replica)
        if before is None:
            raise NotLeaderOrFollower(f"broker {replica} has no replica of this partition as far as is known here")
        if offset > log_end:
            raise OffsetOutOfRange(f"broker {replica} fetches from {offset}, the log ends at {log_end}")
        if broker_epoch > before.broker_epoch >= 0:
            before = before._replace(held=UNKNOWN, caught_up_ms=UNKNOWN, end=log_end)  # it may have lost everything
        elif 0 <= broker_epoch < before.broker_epoch:
            raise StaleBrokerEpoch(f"broker {replica} has restarted since epoch {broker_epoch}")
        caught_up_ms = before.caught_up_ms
        if offset >= log_end:
            caught_up_ms = max(caught_up_ms, now_ms)
        elif before.held >= 0 and offset >= before.end:
            caught_up_ms = max(caught_up_ms, before.fetched_ms)
        held = offset  # also where it is less than before: a copy that was thrown away is no longer counted on
        keeps_up = caught_up_ms >= 0 and now_ms - caught_up_ms <= self._lag_max_ms
        joining = may_join and keeps_up and replica not in self._maximal and self._has_deleted(log_start)
        now = self._followers[replica] = Progress(
            held, max(broker_epoch, before.broker_epoch), caught_up_ms, now_ms, log_end, joining, log_start
        )
        if joining == before.joining:  # else `alone` may be another
            self._advance()
        else:
            self._settle(log_end)
        moved: list[Action] = [LogStartMoved()] if log_start != before.log_start else []
        if joining and self._proposal is None and self._may_join(now):
            return moved + self._propose((*self.isr, replica), log_end)
        return moved

    def _may_join(self, follower: Progress) -> bool:
        return (
            self.high_watermark >= self._promised
            and follower.held >= max(self.high_watermark, self._epoch_start)
            and self._has_deleted(follower.log_start)
        )

    def _has_deleted(self, log_start: int) -> bool:
        """Whether whose log begins there has deleted what is deleted here."""
        return max(log_start, 0) >= self.log_start  # old versions of Fetch do not say

    def tick(self, now_ms: int, log_end: int, asking: Mapping[int, Asking] | None = None) -> list[Action]:
        """Some time has passed: who does not keep up is asked out, what has not been answered is asked again.

        `asking` are those who copy anything from here; None is everybody.
        """
        if self.role is not Role.LEADER:
            return []
        for replica, each in self._followers.items():  # of a silent partition nobody fetches anything
            if each.held == log_end:
                current = max(each.caught_up_ms, now_ms)
                joining = (
                    replica not in self._maximal
                    and self._has_deleted(each.log_start)
                    and (asking is None or self._is_there(asking.get(replica), each, now_ms))
                )
                self._followers[replica] = each._replace(caught_up_ms=current, joining=joining)
        late = {
            replica
            for replica, each in self._followers.items()
            if each.held != log_end and now_ms - each.caught_up_ms > self._lag_max_ms
        }
        self._stop_joining(late)
        self._settle(log_end)
        if self._proposal is not None:
            return [self._proposal]
        staying = tuple(replica for replica in self.isr if replica not in late)
        return self._propose(staying, log_end) if len(staying) < len(self.isr) else self.ask_in(log_end)

    def _is_there(self, asking: Asking | None, known: Progress, now_ms: int) -> bool:
        """Whether a follower that has fetched nothing of this partition lately is the one it was, and may join."""
        return (
            asking is not None
            and asking.may_join
            and asking.broker_epoch == known.broker_epoch
            and now_ms - asking.asked_ms <= self._lag_max_ms
        )

    def refused(self, partition_epoch: int, log_end: int) -> list[Action]:
        """The controller does not grant what was asked for in that partition epoch."""
        if self._proposal is None or partition_epoch != self.partition_epoch or self._proposal.isr == self.isr:
            return []
        return self._propose(self.isr, log_end)

    def answered(
        self,
        leader_epoch: int,
        *,
        high_watermark: int,
        divergence: Divergence | None,
        epochs: LeaderEpochs,
        log_end: int,
    ) -> list[Action]:
        """The leader has answered a fetch of this follower; its records, if any, are to be appended.

        Where there is a divergence there are none, and the log has to be cut first.
        """
        if self.role is not Role.FOLLOWER or leader_epoch != self.leader_epoch:
            return []
        if divergence is None:
            if high_watermark > self.leader_high_watermark:
                self.leader_high_watermark = high_watermark
            self._take_high_watermark()
            return []
        epoch, end_offset = epochs.end_offset_for(divergence.epoch, UNKNOWN, log_end)
        if epoch in (divergence.epoch, UNKNOWN_EPOCH):
            cut = divergence.end_offset if epoch == UNKNOWN_EPOCH else min(divergence.end_offset, end_offset)
        else:
            cut = end_offset  # of an earlier epoch: what is behind it the leader does not have, it is asked again there
        if cut >= log_end:
            return []
        lost = max(self.high_watermark - cut, 0)
        return [Truncate(offset=cut, lost=lost)]

    def truncated(self, log_end: int) -> None:
        """The log has been cut and ends there."""
        self.held = min(self.held, log_end)
        self.high_watermark = min(self.high_watermark, log_end)
        self.leader_high_watermark = min(self.leader_high_watermark, log_end)

    # -- the rules

    def _take_high_watermark(self) -> None:
        known, held = self.leader_high_watermark, self.held
        least = known if known < held else held
        if least > self.high_watermark:
            self.high_watermark = least

    @property
    def _enough(self) -> bool:
        """Whether the ISR is large enough, also as the controller sees it, who has no eligible leaders then."""
        return len(self.isr) >= min(self._min_in_sync, len(self.replicas)) and not self.eligible

    def _stop_joining(self, replicas: Iterable[int]) -> None:
        for replica in replicas:
            if replica in self._followers:
                self._followers[replica] = self._followers[replica]._replace(joining=False)

    def _settle(self, log_end: int) -> None:
        """Draw the conclusions from whoever counts now; `log_end` is what has been appended so far."""
        was_alone = self.alone
        self.alone = (
            self.role is Role.LEADER
            and self._maximal == {self.node_id}
            and self._enough
            and not any(each.joining for each in self._followers.values())
        )
        if was_alone and not self.alone:
            self._promised = log_end
        if self.role is Role.LEADER:
            self._advance()

    def _advance(self) -> None:
        """Let HW be where the replicas that count are, if that is further."""
        bound = self.held
        if bound <= self.high_watermark:
            return
        if not self.alone:
            if not self._enough:
                return
            joining = bound
            for replica, each in self._followers.items():  # with each fetch of a follower: a loop, and nothing made
                held = each.held
                if held < bound and replica in self._maximal:
                    bound = held
                if held < joining and each.joining:
                    joining = held
            bound = min(bound, max(joining, self._promised))
        if bound > self.high_watermark:
            self.high_watermark = bound

    def _refuse_if_too_few(self) -> list[Action]:
        if self.role is Role.LEADER and not self._enough:
            return [RefuseWaiting(error=ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)]
        return []

    def _propose(self, isr: Sequence[int], log_end: int) -> list[Action]:
        heard_of = (self._followers.get(replica) for replica in isr)
        self._proposal = ProposeIsr(
            isr=tuple(isr),
            broker_epochs=tuple(UNKNOWN if each is None else each.broker_epoch for each in heard_of),
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
        )
        self._maximal = self._maximal | set(isr)
        self._stop_joining(self._maximal)
        self._settle(log_end)
        return [self._proposal]
