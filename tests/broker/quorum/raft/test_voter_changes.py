from dataclasses import replace

from tests.broker.quorum.raft.member_world import directory, voter, voters
from tidemill.broker.quorum.raft.messages import AddVoterRequest, RemoveVoterRequest, UpdateVoterRequest
from tidemill.broker.quorum.raft.voter_changes import Refusal, changed_voters
from tidemill.broker.quorum.raft.voters import Voter, VoterSet
from tidemill.core.error_code import ErrorCode
from tidemill.core.types import ZERO_UUID


def add(each: Voter) -> VoterSet | Refusal:
    return changed_voters(voters(1, 2), AddVoterRequest(cluster_id=None, voter=each, timeout_ms=1))


def remove(node_id: int, directory_of: int, among: VoterSet | None = None) -> VoterSet | Refusal:
    request = RemoveVoterRequest(cluster_id=None, node_id=node_id, directory_id=directory(directory_of))
    return changed_voters(among or voters(1, 2), request)


def update(each: Voter) -> VoterSet | Refusal:
    return changed_voters(voters(1, 2), UpdateVoterRequest(cluster_id=None, epoch=1, voter=each))


def error(found: VoterSet | Refusal) -> ErrorCode:
    assert isinstance(found, Refusal)
    return found.error


def test_one_comes() -> None:
    assert add(voter(3)) == voters(1, 2, 3)
    assert error(add(voter(2))) == ErrorCode.DUPLICATE_VOTER
    assert error(add(replace(voter(2), directory_id=directory(9)))) == ErrorCode.DUPLICATE_VOTER
    assert error(add(replace(voter(3), directory_id=ZERO_UUID))) == ErrorCode.INVALID_REQUEST
    assert error(add(replace(voter(3), endpoints=()))) == ErrorCode.INVALID_REQUEST


def test_one_that_comes_has_the_listener_of_the_others() -> None:
    request = AddVoterRequest(cluster_id=None, voter=voter(3), timeout_ms=1)
    (named,) = [each.name for each in voter(3).endpoints]
    assert changed_voters(voters(1, 2), request, [named, "OTHER"]) == voters(1, 2, 3)
    refused = changed_voters(voters(1, 2), request, ["THEIRS", "OTHER"])
    assert error(refused) == ErrorCode.INVALID_REQUEST
    assert isinstance(refused, Refusal)
    assert f"at listener {named}" in refused.message
    assert "at THEIRS, OTHER" in refused.message


def test_one_goes() -> None:
    assert remove(2, 2) == voters(1)
    assert error(remove(3, 3)) == ErrorCode.VOTER_NOT_FOUND
    assert error(remove(2, 3)) == ErrorCode.VOTER_NOT_FOUND
    assert error(remove(1, 1, voters(1))) == ErrorCode.INVALID_REQUEST


def test_one_has_moved() -> None:
    moved = replace(voter(2), endpoints=voter(3).endpoints)
    assert update(moved) == VoterSet.of([voter(1), moved])
    assert update(voter(2)) == voters(1, 2)
    assert error(update(voter(3))) == ErrorCode.VOTER_NOT_FOUND
    assert error(update(replace(moved, directory_id=directory(9)))) == ErrorCode.VOTER_NOT_FOUND
