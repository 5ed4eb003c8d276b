"""What a running task is asked to do, and what it says back

Two threads meet here: the one that hears the worker, which sets wishes, and the one that runs the plugin, which looks
at them between two calls into it. The other way go facts, a plain dictionary that the task thread writes and the
reporter reads now and then, and problems: what keeps the task from its work, each until it is said to be over. So a
task that is stuck still shows what it last knew.
"""

import enum
import os
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from tidemill.connect.api import Computing, Json
from tidemill.connect.problem import Problem, joined, shortened
from tidemill.core.runtime.clock import Clock, SystemClock

PATIENCE_S = 3.0
"""For calls that should return at once, such as `poll`; writing a batch may take longer."""


TOLD_S = 2.0
"""Until a call that has taken longer than its patience is a problem that is told."""

STACK_MAX = 4
"""Functions told of a call that does not return, the innermost first."""

PAUSE_CHECK_S = 60.0
"""Between looks at a pause; a wish wakes the wait, so this is only a bound."""

RETRY_MAX_S = 100 * 365 * 86_400.0
"""As far as a next try is told; a plugin that never wants to be called again may ask for any number."""


class News(enum.Enum):
    """What a task announces."""

    STARTED = "started"
    PAUSED = "paused"
    RESUMED = "resumed"
    COMPLETED = "completed"


class _Call(NamedTuple):
    """A call into the plugin that is under way, or what a thread of the plugin's own computes."""

    name: str
    of: str
    began: float
    patience_s: float
    thread: int

    @property
    def subject(self) -> str:
        return f"{self.name} of {self.of}"


class TaskControl:
    """The wishes of the worker and the news of the task."""

    def __init__(
        self,
        announce: Callable[[News], None],
        *,
        paused: bool = False,
        clock: Clock | None = None,
        news: threading.Event | None = None,
    ) -> None:
        self.facts: dict[str, Json] = {}
        self.grace_ms = 0
        self._clock = clock or SystemClock()
        self._problems: dict[str, Problem] = {}
        self._fading: dict[str, float] = {}  # problems that are over at that time unless they are said again
        self._telling = threading.Lock()
        self._call: _Call | None = None
        self._aside: _Call | None = None  # beside calls, which return meanwhile
        self._news = news or threading.Event()  # for the reporter, which tasks of one process may share
        self._announce = announce
        self._changed = threading.Condition()
        self._stop = False
        self._pause = paused
        self._listeners: list[Callable[[], None]] = []
        self._announced: set[News] = set()

    # ------------------------------------------------- called by the listener

    def request_stop(self, grace_ms: int) -> None:
        """Ask the task to end within `grace_ms`."""
        with self._changed:
            if self._stop:
                return
            self.grace_ms = grace_ms
            self._stop = True
            self._changed.notify_all()
        self._tell_listeners()

    def request_pause(self) -> None:
        """Ask the task to stop reading and to hold what it has."""
        self._set_pause(True)

    def request_resume(self) -> None:
        """Ask the task to read on."""
        self._set_pause(False)

    def _set_pause(self, pause: bool) -> None:
        with self._changed:
            if self._pause == pause:
                return
            self._pause = pause
            self._changed.notify_all()
        self._tell_listeners()

    def _tell_listeners(self) -> None:
        for listener in list(self._listeners):
            listener()

    # ---------------------------------------------- called by the task thread

    @property
    def stopping(self) -> bool:
        """Whether the task was asked to end."""
        return self._stop

    @property
    def paused(self) -> bool:
        """Whether the task was asked to hold."""
        return self._pause

    def on_change(self, listener: Callable[[], None]) -> None:
        """Have `listener` called, on the other thread, after every new wish."""
        self._listeners.append(listener)

    def wait(self, seconds: float) -> None:
        """Sleep, but not through a new wish, and not at all when the task is to end."""
        pause = self._pause
        with self._changed:
            self._changed.wait_for(lambda: self._stop or self._pause != pause, min(seconds, threading.TIMEOUT_MAX))

    def wait_while_paused(self, seconds: float) -> None:
        """Sleep until the task is to read on or to end, also if that was said before this call."""
        with self._changed:
            self._changed.wait_for(lambda: self._stop or not self._pause, seconds)

    def report(self, facts: Mapping[str, Json], *, soon: bool = True) -> None:
        """Publish facts; they stay until overwritten. Those that need not be told soon are told with the next look."""
        if not self._has(facts):
            self.facts.update(facts)
            if soon:
                self.call_reporter()

    def _has(self, facts: Mapping[str, Json]) -> bool:
        """Whether all are known; a list or a map that was given before may have been filled since."""
        try:
            return facts.items() <= self.facts.items() and not any(
                isinstance(fact, (dict, list)) and fact is self.facts[name] for name, fact in facts.items()
            )
        except Exception:  # a plugin may report what cannot be compared
            return False

    def problem(self, about: str, message: str | None, *, retry_s: float | None = None) -> None:
        """Say what keeps the task from its work, or with None that it is over; see `api.ReportProblem`."""
        if message is None and about not in self._problems:
            return  # the common case, said after every call that worked
        self._say_problem(about, message, retry_s)
        self.call_reporter()

    def _say_problem(self, about: str, message: str | None, retry_s: float | None) -> None:
        with self._telling:
            self._fading.pop(about, None)
            if message is None:
                self._problems.pop(about, None)
                return
            now_ms = self._clock.now_ms()
            known = self._problems.get(about)
            self._problems[about] = Problem(
                message=shortened(message),
                since_ms=now_ms if known is None else known.since_ms,
                attempts=(0 if known is None else known.attempts) + (retry_s is not None),
                next_try_ms=None if retry_s is None else now_ms + int(min(retry_s, RETRY_MAX_S) * 1000),
            )

    def problem_over_in(self, about: str, seconds: float) -> None:
        """Say that a problem is over unless it is said again within `seconds`."""
        with self._telling:
            if about in self._problems:
                self._problems[about] = replace(self._problems[about], next_try_ms=None)
                self._fading[about] = self._clock.monotonic() + seconds

    def current_problem(self) -> Problem | None:
        """Everything that keeps the task from its work now, told as one."""
        with self._telling:
            now = self._clock.monotonic()
            for about in [about for about, over in self._fading.items() if over <= now]:
                del self._problems[about], self._fading[about]
            if self._problems:
                return joined(self._problems.values())
        call = self._aside or self._call
        if call is None or now - call.began < call.patience_s:
            return None
        what = (
            "gives no record, and computes"
            if call is self._aside
            else "has not returned: it waits for something, or has much to do"
        )
        return Problem(
            message=shortened(f"{call.subject} {what}; it is at {_place(call.thread)}"),
            since_ms=self._clock.now_ms() - int((now - call.began) * 1000),
        )

    def overdue(self, limit_s: float) -> str | None:
        """What is to be said of a call that takes longer than `limit_s`."""
        call = self._aside or self._call
        took_s = 0.0 if call is None else self._clock.monotonic() - call.began
        if call is None or took_s <= limit_s:
            return None
        what = "had given no record" if call is self._aside else "had not returned"
        return f"{call.subject} {what} after {took_s:.0f} s, it was at {_place(call.thread)}"

    def call_reporter(self) -> None:
        """Have the reporter look."""
        if not self._news.is_set():
            self._news.set()

    def wait_for_news(self, interval_s: float) -> None:
        """Sleep until there may be something to tell; called by the reporter.

        What is said wakes it. Only what becomes a problem, or ceases to be one, by the time that passes has to be
        looked for: of a task that rests, about as often as a call may take to be told of.
        """
        self._news.wait(self.look_again_s(interval_s))
        self._news.clear()

    def look_again_s(self, interval_s: float) -> float:
        """When the reporter has to look, though nothing was said."""
        return interval_s if self._problems else self.quiet_s(interval_s)

    def quiet_s(self, interval_s: float) -> float:
        """How long nothing can become a problem that is to be told."""
        call = self._call
        if call is None:
            return PATIENCE_S + TOLD_S
        left_s = call.began + call.patience_s + TOLD_S - self._clock.monotonic()
        return min(left_s, PATIENCE_S + TOLD_S) if left_s > 0 else interval_s

    def calling(self, name: str, patience_s: float = PATIENCE_S, *, of: str = "the plugin") -> "Calling":
        """Around a call into the plugin, as often as it is made: if it takes longer than `patience_s`, it is told."""
        return Calling(self, f"{name}()", of, patience_s)

    def calls(self, name: str, of: str, patience_s: float) -> None:
        """A call into the plugin begins, on this thread."""
        self._call = _Call(name, of, self._clock.monotonic(), patience_s, threading.get_ident())

    def called(self) -> None:
        """It has returned."""
        self._call = None

    def computes(self, computing: Computing | None) -> None:
        """Say that a thread of the plugin computes, while calls into it return; None that none does."""
        if computing is not None:
            began = self._clock.monotonic() - computing.took_s
            self._aside = _Call("the generator", "the plugin", began, PATIENCE_S, computing.thread)
        elif self._aside is not None:
            self._aside = None

    def announce_start(self) -> None:
        """Say, once, that the plugin runs."""
        if News.STARTED not in self._announced:
            self._announced.add(News.STARTED)
            self._announce(News.STARTED)

    def announce_pause(self, paused: bool) -> None:
        """Say that the task has stopped or begun again to read."""
        self._announce(News.PAUSED if paused else News.RESUMED)

    def hold_while_paused(self, about: str) -> None:
        """Between two tries: a paused task tries nothing, so the problem it had counts no more until it goes on."""
        if not self._pause or self._stop:
            return
        self.problem(about, None)
        self.announce_start()
        self.announce_pause(True)
        while self._pause and not self._stop:
            self.wait_while_paused(PAUSE_CHECK_S)
        if not self._stop:
            self.announce_pause(False)

    def announce_completion(self) -> None:
        """Say that the input has ended."""
        self._announce(News.COMPLETED)


class Calling:
    """A call as a context; no generator, for sources that bring nothing enter it again and again."""

    __slots__ = ("_control", "_name", "_of", "_patience_s")

    def __init__(self, control: TaskControl, name: str, of: str, patience_s: float) -> None:
        self._control = control
        self._name = name
        self._of = of
        self._patience_s = patience_s

    def __enter__(self) -> None:
        self._control.calls(self._name, self._of, self._patience_s)

    def __exit__(self, *failure: object) -> None:
        self._control.called()


def _place(thread: int) -> str:
    """Where a thread is, and who called that; functions of C show as the line that called them."""
    frame = sys._current_frames().get(thread)
    found: list[str] = []
    while frame is not None and len(found) < STACK_MAX:
        code = frame.f_code
        found.append(f"{os.path.basename(code.co_filename)}:{frame.f_lineno} in {code.co_name}")
        frame = frame.f_back
    return ", called from ".join(found) or "its end"
