"""The PostgreSQL source task: the phases of one life

A life is in one phase at a time. `Announcing`: a snapshot will be taken, and waits until that is stored.
`Snapshotting`: every poll returns a page of it. `Streaming`: every poll returns what the slot's stream brought.
`Finished`: there is nothing to do any more. Which phase follows is decided by `life`; the task does what it says.

The task keeps no state of its own between lives: whatever goes wrong with a connection is raised as `NotConnected`, and
the next life begins at the stored offset.

Connections: one that reads catalog and snapshot, then one that streams, which belongs to the thread of `transport`,
and beside it one that answers questions about tables (`lookup`) and one for the heartbeat's statement (`action`).
"""

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import structlog

from tidemill.connect.api import (
    EndOfInput,
    Fatal,
    InvalidConfig,
    NotConnected,
    Plugin,
    PluginKind,
    SourceOffset,
    SourceOutput,
    SourcePartition,
    SourceTask,
    TaskContext,
)
from tidemill.connect.plugins.postgres import life, preflight
from tidemill.connect.plugins.postgres.assignment import VERSION, Assignment, assign
from tidemill.connect.plugins.postgres.config import PostgresConfig
from tidemill.connect.plugins.postgres.connection import connect, translated
from tidemill.connect.plugins.postgres.leftovers import left_behind
from tidemill.connect.plugins.postgres.opening import Opening
from tidemill.connect.plugins.postgres.progress import StoredPosition, UnreadableOffset, read_offset
from tidemill.connect.plugins.postgres.slot import drop_slot
from tidemill.connect.plugins.postgres.snapshot import Snapshot
from tidemill.connect.plugins.postgres.streaming import Streaming
from tidemill.connect.plugins.postgres.unsupported import IGNORED, UNSUPPORTED
from tidemill.core.runtime.clock import Clock, SystemClock

log = structlog.get_logger("tidemill.connect.postgres")

ANNOUNCING_WAIT_S: Final = 0.05
"""Between looks whether the announcement is stored, which takes the broker some milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcing:
    """Until the offset that was offered is stored."""

    lsn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """Until the next poll."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshotting:
    """Until every row is read."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """For ever."""


Phase: TypeAlias = Announcing | Announced | Snapshotting | Streaming | Finished


class PostgresSourceTask(SourceTask):
    """Captures one database."""

    def __init__(self, config: PostgresConfig, clock: Clock | None = None) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._life = self._new_life()
        self._outputs: list[SourceOutput] = []  # made between polls
        self._phase: Phase = Finished()  # not begun
        self._opening: Opening | None = None

    @property
    def phase(self) -> Phase:
        """What the task is at."""
        return self._phase

    # -------------------------------------------------------------- life cycle

    def start(self, context: TaskContext) -> None:
        """Find out where to begin, and begin; may be called again after `RetryAfter`."""
        for name, problem in postgres_source.refusals(context.config):
            raise InvalidConfig(name, problem)
        self._assignment = assignment = assign(self._config, context, self._clock)
        self._close_opening()
        assignment.waiting(None)  # what a former life waited for
        self._outputs.clear()
        self._life = self._new_life()
        with translated(self._config):
            self._opening = opening = Opening(assignment)
            self._do(self._life.step(opening.find(self._stored(assignment))))

    def poll(self) -> Sequence[SourceOutput]:
        """Return a page of the snapshot, or the next changes."""
        outputs, self._outputs = self._outputs, []
        phase = self._phase
        if outputs and not isinstance(phase, Snapshotting):
            return outputs  # what comes next may have to be tried again
        with translated(self._config):
            match phase:
                case Announcing():
                    threading.Event().wait(ANNOUNCING_WAIT_S)
                case Announced():
                    self._do(self._life.step(life.Announced()))
                case Snapshotting(snapshot=snapshot):
                    outputs += self._read(snapshot)
                case Streaming():
                    return phase.poll()
                case Finished():
                    raise EndOfInput(f"the snapshot of {self._config.dbname} is complete")
        made, self._outputs = self._outputs, []
        return [*outputs, *made]

    def committed(self, partition: SourcePartition, offset: SourceOffset) -> None:
        """Let the server forget what is stored, or go on with what was announced."""
        phase = self._phase
        lsn = read_offset(offset).lsn
        if isinstance(phase, Streaming):
            phase.stored(lsn)
        elif isinstance(phase, Announcing) and phase.lsn == lsn:
            self._phase = Announced()

    def stop(self) -> None:
        """Leave the stream and close the connections."""
        phase, self._phase = self._phase, Finished()
        self._close_opening()
        if not isinstance(phase, Streaming):
            return
        was_open = phase.transport is not None
        phase.close()
        if self._config.slot_drop_on_stop and was_open:
            with connect(self._config) as connection:
                drop_slot(connection, self._config.slot_name)
            log.info("slot dropped", slot=self._config.slot_name)

    def _new_life(self) -> life.Life:
        config = self._config
        return life.Life(
            life.LifeSettings(
                mode=config.snapshot_mode,
                mismatch=config.offset_mismatch,
                slot_name=config.slot_name,
                database=config.dbname,
            )
        )

    def _stored(self, assignment: Assignment) -> StoredPosition | None:
        offset = assignment.context.offsets(assignment.partition)
        if not offset:
            return None
        try:
            return read_offset(offset)
        except UnreadableOffset as error:
            raise Fatal(f"{error}; delete the connector's offsets to start over") from error

    def _close_opening(self) -> None:
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.close()

    # ----------------------------------------------------------------- actions

    def _do(self, actions: Sequence[life.Action]) -> None:
        """Do what the life says, until a phase has begun."""
        todo = deque(actions)
        while todo:
            todo.extend(self._act(todo.popleft()))

    def _act(self, action: life.Action) -> list[life.Action]:
        """Do one thing and return what follows from it."""
        opening, assignment = self._opening, self._assignment
        assert opening is not None, "actions come while the connection is open"
        match action:
            case life.Announce(offset=offset):
                self._outputs.append(assignment.offset_only(offset, now=True))
                self._phase = Announcing(lsn=read_offset(offset).lsn)
            case life.DropSlot():
                opening.drop_slot()
            case life.MakeSlot():
                return self._life.step(opening.make_slot())
            case life.Enter(make_slot=make_slot):
                return self._life.step(opening.enter(make_slot=make_slot))
            case life.Look():
                return self._life.step(opening.look())
            case life.Read(offset=offset):
                self._outputs.append(assignment.offset_only(offset, now=True))
                self._phase = Snapshotting(snapshot=opening.snapshot())
            case life.Complete(offset=offset):
                self._outputs.append(assignment.offset_only(offset, now=True))
            case life.Stream(lsn=lsn):
                self._phase = Streaming(assignment, opening.shaper, lsn=lsn, lineage=opening.server.lineage)
                self._close_opening()
            case life.Finish():
                self._phase = Finished()
                self._close_opening()
            case life.GiveUp(reason=reason):
                raise NotConnected(reason)
        return []

    def _read(self, snapshot: Snapshot) -> list[SourceOutput]:
        batch = snapshot.read(self._clock.now_ms())
        self._assignment.report(
            {
                "snapshot": f"{snapshot.tables_done} of {snapshot.tables_total} tables",
                "snapshot-table": snapshot.current,
                "snapshot-rows": snapshot.rows,
            }
        )
        if snapshot.exhausted:
            snapshot.finish()
            log.info("snapshot complete", rows=snapshot.rows, tables=snapshot.tables_total)
            self._do(self._life.step(life.AllRead()))
        return [] if batch is None else [batch]


postgres_source = Plugin(
    name="PostgresSource",
    kind=PluginKind.SOURCE,
    version=VERSION,
    config=PostgresConfig,
    task=PostgresSourceTask,
    doc="Captures the changes of a PostgreSQL database from its log, after a consistent initial load.",
    aliases=("io.debezium.connector.postgresql.PostgresConnector",),
    ignored=IGNORED,
    unsupported=UNSUPPORTED,
    check=preflight.check,
    left_behind=left_behind,
)
