"""A query that stands still while records wait

Spark's stream thread can die, or wait for ever on something that never answers, and the query still calls itself
active; whoever only asks that would wait with it. What cannot deceive is the position: records wait behind it, no
commit is under way, and it does not move. A commit is never counted: a merge into a large table takes its time.

Nothing inside the same JVM can be trusted to repair that, so the job ends and whoever supervises it starts it anew.
"""

from typing import TYPE_CHECKING, ClassVar

from tidemill.spark_sink.cluster import Cluster, ClusterUnreachable, UnknownTopic
from tidemill.spark_sink.offsets import StreamOffset, backlog_rows
from tidemill.spark_sink.options import SourceOptions
from tidemill.spark_sink.progress import position_of, stream_thread_is_dead

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

CHECK_INTERVAL_S = 15.0  # two small requests to the cluster; also how late a dead thread is noticed


class Stalled(RuntimeError):
    """The query neither works nor ends."""

    needs_new_jvm: ClassVar[bool] = True


class Standstill:
    """For how long a position has not moved although records wait behind it."""

    def __init__(self) -> None:
        self._position: StreamOffset | None = None
        self._since = 0.0

    def moves(self, now_s: float) -> None:
        """Something else shows that the query works, or that there is nothing to do."""
        self._since = now_s

    def seconds(self, now_s: float, position: StreamOffset, ends: StreamOffset) -> float:
        """How long the query has stood at `position` with records before `ends`.

        >>> from tidemill.spark_sink.core_api import TopicPartition
        >>> at = lambda offset: StreamOffset(offsets={TopicPartition("t", 0): offset})
        >>> still = Standstill()
        >>> [still.seconds(now, at(5), at(9)) for now in (10.0, 40.0)], still.seconds(50.0, at(9), at(9))
        ([0.0, 30.0], 0.0)
        """
        if self._position is None or position.offsets != self._position.offsets or not backlog_rows(position, ends):
            self._position, self._since = position, now_s
        return now_s - self._since


class QueryGuard:
    """Looks after one running query; `check` is called every now and then."""

    def __init__(self, query: "StreamingQuery", options: SourceOptions, cluster: Cluster, timeout_s: float) -> None:
        self._query = query
        self._options, self._cluster = options, cluster
        self._timeout_s = timeout_s  # 0: only a dead thread counts
        self._standstill = Standstill()
        self._begin: StreamOffset | None = None  # where the query's first batch starts
        self._checked_at: float | None = None

    def check(self, now: float, busy: bool) -> None:
        """Raise Stalled when the query will not go on; `busy` says that a commit is under way."""
        interval = min(CHECK_INTERVAL_S, self._timeout_s / 4) if self._timeout_s else CHECK_INTERVAL_S
        if self._checked_at is not None and now - self._checked_at < interval:
            return
        self._checked_at = now
        if stream_thread_is_dead(self._query):
            raise Stalled("Spark's stream thread is dead and its query did not end")
        if self._timeout_s:
            self._check_position(now, busy)

    def _check_position(self, now: float, busy: bool) -> None:
        try:
            position = position_of(self._query.lastProgress) or self._first_position()
            ends = self._cluster.ends(self._options.selection)
        except (ClusterUnreachable, UnknownTopic):  # the query's own to tell
            self._standstill.moves(now)
            return
        if busy:
            self._standstill.moves(now)
        stood = self._standstill.seconds(now, position, ends)
        if stood >= self._timeout_s:
            waiting = backlog_rows(position, ends)
            raise Stalled(f"{waiting} records wait and the query has not moved for {stood:.0f} s")

    def _first_position(self) -> StreamOffset:
        if self._begin is None:
            self._begin = self._cluster.resolve(self._options.starting)
        return self._begin
