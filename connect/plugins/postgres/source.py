"""The PostgreSQL source task: one life from start to stop

Start asks the catalog, makes what is missing (publication, slot) and decides where to begin. Then every poll returns
either a page of the snapshot or what the stream brought. The task keeps no state of its own between lives: whatever
goes wrong with the connection is raised as `NotConnected`, and the next life begins at the stored offset.

Connections: one that reads catalog and snapshot, then one that streams, which belongs to the thread of `transport`,
and beside it one that answers questions about tables (`lookup`) and one for the heartbeat's statement (`action`).
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import psycopg
import structlog
from psycopg import errors

from tidemill.connect.api import (
    EncodedBatch,
    EndOfInput,
    Fatal,
    Headers,
    InvalidConfig,
    NotConnected,
    Plugin,
    PluginKind,
    RetryAfter,
    SourceOffset,
    SourceOutput,
    SourcePartition,
    SourceTask,
    TaskContext,
)
from tidemill.connect.plugins.postgres import catalog, preflight, startup
from tidemill.connect.plugins.postgres.action import HeartbeatAction
from tidemill.connect.plugins.postgres.config import PostgresConfig
from tidemill.connect.plugins.postgres.connection import connect, one_line, translated
from tidemill.connect.plugins.postgres.envelope import Format, heartbeat
from tidemill.connect.plugins.postgres.lookup import CatalogLookup
from tidemill.connect.plugins.postgres.lsn import format_lsn
from tidemill.connect.plugins.postgres.pgoutput import DecodeError, Relation
from tidemill.connect.plugins.postgres.progress import (
    Confirm,
    Offer,
    Progress,
    Stored,
    StoredPosition,
    Tick,
    UnreadableOffset,
    read_offset,
    snapshot_offset,
)
from tidemill.connect.plugins.postgres.publication import ensure_publication
from tidemill.connect.plugins.postgres.snapshot import Snapshot, SnapshotTable, create_slot
from tidemill.connect.plugins.postgres.stream import ChangeStream
from tidemill.connect.plugins.postgres.table import CatalogTable, Shaper
from tidemill.connect.plugins.postgres.transport import ReplicationStream
from tidemill.connect.plugins.postgres.unsupported import IGNORED, UNSUPPORTED
from tidemill.core.runtime.clock import Clock, SystemClock

log = structlog.get_logger("tidemill.connect.postgres")

POLL_BYTES_MAX: Final = 4 * 1024 * 1024
"""Frames decoded in one poll: what the producer takes in at once without waiting."""

SLOT_WAIT_S: Final = 90.0
"""How long making a slot may wait for running write transactions, as in Debezium."""

SLOT_FIRST_DELAY_S: Final = 0.25

POLL_WAIT_S_MAX: Final = 0.5
"""What the contract of `poll` allows."""

REPORT_INTERVAL_S: Final = 5.0


class PostgresSourceTask(SourceTask):
    """Captures one database."""

    def __init__(self, config: PostgresConfig, clock: Clock | None = None) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._partition: SourcePartition = {"server": config.topic_prefix}
        self._cleanup = ExitStack()
        self._queries: psycopg.Connection[Any] | None = None
        self._snapshot: Snapshot | None = None
        self._transport: ReplicationStream | None = None
        self._stream: ChangeStream | None = None
        self._progress: Progress | None = None
        self._stream_from: int | None = None  # where streaming is to begin once nothing else is to be done
        self._finished = False
        self._slot_deadline_s: float | None = None
        self._slot_delay_s = SLOT_FIRST_DELAY_S / 2
        self._heartbeat_due_s = 0.0
        self._catalog = CatalogLookup(config)
        self._action = HeartbeatAction(config)
        self._report_due_s = 0.0

    # -------------------------------------------------------------- life cycle

    def start(self, context: TaskContext) -> None:
        """Find out where to begin, and begin."""
        self._context = context
        for name, problem in postgres_source.refusals(context.config):
            raise InvalidConfig(name, problem)
        self._form = self._format(context)
        with translated(self._config):
            self._begin()

    def poll(self) -> Sequence[SourceOutput]:
        """Return a page of the snapshot, or the next changes."""
        if self._finished:
            raise EndOfInput(f"the snapshot of {self._config.dbname} is complete")
        with translated(self._config):
            if self._snapshot is not None:
                return self._read_snapshot(self._snapshot)
            if self._transport is None:
                self._start_stream()
            return [*self._read_stream(), *self._heartbeat()]

    def committed(self, partition: SourcePartition, offset: SourceOffset) -> None:
        """Let the server forget what is stored."""
        if self._progress is None or self._transport is None:
            return
        lsn = read_offset(offset).lsn
        for action in self._progress.step(Stored(lsn=lsn)):
            if isinstance(action, Confirm):
                self._transport.confirm(action.lsn)

    def stop(self) -> None:
        """Leave the stream and close the connections."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()
        self._cleanup.close()
        self._catalog.close()
        self._action.close()
        if self._config.slot_drop_on_stop and transport is not None:
            with connect(self._config) as connection:
                connection.execute("SELECT pg_drop_replication_slot(%s)", (self._config.slot_name,))
            log.info("slot dropped", slot=self._config.slot_name)

    # ------------------------------------------------------------------- begin

    def _begin(self) -> None:
        config = self._config
        self._queries = connection = self._cleanup.enter_context(closing(connect(config)))
        self._server = catalog.read_server(connection)
        try:
            preflight.check_server(self._server, config)
        except InvalidConfig as error:
            raise Fatal(str(error)) from error
        tables = catalog.read_tables(connection, config.selection, via_root=config.publish_via_partition_root)
        preflight.warn_keyless(tables)
        publication = ensure_publication(connection, config, tables)
        self._shaper = Shaper(
            prefix=config.topic_prefix,
            selection=config.selection,
            modes=config.modes,
            types=catalog.read_types(connection),
            delimiter=config.topic_delimiter,
        )
        slot = catalog.read_slot(connection, config.slot_name)
        plan = startup.plan(
            mode=config.snapshot_mode,
            mismatch=config.offset_mismatch,
            slot_name=config.slot_name,
            database=config.dbname,
            server=self._server,
            slot=slot,
            stored=self._stored(),
        )
        match plan:
            case startup.Finished():
                self._finished = True
            case startup.StreamFrom(lsn=None, create_slot=True):
                self._stream_from = self._new_slot()
            case startup.StreamFrom(lsn=lsn):
                confirmed = slot.confirmed_lsn if slot is not None else None
                self._stream_from = lsn if lsn is not None else confirmed or 0
            case startup.TakeSnapshot():
                self._start_snapshot(plan, connection, tables, publication)

    def _stored(self) -> StoredPosition | None:
        offset = self._context.offsets(self._partition)
        if not offset:
            return None
        try:
            return read_offset(offset)
        except UnreadableOffset as error:
            raise Fatal(f"{error}; delete the connector's offsets to start over") from error

    def _new_slot(self) -> int:
        config = self._config
        with closing(connect(config, replication="database")) as connection:
            made = create_slot(
                connection,
                config.slot_name,
                failover=config.slot_failover,
                export=False,
                waiting=self._waiting_for_slot(),
            )
        log.info("slot made", slot=config.slot_name, lsn=format_lsn(made.lsn))
        return made.lsn

    def _start_snapshot(
        self,
        plan: startup.TakeSnapshot,
        connection: psycopg.Connection[Any],
        tables: Sequence[CatalogTable],
        publication: catalog.Publication,
    ) -> None:
        config = self._config
        if plan.drop_slot:
            connection.execute("SELECT pg_drop_replication_slot(%s)", (config.slot_name,))
            log.warning("the slot had lost its WAL and was dropped", slot=config.slot_name)
        wanted = [each for each in tables if config.snapshot_selection.accepts(f"{each.schema}.{each.table}")]
        published = {(each.schema, each.table): each for each in publication.tables}
        temporary = not (plan.create_slot and plan.then_stream)
        name = f"{config.slot_name[:40]}_snapshot_{self._clock.now_ms():x}" if temporary else config.slot_name
        with closing(connect(config, replication="database")) as exporter:
            exported = create_slot(
                exporter,
                name,
                temporary=temporary,
                failover=config.slot_failover,
                waiting=self._waiting_for_slot(),
            )
            self._snapshot = Snapshot(
                connection,
                exported=exported,
                tables=[
                    SnapshotTable(table=each, published=published.get((each.schema, each.table))) for each in wanted
                ],
                shaper=self._shaper,
                form=self._form,
                partition=self._partition,
                fetch_rows=config.snapshot_fetch_size,
            )
        self._stream_from = exported.lsn if plan.then_stream else None
        log.info("snapshot begins", slot=name, lsn=format_lsn(exported.lsn), tables=len(wanted))

    def _waiting_for_slot(self) -> Callable[[], None]:
        """Return what to do while the server waits for running transactions before it makes a slot."""
        deadline_s = self._clock.monotonic() + SLOT_WAIT_S

        def waiting() -> None:
            pids = self._writers()
            text = f"a replication slot can be made once the transactions of processes {pids} have ended"
            self._context.report({"waiting": text})
            if self._context.stopping() or self._clock.monotonic() > deadline_s:
                raise NotConnected(text)

        return waiting

    def _writers(self) -> str:
        assert self._queries is not None
        rows = self._queries.execute(
            "SELECT pid FROM pg_stat_activity WHERE backend_xid IS NOT NULL ORDER BY xact_start LIMIT 5"
        ).fetchall()
        return ", ".join(str(row[0]) for row in rows) or "that are not shown to this user"

    def _start_stream(self) -> None:
        """Connect to the slot; while somebody else has it, ask to be called again."""
        config = self._config
        assert self._stream_from is not None, "streaming begins somewhere"
        self._cleanup.close()  # the stream has a connection of its own
        self._queries = None
        transport = ReplicationStream(config, self._clock, lsn=self._stream_from)
        try:
            transport.start()
        except errors.ObjectInUse as error:
            transport.close()
            raise self._slot_in_use(error) from error
        except BaseException:
            transport.close()
            raise
        self._progress = Progress(
            lsn=self._stream_from, system_id=self._server.system_id, keepalive_interval_ms=config.status_interval_ms
        )
        self._stream = ChangeStream(
            shaper=self._shaper,
            form=self._form,
            lookup=self._lookup,
            progress=self._progress,
            partition=self._partition,
            captures=config.selection.table,
            skipped=config.skipped,
            tombstones=config.tombstones_on_delete,
            skip_unchanged=config.skip_unchanged,
            headers=self._context_headers(),
        )
        self._transport = transport
        log.info("streaming", slot=config.slot_name, lsn=format_lsn(self._stream_from))
        self._context.report({"waiting": None, "snapshot": None})

    def _slot_in_use(self, error: psycopg.Error) -> Exception:
        """Wait for whoever has the slot, for as long as the settings say, asking often at first.

        Mostly it is our own former connection, which the server is about to notice.
        """
        config = self._config
        now_s = self._clock.monotonic()
        if self._slot_deadline_s is None:
            self._slot_deadline_s = now_s + config.slot_max_retries * config.slot_retry_delay_ms / 1000
        text = one_line(error)
        if now_s >= self._slot_deadline_s:
            return Fatal(
                f"The replication slot {config.slot_name} is in use: {text}; stop the other connector or set another "
                "slot.name."
            )
        self._slot_delay_s = min(self._slot_delay_s * 2, config.slot_retry_delay_ms / 1000)
        return RetryAfter(self._slot_delay_s, text)

    def _lookup(self, relation: Relation) -> CatalogTable | None:
        """Ask the catalog about a table whose rows begin to arrive or look different from now on."""
        with translated(self._config):
            return self._catalog.table(relation, self._shaper.types)

    # -------------------------------------------------------------------- read

    def _read_snapshot(self, snapshot: Snapshot) -> list[SourceOutput]:
        first = snapshot.rows == 0
        batch = snapshot.read(self._clock.now_ms())
        # Nothing of a snapshot counts before all of it does: its end is the first offset to resume from.
        outputs: list[SourceOutput] = (
            [self._offset_only(self._snapshot_offset(snapshot, completed=False))] if first else []
        )
        if batch is not None:
            outputs.append(batch)
        self._report_snapshot(snapshot)
        if snapshot.exhausted:
            snapshot.finish()
            outputs.append(self._offset_only(self._snapshot_offset(snapshot, completed=True)))
            log.info("snapshot complete", rows=snapshot.rows, tables=snapshot.tables_total)
            self._snapshot = None
            self._finished = self._stream_from is None
        return outputs

    def _snapshot_offset(self, snapshot: Snapshot, *, completed: bool) -> SourceOffset:
        return snapshot_offset(
            snapshot.lsn, snapshot.xid, snapshot.time_us, self._server.system_id, completed=completed
        )

    def _read_stream(self) -> list[SourceOutput]:
        transport, stream, progress = self._transport, self._stream, self._progress
        assert transport is not None and stream is not None and progress is not None
        frames = transport.frames(min(self._config.poll_interval_ms / 1000, POLL_WAIT_S_MAX))
        now_ms = self._clock.now_ms()
        size = 0
        try:
            while frames:
                stream.feed(frames, now_ms)
                size += sum(map(len, frames))
                if stream.rows >= self._config.max_batch_size or size >= POLL_BYTES_MAX or not transport.pending:
                    break
                frames = transport.frames(0)
        except DecodeError as error:
            raise Fatal(f"A change cannot be decoded: {error}") from error
        outputs: list[SourceOutput] = list(stream.take())
        offers = [action for action in progress.step(Tick(now_ms=now_ms)) if isinstance(action, Offer)]
        outputs += [self._offset_only(offer.offset) for offer in offers]
        self._report_stream(transport, progress, now_ms)
        return outputs

    def _heartbeat(self) -> list[SourceOutput]:
        config = self._config
        now_s = self._clock.monotonic()
        if not config.heartbeat_interval_ms or now_s < self._heartbeat_due_s:
            return []
        self._heartbeat_due_s = now_s + config.heartbeat_interval_ms / 1000
        if config.heartbeat_action_query:
            self._context.report({"heartbeat-action": self._action.run()})
        assert self._progress is not None
        key, value = heartbeat(self._form, self._clock.now_ms())
        return [
            EncodedBatch(
                topic=config.heartbeat_topic,
                keys=[key],
                values=[value],
                partition=self._partition,
                offset=self._progress.offset(),
            )
        ]

    # ----------------------------------------------------------------- details

    def _offset_only(self, offset: SourceOffset) -> EncodedBatch:
        return EncodedBatch(
            topic=self._config.heartbeat_topic, keys=(), values=(), partition=self._partition, offset=offset
        )

    def _format(self, context: TaskContext) -> Format:
        for name, spec in (("key.converter", context.key_converter), ("value.converter", context.value_converter)):
            if spec.kind != "json":
                raise Fatal(
                    f"{name}: the PostgreSQL source writes JSON only; set {name}="
                    "org.apache.kafka.connect.json.JsonConverter"
                )
            if spec.options.get("decimal.format", "BASE64").upper() != "BASE64":
                raise Fatal(f"{name}.decimal.format: only BASE64; for plain numbers set decimal.handling.mode=string")
        return Format(
            key_schemas=context.key_converter.flag("schemas.enable", True),
            value_schemas=context.value_converter.flag("schemas.enable", True),
            version=VERSION,
            name=self._config.topic_prefix,
            database=self._config.dbname,
        )

    def _context_headers(self) -> Headers:
        if not self._config.context_headers:
            return ()
        return (
            ("__debezium.context.connectorLogicalName", self._config.topic_prefix.encode()),
            ("__debezium.context.taskId", str(self._context.task).encode()),
            ("__debezium.context.connectorName", b"postgresql"),
        )

    def _report_snapshot(self, snapshot: Snapshot) -> None:
        self._context.report(
            {
                "snapshot": f"{snapshot.tables_done} of {snapshot.tables_total} tables",
                "snapshot-table": snapshot.current,
                "snapshot-rows": snapshot.rows,
            }
        )

    def _report_stream(self, transport: ReplicationStream, progress: Progress, now_ms: int) -> None:
        if self._clock.monotonic() < self._report_due_s:
            return
        self._report_due_s = self._clock.monotonic() + REPORT_INTERVAL_S
        self._context.report(
            {
                "lsn": format_lsn(progress.position),
                "lsn-confirmed": format_lsn(progress.confirmed),
                "lag-bytes": max(0, transport.received - progress.position),
                "queue-bytes": transport.queued_bytes,
                "milliseconds-behind-source": progress.behind_ms(now_ms),
            }
        )


def _version() -> str:
    try:
        return version("tidemill")
    except PackageNotFoundError:
        return "0"


VERSION: Final = _version()
"""Named in every record's source."""

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
)
