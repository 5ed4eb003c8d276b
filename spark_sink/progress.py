"""What a streaming query tells of itself

How far it is and how far behind, whether its thread lives, what it died of. The first two are in its public reports;
for the others Spark's Java objects are asked, the same ones in PySpark 4.2 and 4.3.
"""

import json
from typing import TYPE_CHECKING, Any

from tidemill.spark_sink.offsets import StreamOffset

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


def position_of(progress: Any) -> StreamOffset | None:
    """Where the last batch ended, None before the first."""
    return None if progress is None else _offset(progress["sources"][0]["endOffset"])


def behind_of(progress: Any) -> list[int] | None:
    """For each partition the records between the query's position and its end, None when Spark does not say."""
    end = position_of(progress)
    latest = None if progress is None else _offset(progress["sources"][0]["latestOffset"])
    if latest is None or end is None:
        return None
    return [max(offset - end.offsets.get(place, 0), 0) for place, offset in sorted(latest.offsets.items())]


def lag_of(progress: Any) -> int | None:
    """Records between the query's position and the end of its topics, None when Spark does not say."""
    behind = behind_of(progress)
    return None if behind is None else sum(behind)


def stream_thread_is_dead(query: "StreamingQuery") -> bool:
    """Whether the JVM's thread is gone while the query still calls itself active.

    Asked in this order: the thread's last act is to end the query, so an active query of a dead thread stays so.
    """
    return not query._jsq.streamingQuery().queryExecutionThread().isAlive() and query.isActive


def exception_of(query: "StreamingQuery") -> BaseException | None:
    """What ended the query, with its Java causes as notes: Spark's own text does not name an Error's class."""
    error = query.exception()
    if error is None:
        return None
    cause = query._jsq.exception().get().getCause()
    while cause is not None:
        error.add_note(cause.toString())
        cause = cause.getCause()
    return error


def _offset(value: Any) -> StreamOffset | None:
    tree = json.loads(value) if isinstance(value, str) else value
    return StreamOffset.from_json(tree) if isinstance(tree, dict) else None
