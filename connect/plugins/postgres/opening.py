"""What a life asks of the server before rows flow

The hands of `life`: every method does one of its actions and returns what came of it. One connection serves all of
them; it becomes the one that reads the snapshot.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Final

import structlog

from tidemill.connect.api import Fatal, InvalidConfig, NotConnected
from tidemill.connect.plugins.postgres import catalog, preflight, slot, viewpoint
from tidemill.connect.plugins.postgres.assignment import Assignment
from tidemill.connect.plugins.postgres.connection import connect
from tidemill.connect.plugins.postgres.life import Entered, Found, Looked, SlotMade
from tidemill.connect.plugins.postgres.lock_watch import LockWatch
from tidemill.connect.plugins.postgres.lsn import format_lsn
from tidemill.connect.plugins.postgres.progress import StoredPosition
from tidemill.connect.plugins.postgres.publication import ensure_publication, keyless
from tidemill.connect.plugins.postgres.snapshot import Snapshot, SnapshotTable
from tidemill.connect.plugins.postgres.table import Shaper

log = structlog.get_logger("tidemill.connect.postgres")

LOCKS: Final = "locks of the database"
"""The problem of a snapshot that waits for others, or lets others wait."""

PATIENCE_S: Final = 90.0
"""How long the server may wait for the transactions of others before it answers, as in Debezium."""


class Opening:
    """Opens a connection and looks around; `close` when nothing is read through it any more."""

    def __init__(self, assignment: Assignment) -> None:
        config = assignment.config
        self._assignment = assignment
        self._connection = connect(config)
        self._watch = LockWatch(config, self._connection.info.backend_pid, partial(assignment.context.problem, LOCKS))
        try:
            self.server = catalog.read_server(self._connection)
            preflight.check_server(self.server, config)
            self._publication = self._publish()
            self.shaper = Shaper(
                prefix=config.topic_prefix,
                selection=config.selection,
                modes=replace(config.modes, money_scale=self._money_scale()),
                types=catalog.read_types(self._connection),
                delimiter=config.topic_delimiter,
            )
        except InvalidConfig as error:
            self.close()
            raise Fatal(str(error)) from error
        except BaseException:
            self.close()
            raise
        self._viewpoint: viewpoint.Viewpoint | None = None
        self._view: viewpoint.View | None = None

    def close(self) -> None:
        """Close the connections; more than once does no harm."""
        self._watch.close()
        self._connection.close()

    def find(self, stored: StoredPosition | None) -> Found:
        """Return what there is."""
        config = self._assignment.config
        history: dict[int, int] = {}
        if stored is not None and stored.lineage.timeline not in (None, self.server.timeline):
            with closing(connect(config, replication="database")) as replication:
                history = catalog.read_history(replication, self.server.timeline)
        found = catalog.read_slot(self._connection, config.slot_name)
        return Found(server=self.server, slot=found, stored=stored, history=history)

    def drop_slot(self) -> None:
        """Drop the connector's slot."""
        name = self._assignment.config.slot_name
        slot.drop_slot(self._connection, name)
        log.warning("the slot had lost its WAL and was dropped", slot=name)

    def make_slot(self) -> SlotMade:
        """Make the connector's slot."""
        config = self._assignment.config
        with closing(connect(config, replication="database")) as replication:
            made = slot.create_slot(
                replication,
                config.slot_name,
                failover=config.slot_failover,
                export=False,
                waiting=self._waiting(self._writers),
            )
        self._assignment.waiting(None)
        log.info("slot made", slot=config.slot_name, lsn=format_lsn(made.lsn))
        return SlotMade(lsn=made.lsn)

    def enter(self, *, make_slot: bool) -> Entered:
        """Export a snapshot, from the connector's slot or from a temporary one, and look through it."""
        config = self._assignment.config
        if self._viewpoint is not None:
            viewpoint.leave(self._connection)
            self._publication = self._publish()
        temporary_name = f"{config.slot_name[:40]}_snapshot_{self._assignment.clock.now_ms():x}"
        name = config.slot_name if make_slot else temporary_name
        with closing(connect(config, replication="database")) as exporter:
            exported = slot.create_slot(
                exporter,
                name,
                temporary=not make_slot,
                failover=config.slot_failover,
                waiting=self._waiting(self._writers),
            )
            self._viewpoint = seen = viewpoint.enter(self._connection, exported)
        self._assignment.waiting(None)
        log.info("snapshot begins", slot=name, lsn=format_lsn(seen.lsn))
        return Entered(lsn=seen.lsn, xid=seen.xid, time_us=seen.time_us)

    def look(self) -> Looked:
        """Lock the tables and compare what the snapshot shows with what is there now."""
        config = self._assignment.config
        waiting = self._waiting(self._locked, say=lambda text: None)  # the watch says it
        self._view, changed = viewpoint.settle(self._connection, config, self._publication, waiting)
        self._assignment.waiting(None)
        if changed is not None:
            log.info("snapshot begins again", changed=changed)
        return Looked(changed=changed)

    def snapshot(self) -> Snapshot:
        """Return the rows to read."""
        assignment, config = self._assignment, self._assignment.config
        assert self._viewpoint is not None and self._view is not None, "a snapshot is entered and looked at first"
        self.shaper.types = catalog.read_types(self._connection)
        published = self._publication.by_name
        tables = [
            SnapshotTable(table=each, published=published.get((each.schema, each.table))) for each in self._view.tables
        ]
        return Snapshot(
            self._connection,
            viewpoint=self._viewpoint,
            tables=tables,
            shaper=self.shaper,
            form=assignment.form,
            partition=assignment.partition,
            fetch_rows=config.snapshot_fetch_size,
        )

    def _money_scale(self) -> int:
        """Ask a session without our settings, which set lc_monetary to make all money look the same."""
        with closing(connect(self._assignment.config, options="")) as plain:
            return catalog.read_money_scale(plain)

    def _publish(self) -> catalog.Publication:
        config = self._assignment.config
        view = viewpoint.view(self._connection, config)
        publication = ensure_publication(self._connection, config, view.tables)
        names = keyless(self._connection, publication, view.tables)
        self._assignment.report({"tables-without-update": names})
        if names is not None:
            log.warning(
                "published tables without replica identity accept no UPDATE or DELETE",
                tables=names,
                fix="give them a primary key, or run ALTER TABLE … REPLICA IDENTITY FULL",
            )
        return publication

    # ----------------------------------------------------------------- waiting

    def _waiting(self, reason: Callable[[], str], say: Callable[[str], None] | None = None) -> slot.Waiting:
        """Return what to do while the server waits for others: say for whom, and lose patience in the end."""
        say = say or self._assignment.waiting
        context, clock = self._assignment.context, self._assignment.clock
        deadline_s = clock.monotonic() + PATIENCE_S

        def waiting() -> None:
            text = reason()
            say(text)
            if context.stopping() or clock.monotonic() > deadline_s:
                raise NotConnected(text)

        return waiting

    def _writers(self) -> str:
        rows = self._connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE backend_xid IS NOT NULL ORDER BY xact_start LIMIT 5"
        ).fetchall()
        pids = ", ".join(str(row[0]) for row in rows) or "that are not shown to this user"
        return f"a replication slot can be made once the transactions of processes {pids} have ended"

    def _locked(self) -> str:
        return self._watch.told or "the tables to read are being changed"
