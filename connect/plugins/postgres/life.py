"""One life of the capture, as decisions: offset, slot, snapshot, stream

Three places remember something between lives: the offsets topic, the slot and the data topics. A life may end between
any two of their writes, so what is decided here holds for every mixture of them.

- Streaming after a snapshot begins where the connector's own slot stands, never where the snapshot was taken. For a
  slot that the snapshot made these are the same. Where the slot is older, rows of an earlier, interrupted snapshot may
  be in the topics already; what happened to them since is read again from the slot, deletes among it, so every key
  ends as it is in the table. In between, a row may go back to what it was before.
- A stored offset that says "complete" is overwritten, and the overwriting stored, before a new snapshot touches the
  slot: a slot made anew beside an old offset would look like one to go on from.
- The beginning and the end of a snapshot are stored at once, not with the next flush. The end spares the next life all
  of it.
- The tables must look the same in the snapshot as they do now, with a lock that keeps them so. Where they do not, the
  snapshot is taken anew, at a later moment; the slot stays.

Sans-IO: the shell does what the actions say, one after the other, and tells what came of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tidemill.connect.api import SourceOffset
from tidemill.connect.plugins.postgres import startup
from tidemill.connect.plugins.postgres.catalog import Server, Slot
from tidemill.connect.plugins.postgres.progress import StoredPosition, snapshot_offset

SNAPSHOTS_MAX: Final = 5
"""Snapshots begun in one life before it is given up: tables that change so often want a pause first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What there is when a life begins; `history` says where each former timeline of the server ended."""

    server: Server
    slot: Slot | None
    stored: StoredPosition | None
    history: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """The offset offered first is stored: everybody knows that a snapshot is being taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotMade:
    """The connector's slot was made; its stream begins at `lsn`."""

    lsn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entered:
    """A snapshot was exported at `lsn` and is being looked through; `xid` and `time_us` are for its records."""

    lsn: int
    xid: int
    time_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """The tables are locked; `changed` names what looks different in the snapshot, None if nothing does."""

    changed: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AllRead:
    """Every row of the snapshot was handed over."""


Event: TypeAlias = Found | Announced | SlotMade | Entered | Looked | AllRead


@dataclass(frozen=True, slots=True, kw_only=True)
class Announce:
    """Hand over this offset, to be stored at once, and tell when it is."""

    offset: SourceOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class DropSlot:
    """Drop the connector's slot, which has lost its WAL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeSlot:
    """Make the connector's slot, without a snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enter:
    """Export a snapshot and look through it: that of the connector's slot, made now, or of a temporary one."""

    make_slot: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Lock the tables and compare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Hand over this offset, to be stored at once, and then all rows."""

    offset: SourceOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete:
    """Hand over this offset, to be stored at once: the snapshot is complete."""

    offset: SourceOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Stream from `lsn`."""

    lsn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """There is nothing to do any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """End this life; the next one may have more luck."""

    reason: str


Action: TypeAlias = Announce | DropSlot | MakeSlot | Enter | Look | Read | Complete | Stream | Finish | GiveUp


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeSettings:
    """The settings that decide."""

    mode: str
    mismatch: str
    slot_name: str
    database: str


class Life:
    """The machine; raises Fatal for what does not fit together."""

    def __init__(self, settings: LifeSettings) -> None:
        self._settings = settings
        self._found: Found | None = None
        self._plan: startup.TakeSnapshot | None = None
        self._entered: Entered | None = None
        self._slot_lsn: int | None = None  # where the connector's slot stands
        self._snapshots = 0

    def step(self, event: Event) -> list[Action]:
        """Take in what happened; say what to do."""
        match event:
            case Found():
                return self._begin(event)
            case Announced():
                return self._take_snapshot()
            case SlotMade(lsn=lsn):
                return [Stream(lsn=lsn)]
            case Entered():
                if self._slot_lsn is None:
                    self._slot_lsn = event.lsn
                self._entered = event
                return [Look()]
            case Looked(changed=None):
                return [Read(offset=self._offset(completed=False))]
            case Looked(changed=changed):
                return self._take_again(str(changed))
            case AllRead():
                return self._end()

    def _begin(self, found: Found) -> list[Action]:
        settings, slot = self._settings, found.slot
        self._found = found
        plan = startup.plan(
            mode=settings.mode,
            mismatch=settings.mismatch,
            slot_name=settings.slot_name,
            database=settings.database,
            server=found.server,
            slot=slot,
            stored=found.stored,
            history=found.history,
        )
        match plan:
            case startup.Finished():
                return [Finish()]
            case startup.StreamFrom(lsn=None, create_slot=True):
                return [MakeSlot()]
            case startup.StreamFrom(lsn=lsn):
                return [Stream(lsn=self._slot_position(slot) if lsn is None else lsn)]
            case startup.TakeSnapshot():
                self._plan = plan
                stored = found.stored
                if stored is not None and stored.snapshot_completed:
                    return [Announce(offset=self._announcement(found, stored))]
                return self._take_snapshot()

    def _take_snapshot(self) -> list[Action]:
        plan, found = self._plan, self._found
        assert plan is not None and found is not None, "a snapshot is taken when it was decided to"
        make_slot = plan.create_slot and plan.then_stream
        if plan.then_stream and not make_slot:
            self._slot_lsn = self._slot_position(found.slot)
        self._snapshots = 1
        return [*([DropSlot()] if plan.drop_slot else []), Enter(make_slot=make_slot)]

    def _take_again(self, changed: str) -> list[Action]:
        if self._snapshots >= SNAPSHOTS_MAX:
            return [GiveUp(reason=f"the tables change faster than a snapshot of them can begin: {changed}")]
        self._snapshots += 1
        return [Enter(make_slot=False)]

    def _end(self) -> list[Action]:
        assert self._plan is not None, "a snapshot was taken"
        complete = Complete(offset=self._offset(completed=True))
        if not self._plan.then_stream:
            return [complete, Finish()]
        return [complete, Stream(lsn=self._stream_lsn())]

    def _stream_lsn(self) -> int:
        assert self._slot_lsn is not None, "the slot is there when rows are read"
        return self._slot_lsn

    def _offset(self, *, completed: bool) -> SourceOffset:
        found, entered = self._found, self._entered
        assert found is not None and entered is not None, "a snapshot was entered"
        return snapshot_offset(
            self._stream_lsn(), entered.xid, entered.time_us, found.server.lineage, completed=completed
        )

    @staticmethod
    def _slot_position(slot: Slot | None) -> int:
        assert slot is not None and slot.confirmed_lsn is not None, "a slot that is being made is waited for"
        return slot.confirmed_lsn

    @staticmethod
    def _announcement(found: Found, stored: StoredPosition) -> SourceOffset:
        return snapshot_offset(stored.lsn, 0, 0, found.server.lineage, completed=False)
