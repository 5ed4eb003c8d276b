"""How patient a member of the quorum is

Kafka's settings, under the names and with the defaults that it gives them: `controller.quorum.election.timeout.ms` and
its neighbours; the others are constants there.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumSettings:
    """Times in milliseconds, sizes in bytes; raises ValueError where one of them is not positive."""

    election_timeout_ms: int = 1000
    """The least that an election may take before another one begins; the most is twice that."""
    fetch_timeout_ms: int = 2000
    """So long without an answer of the leader, and a follower looks for another one."""
    election_backoff_max_ms: int = 1000
    """The most that somebody waits who has lost an election."""
    request_timeout_ms: int = 2000
    """So long without an answer, and the request is sent again."""
    retry_backoff_ms: int = 20
    """Between a request that failed and the next one to the same node."""
    fetch_wait_max_ms: int = 500
    """So long a leader holds a fetch that has nothing to get."""
    fetch_bytes_max: int = 8 * 2**20
    """Asked for, and sent whatever was asked for, unless one batch is larger."""
    snapshot_bytes_max: int = 8 * 2**20
    """The same, of a snapshot."""
    observer_session_ms: int = 300_000
    """So long a leader remembers somebody who is no voter and does not fetch any more."""
    voter_change_max_ms: int = 28_000
    """The longest that a change of the voters is waited for, which keeps others from being begun: less than a broker
    waits for the active controller's answer to a client."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}")

    @property
    def check_quorum_timeout_ms(self) -> int:
        """So long a leader goes on of which a majority has not fetched."""
        return self.fetch_timeout_ms * 3 // 2
