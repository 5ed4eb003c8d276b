"""Frames of a replication stream become batches of records

The pure middle of the connector: replication frames in, `EncodedBatch`es out, one per topic in the order in which the
topics were first touched. Rows are decoded and encoded by generated code; everything else goes through `pgoutput`.
Only the last batch of a turn carries an offset, that of the last transaction that is complete in it, so a
transaction may be spread over any number of turns without ever being half stored.

What the catalog knows about a captured table is asked through `lookup` at every Relation message: one with the same
content may mean that a NOT NULL, a default or the labels of an enum have changed. The catalog may be newer than the
row: a null in a column that it calls NOT NULL makes the column optional until the next answer. Time and memory limits
are the caller's: it decides how many frames to feed.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from struct import Struct
from struct import error as StructError
from typing import Final, TypeAlias

from tidemill.connect.api import EncodedBatch, Headers, SourcePartition
from tidemill.connect.plugins.postgres import pgoutput
from tidemill.connect.plugins.postgres.codegen import NullInRequired, RowCode, Values, generate
from tidemill.connect.plugins.postgres.envelope import Envelope, Format, Moment
from tidemill.connect.plugins.postgres.pgoutput import DecodeError
from tidemill.connect.plugins.postgres.progress import KeptAlive, Progress, TransactionBegan, TransactionEnded
from tidemill.connect.plugins.postgres.table import CatalogTable, Shaper, TableShape
from tidemill.connect.plugins.postgres.types.conversion import UNCONVERTIBLE

XLOG_DATA: Final = 119  # w
KEEPALIVE: Final = 107  # k
PAYLOAD: Final = 25
"""Where the plugin's message begins in an XLogData frame: after tag, start, end and time."""

_NEW, _KEY, _OLD = 78, 75, 79  # N K O

Lookup: TypeAlias = Callable[[pgoutput.Relation], CatalogTable | None]

_position: Callable[[bytes, int], tuple[int]] = Struct("!Q").unpack_from
_number: Callable[[bytes, int], tuple[int]] = Struct("!I").unpack_from


class TableStream:
    """One captured table: its code, its constants and the records collected in this turn."""

    __slots__ = (
        "code", "created", "deleted", "envelope", "first", "headers", "keys", "new", "second", "shape", "third",
        "transaction", "updated", "values",
    )  # fmt: skip

    def __init__(self, shape: TableShape, form: Format) -> None:
        self.shape = shape
        self.envelope = Envelope(shape, form)
        self.code: RowCode = generate(self.envelope)
        self.new = self.code.new
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: dict[int, Headers] = {}
        self.transaction = -1
        self.first = self.second = self.third = b""
        self.created = self.updated = self.deleted = b""

    def enter(self, transaction: int, moment: Moment, now_ms: int) -> None:
        """Make the constants of a transaction, or of a turn that goes on with one."""
        self.transaction = transaction
        self.first, self.second, third = self.envelope.source(moment)
        self.created = third + self.envelope.tail("c", now_ms)
        self.updated = third + self.envelope.tail("u", now_ms)
        self.deleted = third + self.envelope.tail("d", now_ms)


class ChangeStream:
    """Decodes, encodes and collects."""

    def __init__(
        self,
        *,
        shaper: Shaper,
        form: Format,
        lookup: Lookup,
        progress: Progress,
        partition: SourcePartition,
        captures: Callable[[str, str], bool],
        skipped: frozenset[str] = frozenset({"t"}),
        tombstones: bool = True,
        skip_unchanged: bool = False,
        headers: Headers = (),
    ) -> None:
        self.rows = 0  # collected and not yet taken
        self.progress = progress
        self._shaper = shaper
        self._form = form
        self._lookup = lookup
        self._partition = partition
        self._captures = captures
        self._inserts = "c" not in skipped
        self._updates = "u" not in skipped
        self._deletes = "d" not in skipped
        self._truncates = "t" not in skipped
        self._tombstones = tombstones
        self._skip_unchanged = skip_unchanged
        self._headers = headers
        self._tables: dict[int, TableStream | None] = {}
        self._touched: dict[TableStream, None] = {}
        self._moment = Moment(xid=0, commit_time_us=0, last_commit_lsn=None)
        self._transaction = 0
        self._last_commit_lsn: int | None = None

    def feed(self, frames: Sequence[bytes], now_ms: int) -> None:
        """Take in frames; raises DecodeError when the server's bytes make no sense."""
        self._transaction += 1  # the constants hold the time, which has gone on
        m = b""
        rest: Iterable[bytes] = iter(frames)
        tables, position, number, new = self._tables, _position, _number, _NEW
        while True:
            try:
                for m in rest:
                    if m[0] == XLOG_DATA:
                        kind = m[25]
                        if kind == 73:  # an insert, in place: a call would cost a tenth of all the work
                            table = tables[number(m, 26)[0]]
                            if table is None or not self._inserts:
                                continue
                            if table.transaction != self._transaction:
                                self._enter(table, now_ms)
                            if m[30] != new:
                                raise DecodeError(f"an insert without a row: {m[30]}")
                            lsn = b"%d" % position(m, 1)
                            key, value = table.new(m, 31, table.first, lsn, table.second, table.created)
                            table.keys.append(key)
                            table.values.append(value)
                            self.rows += 1
                        elif kind == pgoutput.UPDATE:
                            self._update(m, now_ms)
                        elif kind == pgoutput.DELETE:
                            self._delete(m, now_ms)
                        else:
                            self._other(m, now_ms)
                    elif m[0] == KEEPALIVE:
                        self.progress.step(KeptAlive(wal_end=_position(m, 1)[0]))
                    else:
                        raise DecodeError(f"unknown replication frame {m[:1]!r}")
                return
            except NullInRequired as null:
                self._relax(m, null.column)
                rest = chain((m,), rest)  # the same row again; nothing of it was kept
            except DecodeError:
                raise
            except (StructError, *UNCONVERTIBLE) as problem:
                raise DecodeError(self._explain(m, problem)) from None  # their texts quote the row

    def take(self) -> list[EncodedBatch]:
        """Return what was collected, with the offset of the last complete transaction on the last batch."""
        tables = list(self._touched)
        self._touched.clear()
        self.rows = 0
        batches = []
        for table in tables:
            last = table is tables[-1]
            batches.append(
                EncodedBatch(
                    topic=table.shape.topic,
                    keys=table.keys,
                    values=table.values,
                    headers=self._headers_of(table),
                    partition=self._partition,
                    offset=self.progress.offset() if last else None,
                )
            )
            table.keys, table.values, table.headers = [], [], {}
        return batches

    def _headers_of(self, table: TableStream) -> Sequence[Headers]:
        if not table.headers and not self._headers:
            return ()
        return [table.headers.get(index, ()) + self._headers for index in range(len(table.values))]

    # ------------------------------------------------------------------- rows

    def _table(self, m: bytes, now_ms: int) -> TableStream | None:
        """Return the table a row belongs to, ready for a record; None if it is not captured."""
        table = self._tables[_number(m, PAYLOAD + 1)[0]]
        if table is not None and table.transaction != self._transaction:
            self._enter(table, now_ms)
        return table

    def _enter(self, table: TableStream, now_ms: int) -> None:
        table.enter(self._transaction, self._moment, now_ms)
        self._touched[table] = None

    def _update(self, m: bytes, now_ms: int) -> None:
        table = self._table(m, now_ms)
        if table is None or not self._updates:
            return
        lsn = b"%d" % _position(m, 1)
        if m[30] == _NEW:
            key, value = table.new(m, 31, table.first, lsn, table.second, table.updated)
            table.keys.append(key)
            table.values.append(value)
            self.rows += 1
            return
        if m[30] not in (_KEY, _OLD):
            raise DecodeError(f"an update without a row: {m[30]}")
        code, pieces = table.code, table.envelope
        old_key, old, at = code.old(m, 31)
        if m[at] != _NEW:
            raise DecodeError(f"an update without a new row: {m[at]}")
        key, new = code.over(m, at + 1, old)
        if self._skip_unchanged and m[30] == _OLD and old == new:
            return
        if old_key != key and old_key is not None and key is not None:
            self._rekey(table, lsn, (old_key, self._image(code, m, old)), (key, new))
            return
        before, after = code.row(self._image(code, m, old)), code.row(new)
        around = (table.first, lsn, table.second, lsn, table.updated)
        table.keys.append(key)
        table.values.append(b"".join((pieces.before_head, before, pieces.between, after, *around)))
        self.rows += 1

    def _rekey(self, table: TableStream, lsn: bytes, before: tuple[bytes, Values], after: tuple[bytes, Values]) -> None:
        """A changed key is a delete of the old row and a create of the new one, each naming the other's key."""
        (old_key, old), (key, new) = before, after
        pieces = table.envelope
        start = len(table.values)
        self._append_delete(table, lsn, old_key, old)
        named: Headers = (("__debezium.newkey", pieces.plain_key(key)),)
        table.headers |= dict.fromkeys(range(start, len(table.values)), named)
        table.headers[len(table.values)] = (("__debezium.oldkey", pieces.plain_key(old_key)),)
        around = (table.first, lsn, table.second, lsn, table.created)
        table.keys.append(key)
        table.values.append(b"".join((pieces.create_head, table.code.row(new), *around)))
        self.rows += 1

    def _delete(self, m: bytes, now_ms: int) -> None:
        table = self._table(m, now_ms)
        if table is None or not self._deletes:
            return
        if m[30] not in (_KEY, _OLD):
            raise DecodeError(f"a delete without a row: {m[30]}")
        key, old, at = table.code.old(m, 31)
        if at != len(m):
            raise DecodeError(f"{len(m) - at} bytes too many in a delete")
        self._append_delete(table, b"%d" % _position(m, 1), key, self._image(table.code, m, old))

    @staticmethod
    def _image(code: RowCode, m: bytes, old: Values) -> Values:
        """Return an old image that fits the schema: a null is a null in a whole one, and unknown in one of the key."""
        return code.whole(old) if m[30] == _OLD else code.complete(old)

    def _append_delete(self, table: TableStream, lsn: bytes, key: bytes | None, old: Values) -> None:
        pieces = table.envelope
        around = (table.first, lsn, table.second, lsn, table.deleted)
        table.keys.append(key)
        table.values.append(b"".join((pieces.before_head, table.code.row(old), pieces.deleted, *around)))
        self.rows += 1
        if self._tombstones and key is not None:
            table.keys.append(key)
            table.values.append(None)

    # ------------------------------------------------------------- all the rest

    def _other(self, m: bytes, now_ms: int) -> None:
        match pgoutput.decode(m[PAYLOAD:]):
            case pgoutput.Begin(xid=xid, commit_time_us=commit_time_us):
                self._transaction += 1
                self._moment = Moment(xid=xid, commit_time_us=commit_time_us, last_commit_lsn=self._last_commit_lsn)
                self.progress.step(TransactionBegan(xid=xid, commit_time_us=commit_time_us))
            case pgoutput.Commit(end_lsn=end_lsn):
                self._last_commit_lsn = end_lsn
                self.progress.step(TransactionEnded(end_lsn=end_lsn))
            case pgoutput.Origin(lsn=lsn, name=name):
                self._moment = Moment(
                    xid=self._moment.xid,
                    commit_time_us=self._moment.commit_time_us,
                    last_commit_lsn=self._last_commit_lsn,
                    origin=name,
                    origin_lsn=lsn,
                )
            case pgoutput.Relation() as relation:
                self._relation(relation)
            case pgoutput.Truncate(relations=relations):
                self._truncate(relations, _position(m, 1)[0], now_ms)
            case pgoutput.Type() | pgoutput.Message():
                pass  # types come from the catalog; messages were not asked for
            case message:
                raise DecodeError(f"a row message in the wrong place: {type(message).__name__}")

    def _relation(self, relation: pgoutput.Relation) -> None:
        """Learn a table's shape; code is made anew only if records will look different."""
        if not self._captures(relation.schema, relation.table):
            self._tables[relation.oid] = None
            return
        shape = self._shaper.shape(relation, self._lookup(relation))
        present = self._tables.get(relation.oid)
        if present is None or not present.shape.same_records(shape):
            self._tables[relation.oid] = TableStream(shape, self._form)

    def _relax(self, m: bytes, column: int) -> None:
        """Let a column of the table that a row belongs to be null."""
        oid = _number(m, PAYLOAD + 1)[0]
        table = self._tables[oid]
        assert table is not None, "the row was being decoded"
        self._tables[oid] = TableStream(table.shape.with_optional(column), self._form)

    def _truncate(self, relations: Sequence[int], lsn: int, now_ms: int) -> None:
        if not self._truncates:
            return
        for oid in relations:
            table = self._tables[oid]
            if table is not None:
                self._touched[table] = None
                table.keys.append(None)
                table.values.append(table.envelope.truncated(self._moment, lsn, now_ms))
                self.rows += 1

    def _explain(self, m: bytes, problem: Exception) -> str:
        """Find the column that does not convert, or say that the message is garbled; no value is quoted."""
        try:
            message = pgoutput.decode(m[PAYLOAD:])
        except DecodeError as garbled:
            return str(garbled)
        if not isinstance(message, pgoutput.Insert | pgoutput.Update | pgoutput.Delete):
            return f"{type(problem).__name__}: {problem}"
        reason = type(problem).__name__
        table = self._tables.get(message.relation)
        if table is None:
            return f"a row of relation {message.relation}, which was not announced ({reason})"
        rows = [getattr(message, name, None) for name in ("new", "key", "old")]
        misfits = filter(None, map(table.shape.misfit, filter(None, rows)))
        return next(misfits, f"{table.shape.schema}.{table.shape.table}: {reason}")
