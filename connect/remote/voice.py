"""What a task says to its worker

One voice per task, be it alone in its process or not: what it announces, what it reports when that has changed, and how
it ended. Whatever a plugin has put into its facts or its errors, it can be said.
"""

import threading
from collections.abc import Callable
from typing import Any, Final

import orjson

from tidemill.connect.api import Json
from tidemill.connect.failure import classify, trace_of
from tidemill.connect.problem import Problem
from tidemill.connect.remote import plugin_pb2 as pb
from tidemill.connect.remote.messages import report_to_message
from tidemill.connect.tasks.control import News, TaskControl

EXIT_DONE = 0
EXIT_FAILED = 1

REPORT_INTERVAL_S = 2.0  # at most; as often as the worker looks at memory and processor time
TRACE_MAX = 64 * 1024  # characters: an error may quote a record, and a status has to fit into one
FACTS_BYTES_MAX = 2 << 20

_NEWS: Final[dict[News, dict[str, Any]]] = {
    News.STARTED: {"started": pb.Started()},
    News.PAUSED: {"paused": pb.Paused()},
    News.RESUMED: {"resumed": pb.Resumed()},
    News.COMPLETED: {"completed": pb.Completed()},
}


class Voice:
    """Speaks for the task on a seat; 0 is the only one of its process."""

    def __init__(self, say: Callable[[pb.FromTask], None], seat: int = 0) -> None:
        self._say = say
        self._seat = seat
        self._last: tuple[bytes, Problem | None] = (b"{}", None)
        self._reporting = threading.Lock()
        self._over = False

    def announce(self, news: News) -> None:
        """Tell what has become of the task."""
        self._say(pb.FromTask(seat=self._seat, **_NEWS[news]))

    def report(self, control: TaskControl, *, last: bool = False) -> None:
        """Tell what is new; after the last report there is none."""
        with self._reporting:
            if self._over:
                return
            self._over = last
            news = (_facts(control), control.current_problem())
            if news != self._last:
                self._last = news
                self._say(pb.FromTask(seat=self._seat, report=report_to_message(*news)))

    def failed(self, error: BaseException) -> None:
        """Tell what the task has failed of."""
        failed = pb.Failed(trace=trace(error), failure=classify(error).value)
        self._say(pb.FromTask(seat=self._seat, failed=failed))

    def ended(self, code: int) -> None:
        """Tell that nothing of the task runs any more, in a process that goes on."""
        self._say(pb.FromTask(seat=self._seat, ended=pb.Ended(code=code)))


def trace(error: BaseException) -> str:
    """An error as it is told: of any length and any text, it fits."""
    text = trace_of(error).encode("utf-8", "replace").decode()
    if len(text) <= TRACE_MAX:
        return text
    half = TRACE_MAX // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"


def _facts(control: TaskControl) -> bytes:
    reported = dict(control.facts)
    try:
        facts = orjson.dumps(reported, default=str, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:  # one of them is no JSON, such as a very large number: the others are told
        facts = orjson.dumps(
            {name: fact for name, fact in reported.items() if _is_json(name, fact)},
            default=str,
            option=orjson.OPT_NON_STR_KEYS,
        )
    if len(facts) <= FACTS_BYTES_MAX:
        return facts
    return orjson.dumps({"facts-too-large": len(facts)})


def _is_json(name: str, fact: Json) -> bool:
    try:
        orjson.dumps({name: fact}, default=str, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:
        return False
    return True
