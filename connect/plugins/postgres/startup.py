"""Where to begin: a snapshot, the stream, or a refusal

What is stored, what the slot says and what the server is must fit together. Where they do not, changes between the
stored offset and the slot can never be read again, and going on would be a silent gap. Then the connector stops with
a sentence that says what to do, unless `snapshot.mode=when_needed` allows it to start over by itself.

Pure: facts in, a plan out, `Fatal`, or `RetryAfter` where a former life of ours has not quite ended on the server.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from tidemill.connect.api import Fatal, RetryAfter
from tidemill.connect.plugins.postgres.catalog import Server, Slot
from tidemill.connect.plugins.postgres.lsn import format_lsn
from tidemill.connect.plugins.postgres.progress import StoredPosition

SLOT_MAKING_RETRY_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeSnapshot:
    """Read the tables, then stream from where the slot stands."""

    create_slot: bool
    drop_slot: bool = False  # the slot is beyond repair
    then_stream: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFrom:
    """Stream from a position; None is where the slot stands, a new slot if `create_slot`."""

    lsn: int | None
    create_slot: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """There is nothing to do, ever: the snapshot was all that was wanted."""


Plan: TypeAlias = TakeSnapshot | StreamFrom | Finished


def plan(
    *,
    mode: str,
    mismatch: str,
    slot_name: str,
    database: str,
    server: Server,
    slot: Slot | None,
    stored: StoredPosition | None,
    history: Mapping[int, int],
) -> Plan:
    """Decide how to begin; `history` says where each former timeline of the server ended."""
    _require_usable(slot, slot_name, database)
    lost = slot is not None and slot.wal_status == "lost"
    if stored is not None and stored.snapshot_completed and mode != "always":
        if mode == "initial_only":
            return Finished()
        problem = _mismatch(mismatch, slot_name, server, slot, stored, history)
        if problem is None:
            behind = slot is not None and slot.confirmed_lsn is not None and slot.confirmed_lsn > stored.lsn
            return StreamFrom(lsn=slot.confirmed_lsn if slot is not None and behind else stored.lsn)
        if mode != "when_needed":
            raise Fatal(f"{problem} To start over, delete the connector's offsets or set snapshot.mode=when_needed.")
    elif mode == "no_data":
        if lost:
            raise Fatal(f"The slot {slot_name} has lost its WAL; drop it, and a new one will be made.")
        return StreamFrom(lsn=None, create_slot=slot is None)
    return TakeSnapshot(create_slot=slot is None or lost, drop_slot=lost, then_stream=mode != "initial_only")


def _require_usable(slot: Slot | None, slot_name: str, database: str) -> None:
    if slot is None:
        return
    if slot.kind != "logical" or slot.plugin != "pgoutput":
        raise Fatal(
            f"The replication slot {slot_name} is a {slot.kind} slot of plugin {slot.plugin}, not of pgoutput; "
            "drop it or set another slot.name."
        )
    if slot.database != database:
        raise Fatal(f"The replication slot {slot_name} belongs to database {slot.database}; set another slot.name.")
    if slot.confirmed_lsn is None:
        raise RetryAfter(
            SLOT_MAKING_RETRY_S,
            f"the replication slot {slot_name} is being made by process {slot.active_pid} of the server, which waits "
            "for running transactions to end",
        )


def _mismatch(
    strategy: str,
    slot_name: str,
    server: Server,
    slot: Slot | None,
    stored: StoredPosition,
    history: Mapping[int, int],
) -> str | None:
    """Return what does not fit, None if all does."""
    position = format_lsn(stored.lsn)
    if (stranger := _foreign(server, stored, history)) is not None:
        return stranger
    if slot is None:
        return (
            f"The replication slot {slot_name} is gone, so the changes since the stored offset {position} cannot be "
            "read any more."
        )
    if slot.wal_status == "lost":
        return f"The replication slot {slot_name} has lost WAL that was not read yet (max_slot_wal_keep_size)."
    if stored.lsn > server.wal_insert_lsn:
        return (
            f"The stored offset {position} lies ahead of the server's log, which ends at "
            f"{format_lsn(server.wal_insert_lsn)}: the server was restored from an older state."
        )
    if slot.confirmed_lsn is not None and slot.confirmed_lsn > stored.lsn and strategy in ("strict", "trust_offset"):
        return (
            f"The replication slot {slot_name} stands at {format_lsn(slot.confirmed_lsn)}, ahead of the stored offset "
            f"{position}: somebody else read from it, and the changes between are lost to this connector. To go on "
            "from the slot regardless, set offset.mismatch.strategy=trust_slot."
        )
    return None


def _foreign(server: Server, stored: StoredPosition, history: Mapping[int, int]) -> str | None:
    """Return why a stored position means nothing in the server's log, None if it is one of its positions."""
    position = format_lsn(stored.lsn)
    system_id, timeline = stored.lineage.system_id, stored.lineage.timeline
    if system_id is not None and system_id != server.system_id:
        return (
            f"The stored offset {position} is of server {system_id}, but this is {server.system_id}: positions of one "
            "server mean nothing on another."
        )
    if timeline is None or timeline == server.timeline:
        return None
    if timeline not in history:
        return (
            f"The stored offset {position} is of timeline {timeline}, which is not in the history of this server's "
            f"timeline {server.timeline}: it is another branch of the same cluster."
        )
    if stored.lsn > history[timeline]:
        return (
            f"The stored offset {position} of timeline {timeline} lies behind {format_lsn(history[timeline])}, where "
            f"this server was promoted to timeline {server.timeline}: the changes captured between are lost on it, and "
            "others may stand at the same positions."
        )
    return None
