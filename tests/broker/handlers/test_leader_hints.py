"""Who leads, beside the answer that this broker does not"""

import uuid

import pytest

from tests.broker.handlers.five_brokers import cluster, context
from tidemill.broker.endpoints import Endpoint
from tidemill.broker.handlers.leader_hints import HINTS_FROM, NOBODY, LeaderHints, Leading
from tidemill.broker.handlers.produce_answer import produce_response
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaStorageError, NotLeaderOrFollower
from tidemill.core.types import ZERO_UUID
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.framing import decode_response, encode_response
from tidemill.core.wire.messages.produce import ProduceResponse

ELSEWHERE = ErrorCode.NOT_LEADER_OR_FOLLOWER
T_ID = uuid.UUID(int=1)
LED_BY_2 = Leading(2, 7)


def hints(listener: str = "EXTERNAL", missed: tuple[int, ...] = ()) -> LeaderHints:
    return LeaderHints(cluster(missed=missed), context(HINTS_FROM, listener))


@pytest.mark.parametrize("error", [ELSEWHERE, ErrorCode.FENCED_LEADER_EPOCH])
@pytest.mark.parametrize(("name", "topic_id"), [("t", ZERO_UUID), ("", T_ID)])
def test_the_leader_is_named_and_where_the_client_finds_it(error: ErrorCode, name: str, topic_id: uuid.UUID) -> None:
    found = hints()
    assert found.beside(error, name, topic_id, 1) == LED_BY_2
    assert found.beside(error, name, topic_id, 1) == LED_BY_2
    assert found.endpoints == (Endpoint(2, "external-2", 9002, "b"),)


@pytest.mark.parametrize(
    ("what", "index"),
    [("this broker leads", 0), ("no such listener", 3), ("not registered", 4), ("nobody leads", 5), ("not there", 6)],
)
def test_nobody_is_named_whom_the_client_cannot_turn_to(what: str, index: int) -> None:
    found = hints()
    assert found.beside(ELSEWHERE, "t", ZERO_UUID, index) == NOBODY, what
    assert found.beside(ELSEWHERE, "unknown", ZERO_UUID, 1) == NOBODY
    assert found.endpoints == ()


def test_a_leader_that_has_just_gone_is_not_named() -> None:
    assert hints(missed=(2,)).beside(ELSEWHERE, "t", ZERO_UUID, 1) == NOBODY


def test_other_errors_say_nothing_of_leaders() -> None:
    found = hints()
    assert found.beside(ErrorCode.KAFKA_STORAGE_ERROR, "t", ZERO_UUID, 1) == NOBODY
    assert found.endpoints == ()


@pytest.mark.parametrize("version", [HINTS_FROM - 1, HINTS_FROM, 12])
def test_a_response_says_it_in_the_versions_that_can(version: int) -> None:
    errors = [NotLeaderOrFollower("no"), KafkaStorageError("no")]
    response = produce_response([("t", ZERO_UUID, (1, 3))], (None, None), errors, hints())
    encoded = b"".join(encode_response(ApiKey.PRODUCE, version, 7, response))
    _, decoded = decode_response(ApiKey.PRODUCE, version, encoded[4:])
    assert isinstance(decoded, ProduceResponse)
    told = [
        Leading(row.current_leader.leader_id, row.current_leader.leader_epoch)
        for row in decoded.responses[0].partition_responses
    ]
    assert told == ([LED_BY_2, NOBODY] if version >= HINTS_FROM else [NOBODY, NOBODY])
    assert [each.node_id for each in decoded.node_endpoints] == ([2] if version >= HINTS_FROM else [])
