"""What a member of the quorum wants done, in the order in which it says it

Values only. Whoever does it finishes one before it begins the next, and all before it tells the machine anything: an
answer behind a `Persist` is never ahead of the disk.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TypeAlias

from tidemill.broker.quorum.raft.election import ElectionState
from tidemill.broker.quorum.raft.messages import FetchResponse, FetchSnapshotResponse, Request, Response
from tidemill.broker.quorum.raft.voters import VoterEndpoint, VoterSet
from tidemill.broker.quorum.snapshot import SnapshotId


@dataclass(frozen=True, slots=True, kw_only=True)
class Persist:
    """Have this on the disk before anything else is done. If that fails, the node must stop."""

    state: ElectionState


@dataclass(frozen=True, slots=True, kw_only=True)
class Remember:
    """The log has all again that this node ever said to hold, or what has taken its place: note that, durably."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Ask this node; `node_id` below -1 is a bootstrap server, of which only the address is known."""

    request_id: int
    node_id: int
    endpoints: tuple[VoterEndpoint, ...]
    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Answer whoever waits under this token."""

    token: Hashable
    response: Response


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyWithRecords:
    """Answer with this and what the log has from `offset` on: whole batches, at least one."""

    token: Hashable
    response: FetchResponse
    offset: int
    bytes_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyWithSnapshot:
    """Answer with this and what the snapshot has from `position` on: at least a byte."""

    token: Hashable
    response: FetchSnapshotResponse
    snapshot_id: SnapshotId
    position: int
    bytes_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Put what was fetched at the end of the log, which is at `offset`; then LogChanged, or AppendRefused."""

    offset: int
    records: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncate:
    """Cut the log at `offset`, durably; then LogChanged."""

    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendLeaderChange:
    """Begin this epoch in the log with a LeaderChangeMessage; then LogChanged."""

    epoch: int
    leader_id: int
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendVoters:
    """Append a VotersRecord; then VotersChanged with its offset, before anything else is said, and LogChanged."""

    epoch: int
    voters: VoterSet


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginSnapshot:
    """Make an empty file for this snapshot, and forget any other that is not whole."""

    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSnapshot:
    """Add these bytes to the snapshot that has begun."""

    snapshot_id: SnapshotId
    position: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallSnapshot:
    """It is whole: verify it, put it in place of the log; then VotersChanged, SnapshotInstalled, or SnapshotRefused."""

    snapshot_id: SnapshotId


Action: TypeAlias = (
    Persist
    | Remember
    | Send
    | Reply
    | ReplyWithRecords
    | ReplyWithSnapshot
    | Append
    | Truncate
    | AppendLeaderChange
    | AppendVoters
    | BeginSnapshot
    | StoreSnapshot
    | InstallSnapshot
)
