"""Sessions of a task: one follows the other while something is away

What is away is the plugin's other system (`NotConnected`) or the Kafka client (`ClientLost`). A session that works
again calls `healthy`, and the pauses start over.
"""

from collections.abc import Callable

from structlog.typing import FilteringBoundLogger

from tidemill.connect.api import NotConnected
from tidemill.connect.tasks.backoff import Backoff
from tidemill.connect.tasks.control import TaskControl
from tidemill.connect.tasks.kafka_clients import ClientLost

ABOUT = "connection"
"""The problem of a task between two sessions."""

RETRYING = "retry"
"""The problem of a call that the plugin wants to be repeated."""


class Sessions:
    """Runs sessions until one ends by itself or the task is to stop; `name` is the task's, for the log."""

    def __init__(self, name: str, control: TaskControl, log: FilteringBoundLogger) -> None:
        self._name = name
        self._control = control
        self._log = log
        self._backoff = Backoff()

    def run(self, session: Callable[[], None]) -> None:
        """Return after a stop or when a session returns; raise what makes the task fail."""
        while not self._control.stopping:
            try:
                session()
                return
            except (NotConnected, ClientLost) as error:
                if self._control.stopping:
                    return
                delay_s = self._backoff.next_s()
                self._log.warning("not connected", task=self._name, error=str(error), retry_s=delay_s)
                self._control.problem(ABOUT, str(error), retry_s=delay_s)
                self._control.wait(delay_s)
                self._control.hold_while_paused(ABOUT)

    def healthy(self) -> None:
        """The session at hand has what it needs."""
        if self._backoff.attempts:
            self._log.info("connected again", task=self._name)
            self._backoff.reset()
        self._control.problem(ABOUT, None)
