"""What a member of the quorum is told

By its peers, by its clock, and by whoever keeps its log.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TypeAlias

from tidemill.broker.quorum.raft.messages import Request, Response
from tidemill.broker.quorum.raft.voters import VoterSet
from tidemill.broker.quorum.snapshot import SnapshotId


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Nothing but the time. The first event of a machine, and due at its next deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """Somebody asks; the answer goes out under this token, which is used once."""

    token: Hashable
    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The answer to a request that the machine has sent."""

    request_id: int
    response: Response


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """There will be no answer to this request; `refused` where nobody listens for it, as far as that can be told."""

    request_id: int
    refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChanged:
    """The log has grown, or more of it is durable, or it was cut as asked: the view says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRefused:
    """What was fetched could not be stored (it is damaged, the disk is full); the log is as before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VotersChanged:
    """The log has a set of voters at this offset. Told before the LogChanged of the same bytes.

    Also at a start, for each one that the log holds, oldest first; of a snapshot the offset before its end.
    """

    offset: int
    voters: VoterSet


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotInstalled:
    """The log begins and ends with this snapshot now, durably; the voters in it have been told."""

    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRefused:
    """What came is not the snapshot, or it cannot be stored; the log is as before, or cut below the snapshot's end."""

    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True, kw_only=True)
class Resign:
    """Lead no more: this node is about to go, or somebody else shall lead (then `successor` is its id)."""

    successor: int | None = None


Event: TypeAlias = (
    Tick
    | Received
    | Answered
    | Failed
    | LogChanged
    | AppendRefused
    | VotersChanged
    | SnapshotInstalled
    | SnapshotRefused
    | Resign
)
