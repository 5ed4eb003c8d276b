"""What a running task is asked to do, and what it says back

Two threads meet here: the one that hears the worker, which sets wishes, and the one that runs the plugin, which looks
at them between two calls into it. Facts go the other way: a plain dictionary that the task thread writes and the
reporter reads now and then, so a task that is stuck still shows what it last knew.
"""

import enum
import threading
from collections.abc import Callable, Mapping

from tidemill.connect.api import Json


class News(enum.Enum):
    """What a task announces."""

    STARTED = "started"
    PAUSED = "paused"
    RESUMED = "resumed"
    COMPLETED = "completed"


class TaskControl:
    """The wishes of the worker and the news of the task."""

    def __init__(self, announce: Callable[[News], None], *, paused: bool = False) -> None:
        self.facts: dict[str, Json] = {}
        self.grace_ms = 0
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
        """Sleep, but not through a new wish."""
        stop, pause = self._stop, self._pause
        with self._changed:
            self._changed.wait_for(lambda: (self._stop, self._pause) != (stop, pause), seconds)

    def report(self, facts: Mapping[str, Json]) -> None:
        """Publish facts; they stay until overwritten."""
        self.facts.update(facts)

    def announce_start(self) -> None:
        """Say, once, that the plugin runs."""
        if News.STARTED not in self._announced:
            self._announced.add(News.STARTED)
            self._announce(News.STARTED)

    def announce_pause(self, paused: bool) -> None:
        """Say that the task has stopped or begun again to read."""
        self._announce(News.PAUSED if paused else News.RESUMED)

    def announce_completion(self) -> None:
        """Say that the input has ended."""
        self._announce(News.COMPLETED)
