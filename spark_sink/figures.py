"""What a job has done, and has left to do, in numbers

Counted where it happens, by the job's threads; a `Snapshot` is read by whoever tells of it. Lag is counted against the
tables: offsets between the position that a table holds and the end of the partition, so a batch that Spark takes for
done and that is not in its table lags. It is not known while the source does not answer.
"""

import enum
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tidemill.spark_sink.core_api import Clock, TopicPartition
from tidemill.spark_sink.upkeep import Upkept


class Restart(enum.StrEnum):
    """Why a query was replaced by another."""

    FAILURE = "failure"
    BATCH_SIZE = "batch_size"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFigures:
    """What went into one table since the job's start."""

    commits: int = 0
    records: int = 0  # read from the topics
    rows: int = 0  # merged or appended
    commit_s: float = 0.0  # all commits together
    last_commit_s: float = 0.0
    last_commit_ms: int | None = None  # since 1970; None before the first
    version: int = -1  # of the table; -1 while it is not known
    compactions: int = 0
    vacuums: int = 0
    upkeep_failures: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All figures of one moment."""

    batches: int
    refused: int  # records passed over
    values_missing: int  # rows stored with NULL for a value that was not sent
    tables: Mapping[str, TableFigures]  # by path
    restarts: Mapping[Restart, int]
    lag: Mapping[TopicPartition, int]  # empty while it is not known

    @property
    def records(self) -> int:
        """Records read from the topics."""
        return sum(each.records for each in self.tables.values())

    @property
    def rows(self) -> int:
        """Rows merged or appended."""
        return sum(each.rows for each in self.tables.values())

    @property
    def version(self) -> int:
        """The highest version of a table, -1 while none is known."""
        return max((each.version for each in self.tables.values()), default=-1)


class JobFigures:
    """The counters of one job; every method may be called by any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._batches = self._refused = self._values_missing = 0
        self._tables: dict[str, TableFigures] = {}
        self._restarts: Counter[Restart] = Counter()
        self._positions: dict[TopicPartition, int] | None = None  # not known before the job has looked
        self._ends: Mapping[TopicPartition, int] = {}

    @property
    def batches(self) -> int:
        """Batches that are in their tables."""
        return self._batches

    def targets(self, path: str) -> None:
        """The job writes to this table."""
        with self._lock:
            self._tables.setdefault(path, TableFigures())

    def stands_at(self, positions: Mapping[TopicPartition, int]) -> None:
        """Where the tables stand, of all partitions."""
        with self._lock:
            self._positions = dict(positions)

    def source_ends(self, ends: Mapping[TopicPartition, int]) -> None:
        """Where the partitions end; empty when it cannot be asked."""
        with self._lock:
            self._ends = ends

    def committed(
        self,
        path: str,
        *,
        records: int,
        rows: int,
        version: int,
        ends: Mapping[TopicPartition, int],
        took_s: float,
        values_missing: int = 0,
        refused: int = 0,
    ) -> None:
        """A part of a batch is in its table; with no `ends` it was there before."""
        with self._lock:
            self._refused += refused
            self._values_missing += values_missing
            self._positions = {**(self._positions or {}), **ends}
            before = self._tables.get(path, TableFigures())
            after = replace(before, version=max(version, before.version))
            if ends:
                after = replace(
                    after,
                    commits=before.commits + 1,
                    records=before.records + records,
                    rows=before.rows + rows,
                    commit_s=before.commit_s + took_s,
                    last_commit_s=took_s,
                    last_commit_ms=self._clock.now_ms(),
                )
            self._tables[path] = after

    def batch_done(self) -> None:
        """A batch is in all of its tables."""
        with self._lock:
            self._batches += 1

    def kept_small(self, path: str, done: Upkept) -> None:
        """A table had its upkeep, or nothing was due."""
        with self._lock:
            before = self._tables.get(path, TableFigures())
            self._tables[path] = replace(
                before,
                compactions=before.compactions + done.compacted,
                vacuums=before.vacuums + done.vacuumed,
                upkeep_failures=before.upkeep_failures + done.failed,
            )

    def restarted(self, why: Restart) -> None:
        """A query is to be replaced."""
        with self._lock:
            self._restarts[why] += 1

    def snapshot(self) -> Snapshot:
        """All of them, as of now."""
        with self._lock:
            return Snapshot(
                batches=self._batches,
                refused=self._refused,
                values_missing=self._values_missing,
                tables=dict(self._tables),
                restarts=dict(self._restarts),
                lag=self._lag(),
            )

    def _lag(self) -> dict[TopicPartition, int]:
        if self._positions is None:
            return {}
        # a partition that was added is read from its first record
        return {place: max(end - self._positions.get(place, 0), 0) for place, end in self._ends.items()}
