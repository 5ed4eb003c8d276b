"""Heartbeats: records that come even when nothing changes

Sent every `heartbeat.interval.ms`, with the offset, so that readers see how far the capture got. The action query, if
there is one, makes a change in the database itself.
"""

from tidemill.connect.api import EncodedBatch
from tidemill.connect.plugins.postgres.action import HeartbeatAction
from tidemill.connect.plugins.postgres.assignment import Assignment
from tidemill.connect.plugins.postgres.envelope import heartbeat
from tidemill.connect.plugins.postgres.progress import Progress


class Heartbeats:
    """Says when the next one is due, and makes it."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._action = HeartbeatAction(assignment.config)
        self._due_s = 0.0

    def take(self, progress: Progress) -> list[EncodedBatch]:
        """Return the heartbeat that is due, if one is."""
        config, clock = self._assignment.config, self._assignment.clock
        now_s = clock.monotonic()
        if not config.heartbeat_interval_ms or now_s < self._due_s:
            return []
        self._due_s = now_s + config.heartbeat_interval_ms / 1000
        if config.heartbeat_action_query:
            self._assignment.report({"heartbeat-action": self._action.run()})
        key, value = heartbeat(self._assignment.form, clock.now_ms())
        return [
            EncodedBatch(
                topic=config.heartbeat_topic,
                keys=[key],
                values=[value],
                partition=self._assignment.partition,
                offset=progress.offset(),
            )
        ]

    def close(self) -> None:
        """Close the connection of the action."""
        self._action.close()
