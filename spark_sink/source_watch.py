"""A thread that asks again and again whether the source still answers

A query that reads from a cluster that went away waits inside librdkafka or a fetch, for minutes, and says nothing; so
does one whose topic is gone, until its next batch. This thread asks the same question beside it, with little patience,
and tells the job's report what it hears.
"""

import threading
from collections.abc import Callable
from types import TracebackType

from tidemill.spark_sink.cluster import ClusterRefused, ClusterUnreachable, UnknownTopic
from tidemill.spark_sink.report import SOURCE, JobReport

TIMEOUT_MS = 2_500  # with the pause after it, a cluster that is silent is told of within five seconds
_PAUSE_S = 1.0


class SourceWatch:
    """Calls `ask` again and again while its context lasts, and reports whether that fails."""

    def __init__(self, ask: Callable[[], object], report: JobReport) -> None:
        self._ask, self._report = ask, report
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="source-watch", daemon=True)

    def __enter__(self) -> "SourceWatch":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(TIMEOUT_MS / 1000)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._ask()
            except (ClusterUnreachable, ClusterRefused, UnknownTopic) as error:
                self._found(str(error))
            except Exception as error:  # nobody else would ask again
                self._found(f"cannot be asked: {type(error).__name__}: {error}")
            else:
                self._report.over(SOURCE)
            self._stopping.wait(_PAUSE_S)

    def _found(self, what: str) -> None:
        if not self._stopping.is_set():
            self._report.found(SOURCE, what)
