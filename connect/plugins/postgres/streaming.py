"""The phase in which changes are read from the slot

Connecting is part of it: while somebody else has the slot, or the server is away, every poll tries again. After that a
poll returns what came, the offsets that keepalives allow, and the heartbeat that is due.
"""

from typing import Final

import psycopg
import structlog
from psycopg import errors

from tidemill.connect.api import Fatal, Poison, SourceOutput
from tidemill.connect.plugins.postgres.assignment import Assignment
from tidemill.connect.plugins.postgres.connection import one_line, translated
from tidemill.connect.plugins.postgres.heartbeats import Heartbeats
from tidemill.connect.plugins.postgres.lookup import CatalogLookup
from tidemill.connect.plugins.postgres.lsn import format_lsn
from tidemill.connect.plugins.postgres.pgoutput import DecodeError, Relation
from tidemill.connect.plugins.postgres.progress import Confirm, Lineage, Offer, Progress, Stored, Tick
from tidemill.connect.plugins.postgres.slot_wait import SlotWait
from tidemill.connect.plugins.postgres.stream import ChangeStream
from tidemill.connect.plugins.postgres.table import CatalogTable, Shaper
from tidemill.connect.plugins.postgres.transport import ReplicationStream

log = structlog.get_logger("tidemill.connect.postgres")

POLL_BYTES_MAX: Final = 4 * 1024 * 1024
"""Frames decoded in one poll: what the producer takes in at once without waiting."""

POLL_WAIT_S_MAX: Final = 0.5
"""What the contract of `poll` allows."""

REPORT_INTERVAL_S: Final = 5.0

SILENCE_TOLD_S: Final = 4.0
"""Silence of the server that is worth a word: it has been asked for a sign by then."""


_SERVER_BROKEN: Final = (errors.InternalError_, errors.DataCorrupted, errors.IndexCorrupted)
"""Class XX of SQLSTATE: what the server itself takes for a fault of its own, or of its files."""


class Streaming:
    """Streams from `lsn`, where the slot stands or later."""

    def __init__(self, assignment: Assignment, shaper: Shaper, *, lsn: int, lineage: Lineage) -> None:
        config = assignment.config
        self._assignment = assignment
        self._shaper = shaper
        self._lsn = lsn
        self._progress = Progress(lsn=lsn, lineage=lineage, keepalive_interval_ms=config.status_interval_ms)
        self._changes = ChangeStream(
            shaper=shaper,
            form=assignment.form,
            lookup=self._lookup,
            progress=self._progress,
            partition=assignment.partition,
            captures=config.selection.table,
            skipped=config.skipped,
            tombstones=config.tombstones_on_delete,
            skip_unchanged=config.skip_unchanged,
            headers=assignment.headers,
        )
        self._catalog = CatalogLookup(config)
        self._heartbeats = Heartbeats(assignment)
        self._slot_wait = SlotWait(assignment)
        self._transport: ReplicationStream | None = None
        self._report_due_s = 0.0
        self._silence_told = False

    @property
    def transport(self) -> ReplicationStream | None:
        """The open stream, None before there is one."""
        return self._transport

    def poll(self) -> list[SourceOutput]:
        """Return the next changes."""
        if self._transport is None:
            self._transport = self._connect()
        try:
            return [*self._read(self._transport), *self._heartbeats.take(self._progress)]
        except _SERVER_BROKEN as error:
            raise self._undecodable(error) from error

    def _undecodable(self, error: psycopg.Error) -> Fatal:
        config = self._assignment.config
        return Fatal(
            f"PostgreSQL cannot decode its log for the slot {config.slot_name}: {one_line(error)} (SQLSTATE "
            f"{error.sqlstate}). The error is inside the server and comes again from the same position. Restart the "
            "task; if it stays, the changes of this slot cannot be had: stop the connector, drop the slot with SELECT "
            f"pg_drop_replication_slot('{config.slot_name}'), set snapshot.mode=when_needed and start it again: the "
            "tables are read anew then."
        )

    def stored(self, lsn: int) -> None:
        """Let the server forget what is stored."""
        for action in self._progress.step(Stored(lsn=lsn)):
            if isinstance(action, Confirm) and self._transport is not None:
                self._transport.confirm(action.lsn)

    def close(self) -> None:
        """Leave the stream and close the connections."""
        if self._transport is not None:
            self._transport.close()
        self._catalog.close()
        self._heartbeats.close()

    def _connect(self) -> ReplicationStream:
        assignment = self._assignment
        transport = ReplicationStream(assignment.config, assignment.clock, lsn=self._lsn)
        try:
            transport.start()
        except errors.ObjectInUse as error:
            transport.close()
            raise self._slot_wait.refused(error) from error
        except BaseException:
            transport.close()
            raise
        log.info("streaming", slot=assignment.config.slot_name, lsn=format_lsn(self._lsn))
        assignment.report({"snapshot": None})
        return transport

    def _lookup(self, relation: Relation) -> CatalogTable | None:
        """Ask the catalog about a table whose rows begin to arrive or look different from now on."""
        with translated(self._assignment.config):
            return self._catalog.table(relation, self._shaper.types)

    def _read(self, transport: ReplicationStream) -> list[SourceOutput]:
        config, changes = self._assignment.config, self._changes
        frames = transport.frames(min(config.poll_interval_ms / 1000, POLL_WAIT_S_MAX))
        now_ms = self._assignment.clock.now_ms()
        size = 0
        try:
            while frames:
                changes.feed(frames, now_ms)
                size += sum(map(len, frames))
                if changes.rows >= config.max_batch_size or size >= POLL_BYTES_MAX or not transport.pending:
                    break
                frames = transport.frames(0)
        except DecodeError as error:
            raise Poison(f"A change cannot be decoded: {error}") from error
        outputs: list[SourceOutput] = list(changes.take())
        offers = [action for action in self._progress.step(Tick(now_ms=now_ms)) if isinstance(action, Offer)]
        outputs += [self._assignment.offset_only(offer.offset) for offer in offers]
        self._report(transport, now_ms)
        self._tell_silence(transport.silent_s)
        return outputs

    def _tell_silence(self, silent_s: float) -> None:
        """Tell once when the server gives no sign of life, and once when it does again."""
        silent = silent_s >= SILENCE_TOLD_S
        if silent == self._silence_told:
            return
        self._silence_told = silent
        config = self._assignment.config
        self._assignment.waiting(
            f"{config.hostname}:{config.port} gives no sign of life: the network is interrupted, or the server decodes "
            "a large transaction"
            if silent
            else None
        )

    def _report(self, transport: ReplicationStream, now_ms: int) -> None:
        now_s = self._assignment.clock.monotonic()
        if now_s < self._report_due_s:
            return
        self._report_due_s = now_s + REPORT_INTERVAL_S
        progress = self._progress
        self._assignment.report(
            {
                "lsn": format_lsn(progress.position),
                "lsn-confirmed": format_lsn(progress.confirmed),
                "lag-bytes": max(0, transport.received - progress.position),
                "queue-bytes": transport.queued_bytes,
                "milliseconds-behind-source": progress.behind_ms(now_ms),
            }
        )
