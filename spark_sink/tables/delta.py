"""A Delta table equal to change events, with its offsets in its own log

Every commit of rows also sets, per partition, a transaction identifier `sink/topic-id/topic-partition` to the next
offset, an action of the Delta protocol that all its readers and writers keep. Positions are read from the snapshot that
the commit is made from, so rows and offsets can never disagree, and Delta's conflict check refuses the later of two
writers that try to move the same identifier.

After this writer's first commit, a position that somebody else moved means that another job took over the table: this
one is a leftover and stops (`Fenced`). The topic's id is in the name because offsets of a topic that was deleted and
made anew start at 0 again and must not be taken for old ones; `sink/topic` remembers the id itself.

Where a partition is first read from is written the same way, before its first batch (`begin`): from then on a
partition without a position is one that was added, and begins at 0. Without a table they wait beside it (`starts`), and
move on there with batches that bring no row.

The commit's description repeats the positions in words, where `DESCRIBE HISTORY` shows them.

Merging is delta-rs' (copy on write), also into an empty table: Delta refuses a merge beside somebody else's merge, but
an append would go through and leave a key twice.
"""

import contextlib
import enum
import json
import re
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from tidemill.spark_sink.changes import KEPT, OP, Chunk, keys_of
from tidemill.spark_sink.core_api import TopicPartition
from tidemill.spark_sink.offsets import SourceStopped, TopicRecreated
from tidemill.spark_sink.tables.evolution import missing_fields
from tidemill.spark_sink.tables.plan import (
    APPEND_COLUMNS,
    Pending,
    append_source,
    check_truncates,
    merge_source,
    pending,
    row_schema,
)
from tidemill.spark_sink.tables.starts import FOLDER, Starts, is_remote, local_folder
from tidemill.spark_sink.tables.unsent import ValueMissing, complaint, values_missing

CONFLICTS_MAX = 10  # fresh attempts after a lost race; delta-rs itself retries commits that do not overlap
HISTORY_MAX = 100  # commits looked at for a description of the offsets; upkeep's own have none
SINK_METADATA, OFFSETS_METADATA = "tidemill.sink", "tidemill.offsets"
PROBE_BYTES = 65_536  # a full disk still makes empty files
_INDENT = re.compile(r"\s*\n\s*(?:\x1b\[\d+m)?[↳]?(?:\x1b\[0m)?\s*")  # how delta-rs sets causes under each other
_REASON_LENGTH_MAX = 400
_ID_BITS = 63  # what of a topic id fits a transaction version


class Fenced(SourceStopped):
    """Another job with the same name writes this table."""


class Unread(enum.Enum):
    """What a partition is that this job has not read yet."""

    TOPIC = enum.auto()  # nor any other of its topic
    PARTITION_ADDED = enum.auto()  # to a topic that the job reads
    TOPIC_RECREATED = enum.auto()  # under the name of one that the job has read


class TableUnusable(SourceStopped):
    """The table's path cannot be read or written."""

    permanent: ClassVar[bool] = False  # a disk may come back


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What one commit did."""

    version: int  # of the table; -1 while there is none
    records: int  # read from the topics
    rows: int  # merged or appended
    values_missing: int  # rows with a value that was neither sent nor in the table
    ends: Mapping[TopicPartition, int]


def open_table(path: str) -> DeltaTable | None:
    """The table at a path, None when there is none yet; raises TableUnusable."""
    try:
        return DeltaTable(path) if DeltaTable.is_deltatable(path) else None
    except (DeltaError, OSError) as error:
        raise TableUnusable(f"table.path {path!r} cannot be opened: {_reason(error)}") from None


def table_offsets(path: str) -> dict[str, int]:
    """The next offset of each `topic-partition` as the table's latest commit of rows describes it; for people.

    Jobs do not read this: they read the transaction identifiers that the commit is checked against.
    """
    table = open_table(path)
    for commit in table.history(HISTORY_MAX) if table is not None else ():
        if OFFSETS_METADATA in commit:
            return {str(place): int(offset) for place, offset in json.loads(commit[OFFSETS_METADATA]).items()}
    return {}


def check_path(path: str) -> None:
    """Refuse a path where no table can be made; raises TableUnusable."""
    if is_remote(path):
        return
    folder = local_folder(path)
    place = check_writable("table.path", path)
    if place == folder and any(each.name != FOLDER for each in folder.iterdir()) and not DeltaTable.is_deltatable(path):
        raise TableUnusable(f"table.path {path!r} is a folder with other files in it; name a new or empty one")


def check_writable(setting: str, path: str) -> Path:
    """The nearest folder of the local `path` that is there; raises TableUnusable if nothing can be written into it."""
    folder = local_folder(path)
    place = next(each for each in (folder, *folder.parents) if each.exists())
    if not place.is_dir():
        raise TableUnusable(f"{setting} {path!r} cannot be used: {place} is not a folder")
    try:
        with tempfile.TemporaryFile(dir=place, buffering=0) as probe:
            probe.write(bytes(PROBE_BYTES))
    except OSError as error:
        raise TableUnusable(f"{setting} {path!r} cannot be used: {place}: {error.strerror}") from None
    return place


class DeltaTarget:
    """One table and the job that writes it."""

    def __init__(
        self,
        path: str,
        sink: str,
        mode: str = "upsert",
        *,
        missing_as_null: bool = False,
        truncate_always: bool = False,
    ) -> None:
        self.path = path
        self._sink = sink
        self._mode = mode
        self._missing_as_null = missing_as_null
        self._truncate_always = truncate_always  # also where it cannot be told what came before
        self._table = open_table(path)
        self._opens_anew = False  # the handle could not be read: what it is of may have been replaced
        self._starts = Starts(path, sink)
        self._waiting: dict[str, int] | None = None  # identifiers that are in no commit yet; None: not looked
        self._own: dict[str, int] = {}  # identifiers this writer has set
        self._known: dict[TopicPartition, int] = {}  # every position, for the commit's description

    @property
    def table(self) -> DeltaTable | None:
        """The table as of this writer's last look, None while there is none."""
        return self._table

    def positions(
        self, partitions: Sequence[TopicPartition], topic_ids: Mapping[str, uuid.UUID], recreated: bool = False
    ) -> dict[TopicPartition, int]:
        """The next offset of each partition that the table has seen.

        Raises TopicRecreated for a topic that is not the one the table was fed from, unless that is allowed.
        """
        self._refresh()
        for topic in sorted({place.topic for place in partitions} if not recreated else ()):
            self._check_topic(topic, topic_ids.get(topic, uuid.UUID(int=0)))
        found = self._positions(partitions, topic_ids)
        self._known |= found
        return found

    def unread(self, topic: str, topic_ids: Mapping[str, uuid.UUID], found: Mapping[TopicPartition, int]) -> Unread:
        """What a partition of `topic` is that is not among the positions `found` at the last look."""
        known, topic_id = self._version_of(f"{self._sink}/{topic}"), topic_ids.get(topic, uuid.UUID(int=0))
        if known is not None and topic_id.int and known != _short_id(topic_id):
            return Unread.TOPIC_RECREATED
        if known is not None or any(place.topic == topic for place in found):
            return Unread.PARTITION_ADDED
        return Unread.TOPIC

    def begin(
        self, starts: Mapping[TopicPartition, int], topic_ids: Mapping[str, uuid.UUID]
    ) -> dict[TopicPartition, int]:
        """Write where partitions are read from that have no position; returns the table's positions of all of them.

        Raises TableUnusable.
        """
        reason = ""
        for _ in range(CONFLICTS_MAX):
            self._refresh()
            found = self._positions(list(starts), topic_ids)
            missing = {place: start for place, start in starts.items() if place not in found}
            if not missing:
                self._known |= found
                return found
            try:
                self._write_positions(missing, topic_ids)
            except CommitFailedError as error:
                reason = _reason(error)
                continue  # somebody else began, or committed: look again
            except (DeltaError, OSError) as error:
                raise TableUnusable(f"table {self.path!r} cannot be written: {_reason(error)}") from error
            self._own |= {self._app(place, topic_ids): start for place, start in missing.items()}
        raise self._refused(reason)

    def _refused(self, reason: str) -> TableUnusable:
        return TableUnusable(f"table {self.path!r} refused {CONFLICTS_MAX} commits, the last one for this: {reason}")

    def _write_positions(self, moved: Mapping[TopicPartition, int], topic_ids: Mapping[str, uuid.UUID]) -> None:
        """Write positions that no rows come with."""
        if self._table is None:
            self._starts.write(self._waiting_apps() | self._moves(moved, topic_ids))
            self._waiting = None
        else:
            properties = self._transactions(moved, topic_ids)
            self._table.create_write_transaction([], "append", self._table.schema(), commit_properties=properties)

    def _waiting_apps(self) -> dict[str, int]:
        if self._waiting is None:
            try:
                self._waiting = self._starts.read()
            except (DeltaError, OSError, ValueError) as error:
                raise TableUnusable(f"table {self.path!r} cannot be read: {_reason(error)}") from error
        return self._waiting

    def _check_topic(self, topic: str, topic_id: uuid.UUID) -> None:
        known = self._version_of(f"{self._sink}/{topic}")
        if known is not None and topic_id.int and known != _short_id(topic_id):
            raise self._recreated(topic)

    def _recreated(self, topic: str) -> TopicRecreated:
        return TopicRecreated(
            f"topic {topic} was deleted and created again since table {self.path} was last fed from it, so rows "
            "deleted in between cannot be known; load it into a new table.path, or set topic.recreated=continue "
            "to go on with the new topic from its first record"
        )

    def _positions(
        self, partitions: Sequence[TopicPartition], topic_ids: Mapping[str, uuid.UUID]
    ) -> dict[TopicPartition, int]:
        found = {place: self._version_of(self._app(place, topic_ids)) for place in partitions}
        return {place: version for place, version in found.items() if version is not None}

    def _app(self, place: TopicPartition, topic_ids: Mapping[str, uuid.UUID]) -> str:
        return f"{self._sink}/{topic_ids.get(place.topic, uuid.UUID(int=0))}/{place}"

    def _version_of(self, app: str) -> int | None:
        try:
            found = None if self._table is None else self._table.transaction_version(app)
        except (DeltaError, OSError) as error:
            raise self._unreadable(error) from None
        return self._waiting_apps().get(app) if found is None else found

    def _refresh(self) -> None:
        if self._table is None:
            self._table = open_table(self.path)
        elif self._opens_anew:
            again = open_table(self.path)
            if again is None:
                raise TableUnusable(f"table {self.path!r} is gone; bring it back, or restart the job to make a new one")
            self._table, self._opens_anew = again, False
        else:
            try:
                self._table.update_incremental()
            except (DeltaError, OSError) as error:
                raise self._unreadable(error) from None

    def _unreadable(self, error: Exception) -> TableUnusable:
        self._opens_anew = True
        return TableUnusable(f"table {self.path!r} cannot be read: {_reason(error)}")

    def commit(self, chunks: Sequence[Chunk], topic_ids: Mapping[str, uuid.UUID]) -> Committed:
        """Put a batch into the table, once.

        Raises Fenced, OffsetGap, SchemaConflict, TopicRecreated, TruncateUnordered, ValueMissing, TableUnusable.
        """
        self._check_read(chunks, topic_ids)
        places = sorted({TopicPartition(chunk.topic, chunk.partition) for chunk in chunks})
        reason = ""
        for _ in range(CONFLICTS_MAX):
            self._refresh()
            positions = self._positions(places, topic_ids)
            self._check_fence(positions, topic_ids)
            what = pending(chunks, positions, keep_all=self._mode == "append")
            if not what.ends:
                return self._result(what, 0, 0)
            if not self._truncate_always and (self._table is not None or what.tables):
                check_truncates(what, self._known)
            try:
                rows, missing = self._write(what, topic_ids)
            except CommitFailedError as error:
                reason = _reason(error)
                continue  # somebody else committed: look again whether it was with our offsets
            except (DeltaError, OSError) as error:
                for place in what.ends:  # it may have been committed all the same: the next look tells
                    self._own.pop(self._app(place, topic_ids), None)
                raise TableUnusable(f"table {self.path!r} cannot be written: {_reason(error)}") from error
            self._own |= {self._app(place, topic_ids): end for place, end in what.ends.items()}
            self._known |= what.ends
            if self._table is not None:
                self._forget_starts()
                self._refresh()
            return self._result(what, rows, missing)
        raise self._refused(reason)

    def _check_read(self, chunks: Sequence[Chunk], topic_ids: Mapping[str, uuid.UUID]) -> None:
        """Refuse offsets of another topic than the one whose positions they would be compared with."""
        for topic, text in {(chunk.topic, chunk.topic_id) for chunk in chunks if chunk.topic_id}:
            expected, read = topic_ids.get(topic, uuid.UUID(int=0)), uuid.UUID(text)
            if expected.int and read.int and expected != read:
                raise self._recreated(topic)

    def _check_fence(self, positions: Mapping[TopicPartition, int], topic_ids: Mapping[str, uuid.UUID]) -> None:
        for place, position in positions.items():
            own = self._own.get(self._app(place, topic_ids))
            if own is not None and own != position:
                raise Fenced(
                    f"another job named {self._sink!r} writes table {self.path}: {place} is at offset {position}, "
                    f"this job left it at {own}; this job stops"
                )

    def _result(self, what: Pending, rows: int, missing: int) -> Committed:
        version = -1 if self._table is None else self._table.version()
        return Committed(version=version, records=what.records, rows=rows, values_missing=missing, ends=what.ends)

    def _forget_starts(self) -> None:
        if self._waiting_apps():
            with contextlib.suppress(DeltaError, OSError):  # it does no harm: the table goes first
                self._starts.remove()
            self._waiting = {}

    def _moves(self, ends: Mapping[TopicPartition, int], topic_ids: Mapping[str, uuid.UUID]) -> dict[str, int]:
        """The transaction identifiers of positions, and of the topics they are in."""
        moves = {self._app(place, topic_ids): end for place, end in ends.items()}
        for topic in {place.topic for place in ends}:
            if topic_ids.get(topic, uuid.UUID(int=0)).int:
                moves[f"{self._sink}/{topic}"] = _short_id(topic_ids[topic])
        return moves

    def _transactions(self, ends: Mapping[TopicPartition, int], topic_ids: Mapping[str, uuid.UUID]) -> CommitProperties:
        moves = self._waiting_apps() | self._moves(ends, topic_ids)
        offsets = {str(place): end for place, end in sorted((self._known | dict(ends)).items())}
        return CommitProperties(
            app_transactions=[Transaction(app, version) for app, version in sorted(moves.items())],
            custom_metadata={SINK_METADATA: self._sink, OFFSETS_METADATA: json.dumps(offsets)},
        )

    def _write(self, what: Pending, topic_ids: Mapping[str, uuid.UUID]) -> tuple[int, int]:
        """Returns how many rows were written, and how many of them lack a value."""
        if self._table is None and not what.tables:  # no column is known, so there can be no table yet
            self._write_positions(what.ends, topic_ids)
            return 0, 0
        properties = self._transactions(what.ends, topic_ids)
        table = self._prepared(what)
        schema = _arrow_schema(table)
        appends = self._mode == "append"
        source = append_source(what, schema) if appends else merge_source(what, schema)
        missing = 0 if appends else self._values_missing(table, source, what)
        if not source.num_rows and not what.truncated:
            self._write_positions(what.ends, topic_ids)
        elif appends:
            write_deltalake(table, source, mode="append", commit_properties=properties)
        else:
            _merge(table, source, what, properties)
        return int(source.num_rows), missing

    def _values_missing(self, table: DeltaTable, source: pa.Table, what: Pending) -> int:
        rows = values_missing(table, source, _keys(what))
        if rows.num_rows and not self._missing_as_null:
            raise ValueMissing(
                f"{complaint(what, rows, _keys(what), self.path)}; set unavailable.value.missing=null to store NULL, "
                "or load the source table anew"
            )
        return int(rows.num_rows)

    def _prepared(self, what: Pending) -> DeltaTable:
        """The table with all columns of the batch; makes it if there is none."""
        wanted = row_schema(what)
        if self._mode == "append":
            wanted = pa.schema([*wanted, *(pa.field(name, kind) for name, kind in APPEND_COLUMNS)])
        if self._table is None:
            self._table = DeltaTable.create(self.path, Schema.from_arrow(wanted), name=self._sink, mode="ignore")
            self._table.update_incremental()
        missing = missing_fields(_arrow_schema(self._table), wanted)
        if missing:
            self._table.alter.add_columns(Schema.from_arrow(pa.schema(missing)).fields)
            self._table.update_incremental()
        return self._table


def _merge(table: DeltaTable, source: pa.Table, what: Pending, properties: CommitProperties) -> None:
    keys = _keys(what)
    columns = [name for name in source.column_names if name != OP and not name.startswith(KEPT)]
    values = {_quoted(name): f"s.{_quoted(name)}" for name in columns}
    updates = dict(values)
    for name in columns:
        if KEPT + name in source.column_names:
            mark, plain = f"s.{_quoted(KEPT + name)}", _quoted(name)
            updates[plain] = f"CASE WHEN {mark} THEN t.{plain} ELSE s.{plain} END"
    predicate = " AND ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in keys) or "false"
    is_delete = f"s.{_quoted(OP)} = 'd'"
    merger = (
        table.merge(source, predicate, source_alias="s", target_alias="t", commit_properties=properties)
        .when_matched_delete(is_delete)
        .when_matched_update(updates, f"NOT ({is_delete})")
        .when_not_matched_insert(values, f"NOT ({is_delete})")
    )
    if what.truncated:
        merger = merger.when_not_matched_by_source_delete()
    merger.execute()


def _keys(what: Pending) -> tuple[str, ...]:
    return next((keys_of(table) for _, table in what.tables), ())


def _quoted(name: str) -> str:
    """A column name in delta-rs' SQL, where unquoted names lose their case."""
    return '"' + name.replace('"', '""') + '"'


def _arrow_schema(table: DeltaTable) -> pa.Schema:
    return pa.schema(table.schema().to_arrow())


def _short_id(topic_id: uuid.UUID) -> int:
    return topic_id.int >> (128 - _ID_BITS)


def _reason(error: Exception) -> str:
    return _INDENT.sub(": ", str(error)).rstrip(": ")[:_REASON_LENGTH_MAX]
