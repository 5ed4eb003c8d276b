"""What members of the quorum say to one another

Kafka's requests and answers, as values: Vote (52), BeginQuorumEpoch (53), EndQuorumEpoch (54), Fetch (1) and
FetchSnapshot (59) of the one partition of the metadata log, AddRaftVoter (80), RemoveRaftVoter (81), UpdateRaftVoter
(82). Their bytes are Kafka's too, which is the transport's affair.

Every answer says the epoch and the leader that the one who answers knows (-1 is none), so that whoever is behind learns
of it, whatever it has asked.
"""

import uuid
from dataclasses import dataclass
from typing import TypeAlias

from tidemill.broker.quorum.raft.election import NOBODY
from tidemill.broker.quorum.raft.log_view import Divergence
from tidemill.broker.quorum.raft.voters import Voter, VoterEndpoint
from tidemill.broker.quorum.snapshot import SnapshotId
from tidemill.core.error_code import ErrorCode
from tidemill.core.types import ZERO_UUID

UNKNOWN_OFFSET = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest:
    """Vote for me in this epoch; of a pre-vote (KIP-996): would you, if I began the next one?

    `voter_id` and `voter_directory_id` are whom it is meant for, -1 where the sender does not say.
    """

    cluster_id: str | None
    epoch: int
    candidate_id: int
    candidate_directory_id: uuid.UUID
    last_epoch: int
    end_offset: int
    pre_vote: bool
    voter_id: int = NOBODY
    voter_directory_id: uuid.UUID = ZERO_UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginQuorumEpochRequest:
    """I lead this epoch: fetch from me."""

    cluster_id: str | None
    epoch: int
    leader_id: int
    leader_endpoints: tuple[VoterEndpoint, ...] = ()
    voter_id: int = NOBODY
    voter_directory_id: uuid.UUID = ZERO_UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class EndQuorumEpochRequest:
    """I lead no more: elect another one, best the first of these."""

    cluster_id: str | None
    epoch: int
    leader_id: int
    preferred_candidates: tuple[tuple[int, uuid.UUID], ...] = ()
    leader_endpoints: tuple[VoterEndpoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest:
    """What comes at `offset`? All below is durable with me, and its last entry is of `last_epoch`.

    `high_watermark` is the one that the follower knows (KIP-1166), -1 where it does not say.
    """

    cluster_id: str | None
    epoch: int
    replica_id: int
    replica_directory_id: uuid.UUID
    offset: int
    last_epoch: int
    high_watermark: int = UNKNOWN_OFFSET
    bytes_max: int
    wait_max_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotRequest:
    """The bytes of this snapshot from `position` on."""

    cluster_id: str | None
    epoch: int
    replica_id: int
    replica_directory_id: uuid.UUID
    snapshot_id: SnapshotId
    position: int
    bytes_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddVoterRequest:
    """Make a voter of one that follows; answered when that is committed, or as soon as it is in the leader's log.

    The leader waits for it no longer than `QuorumSettings.voter_change_max_ms`, whatever is asked for.
    """

    cluster_id: str | None
    voter: Voter
    timeout_ms: int
    ack_when_committed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveVoterRequest:
    """Let it be a voter no more; answered when that is committed."""

    cluster_id: str | None
    node_id: int
    directory_id: uuid.UUID
    timeout_ms: int = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateVoterRequest:
    """My listeners and versions are these now; from a voter to its leader, answered when it is in the leader's log."""

    cluster_id: str | None
    epoch: int
    voter: Voter
    timeout_ms: int = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochResponse:
    """To BeginQuorumEpoch, EndQuorumEpoch and changes of the voters; `message` says more of what is wrong."""

    error: ErrorCode = ErrorCode.NONE
    epoch: int
    leader_id: int
    leader_endpoints: tuple[VoterEndpoint, ...] = ()
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteResponse:
    """To Vote."""

    error: ErrorCode = ErrorCode.NONE
    epoch: int
    leader_id: int
    leader_endpoints: tuple[VoterEndpoint, ...] = ()
    granted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponse:
    """To Fetch: records, or where the logs part, or the snapshot to get first."""

    error: ErrorCode = ErrorCode.NONE
    epoch: int
    leader_id: int
    leader_endpoints: tuple[VoterEndpoint, ...] = ()
    high_watermark: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    diverging: Divergence | None = None
    snapshot_id: SnapshotId | None = None
    records: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotResponse:
    """To FetchSnapshot: some bytes of so many."""

    error: ErrorCode = ErrorCode.NONE
    epoch: int
    leader_id: int
    leader_endpoints: tuple[VoterEndpoint, ...] = ()
    snapshot_id: SnapshotId | None = None
    size: int = 0
    position: int = 0
    data: bytes = b""


ChangeRequest: TypeAlias = AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest
Request: TypeAlias = (
    VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest | FetchRequest | FetchSnapshotRequest | ChangeRequest
)
Response: TypeAlias = VoteResponse | EpochResponse | FetchResponse | FetchSnapshotResponse
