"""What another set of voters is asked to be

One voter comes, goes or has moved; which of these may be asked for, and with which of Kafka's errors it is refused.
When a change may begin at all is the leader's affair.
"""

from collections.abc import Collection
from typing import NamedTuple

from tidemill.broker.quorum.raft.leadership import Progress, VoterChange
from tidemill.broker.quorum.raft.messages import AddVoterRequest, ChangeRequest, RemoveVoterRequest
from tidemill.broker.quorum.raft.voters import VoterSet
from tidemill.core.error_code import ErrorCode
from tidemill.core.types import ZERO_UUID


class Refusal(NamedTuple):
    """Why not."""

    error: ErrorCode
    message: str


def why_late(change: VoterChange, fetched: Progress | None, high_watermark: int) -> str:
    """What to say to who has waited as long as it wanted; `fetched` is what is known of a voter to be added."""
    if change.proposed:
        return (
            "the change is in the leader's log and not committed in time; it will be when a majority of the voters has "
            "it: see the quorum's status before asking again"
        )
    assert isinstance(change.request, AddVoterRequest), "only who is added has to catch up"
    voter = change.request.voter
    if fetched is None:
        return (
            f"node {voter.node_id} with this directory does not fetch from the leader: is it running, and is that its "
            "directory.id (meta.properties)?"
        )
    if fetched.end < high_watermark:
        return f"node {voter.node_id} has not caught up in time: it holds {max(fetched.end, 0)} of {high_watermark}"
    where = ", ".join(f"{each.host}:{each.port}" for each in voter.endpoints)
    return f"node {voter.node_id} with this directory does not answer as a controller at {where}"


def changed_voters(voters: VoterSet, request: ChangeRequest, listeners: Collection[str] = ()) -> VoterSet | Refusal:
    """The set that is asked for, which may be the same, or why it cannot be.

    `listeners` are those by which the leader is reached; who comes has to name one of them: the others ask it there.
    """
    if isinstance(request, RemoveVoterRequest):
        if not voters.is_voter(request.node_id, request.directory_id):
            return Refusal(ErrorCode.VOTER_NOT_FOUND, f"node {request.node_id} with this directory is no voter")
        if len(voters) == 1:
            return Refusal(ErrorCode.INVALID_REQUEST, f"node {request.node_id} is the only voter")
        return voters.removing(request.node_id)
    voter = request.voter
    if not voter.endpoints:
        return Refusal(ErrorCode.INVALID_REQUEST, f"no address is given of node {voter.node_id}")
    if isinstance(request, AddVoterRequest):
        if voter.directory_id == ZERO_UUID:
            return Refusal(ErrorCode.INVALID_REQUEST, f"no directory is given of node {voter.node_id}")
        if voter.node_id in voters:
            return Refusal(ErrorCode.DUPLICATE_VOTER, f"node {voter.node_id} is a voter, or one with its id is")
        named = [each.name for each in voter.endpoints]
        if listeners and not set(listeners).intersection(named):
            return Refusal(
                ErrorCode.INVALID_REQUEST,
                f"node {voter.node_id} is given at listener {', '.join(named)}, and controllers listen for one "
                f"another at {', '.join(listeners)}: name that",
            )
        return voters.adding(voter)
    if not voters.is_voter(voter.node_id, voter.directory_id):
        return Refusal(ErrorCode.VOTER_NOT_FOUND, f"node {voter.node_id} with this directory is no voter")
    return voters.updating(voter)
