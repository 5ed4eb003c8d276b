"""Who is where in the group of this worker, as requests want to know it

The seat in the group says who was appointed and who does what; the office says whether this worker, if it was
appointed, may write already. A request asks one object.
"""

from typing import Protocol

from tidemill.connect.herder.office import Office


class Place(Protocol):
    """What is needed of a seat in a group."""

    @property
    def leader_url(self) -> str | None:
        """Where the leader answers."""
        ...

    @property
    def trouble(self) -> tuple[str, int]:
        """What keeps this worker from its group's coordinator, and for how many milliseconds."""
        ...

    def holder_url(self, connector: str, task: int | None = None) -> str | None:
        """Where the worker answers that does a task, or the connector itself."""
        ...


class Whereabouts:
    """The group as one worker knows it; a `request_target.Membership`."""

    def __init__(self, seat: Place, office: Office, url: str) -> None:
        self.url = url
        self._seat = seat
        self._office = office

    @property
    def is_leader(self) -> bool:
        """Whether this worker is in office."""
        return self._office.is_taken

    @property
    def leader_url(self) -> str | None:
        """Where the leader answers, whether it is in office yet or not."""
        return self._seat.leader_url

    def trouble(self) -> str:
        """What keeps this worker from knowing who leads, as a sentence; empty if nothing does."""
        reason, for_ms = self._seat.trouble
        since = f"this worker has not reached its group's coordinator for {for_ms // 1000} s: {reason}"
        return f"{since}; see whether the Kafka cluster answers" if reason else ""

    def holder_url(self, connector: str, task: int | None) -> str | None:
        """Where the worker answers that does a task, or with None the connector itself."""
        return self._seat.holder_url(connector, task)
