"""How far the connector got, and what it may tell the server

PostgreSQL keeps WAL until we confirm it; what is confirmed can never be read again. So the one rule is: the confirmed
position never passes the stored offset, and the stored offset never passes the first record that may be missing. The
runtime takes care of the second half; this machine takes care of the first.

Positions move in two ways. A transaction that was handed over completely ends at its commit's end. Between
transactions, a keepalive says that everything before some position was sent: what lies between holds nothing for us.
Both are offered to the runtime as offsets, after the records before them; offered is not stored. An idle table in a
busy database thus advances by keepalives alone, and the server can drop the WAL of the other tables, at the price of
an offset record now and then: keepalives are offered when `keepalive_interval_ms` has passed since the last offer.

Sans-IO: the shell tells what came and what was stored, and does what the answers say.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tidemill.connect.api import Json, SourceOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionBegan:
    """A transaction's rows follow."""

    xid: int
    commit_time_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionEnded:
    """All rows of the transaction were handed to the runtime; `end_lsn` lies behind its commit."""

    end_lsn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAlive:
    """The server has sent everything before `wal_end`."""

    wal_end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time went on."""

    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The offset of `lsn` is acknowledged and durable."""

    lsn: int


Event: TypeAlias = TransactionBegan | TransactionEnded | KeptAlive | Stored | Tick


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Give the runtime an offset without records."""

    offset: SourceOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirm:
    """Tell the server that everything before `lsn` is safe."""

    lsn: int


Action: TypeAlias = Offer | Confirm


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """The log that a position belongs to: a server's, on one of its timelines; None where an offset does not say.

    A promoted standby keeps the system's number and begins a timeline.
    """

    system_id: str | None = None
    timeline: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPosition:
    """A stored offset, ours or Debezium's."""

    lsn: int
    snapshot_completed: bool
    lineage: Lineage = Lineage()


class UnreadableOffset(ValueError):
    """A stored offset that says no position."""


def read_offset(offset: SourceOffset) -> StoredPosition:
    """Return the position of a stored offset.

    Debezium stores the position of the last event it sent, which lies inside a transaction; the server sends a
    transaction as a whole if it ends after the position asked for, so starting there loses nothing.
    """
    lsn = offset.get("lsn")
    if not isinstance(lsn, int) or isinstance(lsn, bool) or lsn < 0:
        raise UnreadableOffset(f"the stored offset has no position (lsn): {dict(offset)}")
    system_id, timeline = offset.get("system_id"), offset.get("timeline")
    lineage = Lineage(
        system_id=None if system_id is None else str(system_id),
        timeline=timeline if isinstance(timeline, int) else None,
    )
    return StoredPosition(lsn=lsn, snapshot_completed=_snapshot_completed(offset), lineage=lineage)


def _snapshot_completed(offset: SourceOffset) -> bool:
    """Tell whether no snapshot was under way.

    Debezium 2 wrote `snapshot: true` until the first change after it, with `last_snapshot_record` for its end;
    Debezium 3 writes the kind of snapshot and says `snapshot_completed`.
    """
    if offset.get("snapshot") in (None, False, "false"):
        return True
    end = offset.get("snapshot_completed", offset.get("last_snapshot_record"))
    return end in (True, "true")


def snapshot_offset(lsn: int, xid: int, time_us: int, lineage: Lineage, *, completed: bool) -> Mapping[str, Json]:
    """Return the offset of a snapshot after which streaming begins at `lsn`."""
    return {
        "last_snapshot_record": completed,
        "lsn": lsn,
        "txId": xid,
        "ts_usec": time_us,
        "snapshot": "INITIAL",
        "snapshot_completed": completed,
        "system_id": lineage.system_id,
        "timeline": lineage.timeline,
    }


class Progress:
    """The machine; starts at the position streaming starts from, which is stored already.

    confirmed <= stored <= offered <= position
    """

    def __init__(self, *, lsn: int, lineage: Lineage, keepalive_interval_ms: int) -> None:
        self.position = lsn
        self.offered = lsn
        self.stored = lsn
        self.confirmed = lsn
        self._lineage = lineage
        self._interval_ms = keepalive_interval_ms
        self._offered_ms: int | None = None
        self._in_transaction = False
        self._xid = 0
        self._commit_time_us = 0

    def step(self, event: Event) -> list[Action]:
        """Take in what happened; say what to do."""
        match event:
            case TransactionBegan(xid=xid, commit_time_us=commit_time_us):
                assert not self._in_transaction, "transactions come one after the other"
                self._in_transaction = True
                self._xid, self._commit_time_us = xid, commit_time_us
                return []
            case TransactionEnded(end_lsn=end_lsn):
                assert self._in_transaction, "a commit follows its begin"
                self._in_transaction = False
                self.position = max(self.position, end_lsn)
                return []
            case KeptAlive(wal_end=wal_end):
                if not self._in_transaction:  # else the commit will say where we are
                    self.position = max(self.position, wal_end)
                return []
            case Tick(now_ms=now_ms):
                return self._tick(now_ms)
            case Stored(lsn=lsn):
                return self._stored(lsn)

    def behind_ms(self, now_ms: int) -> int:
        """Return how long ago the transaction at hand committed; zero between transactions."""
        return max(0, now_ms - self._commit_time_us // 1000) if self._in_transaction else 0

    def offset(self) -> SourceOffset:
        """Return the offset to hand over with the records so far; counts as offered."""
        self.offered = self.position
        return {
            "lsn_proc": self.position,
            "messageType": "COMMIT",
            "lsn_commit": self.position,
            "lsn": self.position,
            "txId": self._xid,
            "ts_usec": self._commit_time_us,
            "system_id": self._lineage.system_id,
            "timeline": self._lineage.timeline,
        }

    def _tick(self, now_ms: int) -> list[Action]:
        if self._offered_ms is None:
            self._offered_ms = now_ms
        if self.position == self.offered or now_ms - self._offered_ms < self._interval_ms:
            return []
        self._offered_ms = now_ms
        return [Offer(offset=self.offset())]

    def _stored(self, lsn: int) -> list[Action]:
        assert lsn <= self.offered, "only what was offered can be stored"
        self.stored = max(self.stored, lsn)
        if self.stored == self.confirmed:
            return []
        self.confirmed = self.stored
        return [Confirm(lsn=self.confirmed)]
