"""The groups of one partition as a pure machine

Who is in a group, who assigns, who owns which partitions in which generation, how far they got. `step` takes a
request or a tick and says what to write, what to answer and after which write. What must survive a crash (committed
offsets, the generation with its assignment) changes in `apply` alone, which is also recovery: a restarted coordinator
replays the log, says so (`Replayed`), and members go on in the generation they were in.

Three parts decide: `joining` who comes in, `rounds` how generations follow one another, `commits` what is kept of
offsets. This is their common face: it hands events on, applies what was written and lets them go on from there.

The rules are those of Kafka's classic protocol with KIP-345 (static members), KIP-394 (ids are handed out before they
count) and KIP-814 (a returning leader need not assign again). Not here: KIP-848 groups, transactions, the log itself.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tidemill.broker.coordination.contract import Appended, AppendFailed, ImageChanged, Instant, Replayed, Tick
from tidemill.broker.groups import offsets as rules
from tidemill.broker.groups.commits import Commits, refused
from tidemill.broker.groups.events import (
    Action,
    CommitOffsets,
    CommittedOffset,
    DeleteGroup,
    DeleteOffsets,
    Event,
    ExpireOffsets,
    GroupView,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Standing,
    SyncGroup,
)
from tidemill.broker.groups.joining import Joining
from tidemill.broker.groups.membership import ClassicGroup
from tidemill.broker.groups.records import CoordinatorRecord, GroupRecord, GroupTombstone, OffsetRecord, OffsetTombstone
from tidemill.broker.groups.rounds import Rounds
from tidemill.broker.groups.table import Answer, Assigned, GroupLimits, GroupTable, Kept, Returned


class GroupMachine:
    """All groups of one partition."""

    def __init__(self, limits: GroupLimits) -> None:
        self.table = GroupTable(limits)  # to be looked at only
        self._rounds = Rounds(self.table)
        self._joining = Joining(self.table, self._rounds)
        self._commits = Commits(self.table, self._rounds)

    # --- the contract

    def step(self, event: Event, now: Instant) -> list[Action]:
        """Take in `event` and return what has to happen, in order."""
        actions = self.table.begin()
        match event:
            case Heartbeat():
                self._rounds.heartbeat(event, now)
            case CommitOffsets():
                self._commits.commit(event, now)
            case JoinGroup():
                self._joining.join(event, now)
            case SyncGroup():
                self._rounds.sync(event, now)
            case LeaveGroup():
                self._rounds.leave(event, now)
            case DeleteGroup():
                self._commits.delete_group(event)
            case DeleteOffsets():
                self._commits.delete_offsets(event)
            case Replayed():
                self._replayed(event, now)
            case ImageChanged():
                self._commits.image_changed(event)
            case ExpireOffsets():
                self._commits.expire(event, now)
            case Tick():
                for key in self.table.deadlines.due(now.monotonic_ms):
                    self._rounds.time_is_up(key, now)
            case Appended():
                self._appended(event, now)
            case AppendFailed():
                self._append_failed(event, now)
        return actions

    def next_deadline_ms(self) -> int | None:
        """When a Tick is needed next, on the monotonic clock."""
        return self.table.deadlines.next_ms()

    def apply(self, record: CoordinatorRecord) -> None:
        """Change what must survive a crash; the only place that does."""
        match record:
            case OffsetRecord():
                self.table.group(record.group_id).offsets[record.topic, record.partition] = rules.committed(record)
            case OffsetTombstone():
                known = self.table.groups.get(record.group_id)
                if known is not None:
                    known.offsets.pop((record.topic, record.partition), None)
            case GroupRecord():
                group = self.table.group(record.group_id)
                assert isinstance(group, ClassicGroup)
                group.persisted = record
            case GroupTombstone():
                classic = self.table.classic(record.group_id)
                if classic is not None:
                    classic.persisted = None

    def _replayed(self, event: Replayed, now: Instant) -> None:
        """Let every group go on where the log left it."""
        for group in list(self.table.groups.values()):
            match group:
                case ClassicGroup():
                    self._rounds.taken_up(group, now)
        self._commits.replayed(event)
        for group in list(self.table.groups.values()):
            self.table.drop_if_nothing_left(group, now)

    # --- reading

    def durable_state(self) -> Mapping[str, tuple[object | None, Mapping[tuple[str, int], CommittedOffset]]]:
        """What a replay of the log has to give."""
        return {
            group.group_id: (group.recorded, dict(group.offsets))
            for group in self.table.groups.values()
            if group.recorded is not None or group.offsets
        }

    def committed_offsets(
        self, group_id: str, wanted: Iterable[tuple[str, int]] | None = None
    ) -> Mapping[tuple[str, int], CommittedOffset]:
        """What a group has committed in topics that are there: all of it, or in the `wanted` partitions."""
        group = self.table.groups.get(group_id)
        if group is None:
            return {}
        offsets = group.offsets
        if wanted is not None:
            offsets = {place: offsets[place] for place in wanted if place in offsets}
        return self.still_committed(offsets)

    def still_committed(
        self, offsets: Mapping[tuple[str, int], CommittedOffset]
    ) -> Mapping[tuple[str, int], CommittedOffset]:
        """Those of `offsets`, read a while ago, whose topics are still there."""
        return rules.present(offsets, self.table.topics)

    def describe(self, group_id: str) -> GroupView | None:
        """One group with its members."""
        group = self.table.groups.get(group_id)
        return None if group is None else replace(group.view(), members=group.views())

    def group_ids(self) -> list[str]:
        """Every group by its name."""
        return list(self.table.groups)

    def standing(self, group_id: str) -> Standing | None:
        """How large a group is and what it is about."""
        group = self.table.groups.get(group_id)
        return None if group is None else group.standing()

    def list_groups(self) -> list[GroupView]:
        """Every group, without members."""
        return [group.view() for group in self.table.groups.values()]

    # --- after an append

    def _appended(self, event: Appended, now: Instant) -> None:
        records, then = self.table.settle(event.token)
        for record in records:
            self.apply(record)
        group = self.table.groups[then.group_id]
        group.last_append = event.token
        match then:
            case Assigned():
                assert isinstance(group, ClassicGroup)
                self._rounds.assigned(group, event.token, now)
            case Answer() | Returned():
                self.table.reply(then.request_id, then.response, after=event.token)
            case Kept():
                pass
        self.table.drop_if_nothing_left(group, now)

    def _append_failed(self, event: AppendFailed, now: Instant) -> None:
        _, then = self.table.settle(event.token)
        group = self.table.groups.get(then.group_id)
        match then:
            case Assigned():
                assert isinstance(group, ClassicGroup)
                self._rounds.assignment_failed(group, event.error, now)
            case Answer():
                self.table.reply(then.request_id, refused(then.failed, event.error))
            case Returned():
                assert isinstance(group, ClassicGroup)
                self._joining.return_failed(group, then, event.error, now)
            case Kept():
                if group is not None:
                    self.table.note(group, f"a change could not be written: {event.error.name}")
