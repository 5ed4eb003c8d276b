"""Calls among nodes as bytes, and the version that two of them share"""

import pytest

from tidemill.broker.quorum.transport import (
    Call,
    Unreachable,
    Versions,
    VersionUnknown,
    decode_answer,
    decode_call,
    encode_answer,
    encode_call,
)
from tidemill.core.client.connection import Address
from tidemill.core.wire.codec import DecodeError
from tidemill.core.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from tidemill.core.wire.messages.vote import PartitionData, TopicData, VoteRequest, VoteResponse

HERE = Address("controller-1", 9093)
VOTE = VoteRequest(
    cluster_id="c",
    voter_id=2,
    topics=(TopicData(topic_name="__cluster_metadata", partitions=(PartitionData(replica_epoch=7, pre_vote=True),)),),
)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_request_arrives_as_it_was_sent_as_far_as_its_version_goes(version: int) -> None:
    request, found = decode_call(encode_call(VOTE, version))
    assert isinstance(request, VoteRequest)
    assert (found, request.cluster_id, request.topics[0].partitions[0].replica_epoch) == (version, "c", 7)
    assert request.topics[0].partitions[0].pre_vote is (version >= 2)


def test_an_answer_is_read_by_its_request() -> None:
    answer = BrokerHeartbeatResponse(is_caught_up=True, should_shut_down=True)
    request = BrokerHeartbeatRequest(broker_id=1)
    assert decode_answer(request, 1, encode_answer(answer, 1)) == answer
    with pytest.raises(DecodeError):
        decode_answer(VOTE, 2, encode_answer(answer, 1))


@pytest.mark.parametrize(
    "call", [Call("Vote", b""), Call("Vote", b"\0"), Call("Ballot", b"\0\1"), Call("Vote", b"\0\1x")]
)
def test_what_is_no_request_is_refused(call: Call) -> None:
    with pytest.raises(DecodeError):
        decode_call(call)


def test_who_does_not_know_a_version_says_which_it_does() -> None:
    name, data = encode_call(VOTE, 2)
    with pytest.raises(VersionUnknown) as known:
        decode_call(Call(name, b"\0\x09" + data[2:]))
    assert (str(known.value), VersionUnknown.parse(str(known.value)).last) == ("0-2", 2)
    with pytest.raises(ValueError, match="no range"):
        VersionUnknown.parse("soon")


def test_an_older_node_is_asked_in_what_it_knows_until_it_is_another() -> None:
    versions = Versions()
    assert versions.of(HERE, VOTE) == 2
    versions.take(HERE, VOTE, VersionUnknown(0, 1))
    assert (versions.of(HERE, VOTE), versions.of(Address("other", 1), VOTE)) == (1, 2)
    versions.forget([HERE])
    assert versions.of(HERE, VOTE) == 2


@pytest.mark.parametrize("known", [VersionUnknown(5, 7), VersionUnknown(-2, -1)])
def test_nodes_without_a_version_in_common_say_so(known: VersionUnknown) -> None:
    with pytest.raises(Unreachable, match=r"it knows Vote in versions .*, this node in 0-2"):
        Versions().take(HERE, VOTE, known)


def test_who_goes_on_refusing_what_it_asked_for_is_not_asked_for_ever() -> None:
    versions = Versions()
    versions.take(HERE, VOTE, VersionUnknown(0, 1))
    with pytest.raises(Unreachable):
        versions.take(HERE, VOTE, VersionUnknown(0, 1))
    assert isinstance(VoteResponse(), VoteResponse)
