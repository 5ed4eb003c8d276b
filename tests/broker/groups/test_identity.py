"""Who a request speaks for, and who may not speak for anybody."""

import pytest

from tidemill.broker.groups.events import CommitOffsets, Heartbeat, Protocol, SyncGroup
from tidemill.broker.groups.identity import identity_error, speaker
from tidemill.broker.groups.membership import ClassicGroup, Member
from tidemill.core.error_code import ErrorCode


@pytest.fixture
def group() -> ClassicGroup:
    """Generation 3 with a dynamic member, a static one and an id that was only handed out."""
    group = ClassicGroup("g")
    for member_id, instance in (("dynamic", None), ("static", "one")):
        group.add(
            Member(
                member_id=member_id,
                group_instance_id=instance,
                client_id="c",
                client_host="h",
                session_timeout_ms=1,
                rebalance_timeout_ms=1,
                protocols=(Protocol("range", b""),),
            )
        )
    group.pending_members.add("pending")
    group.generation_id = 3
    return group


CASES = [
    ("dynamic", None, None),
    ("pending", None, None),
    ("static", "one", None),
    ("static", None, None),  # old clients leave the instance out where it is not asked for
    ("stranger", None, ErrorCode.UNKNOWN_MEMBER_ID),
    ("", None, ErrorCode.UNKNOWN_MEMBER_ID),
    ("earlier life", "one", ErrorCode.FENCED_INSTANCE_ID),
    ("dynamic", "one", ErrorCode.FENCED_INSTANCE_ID),
    ("static", "two", ErrorCode.UNKNOWN_MEMBER_ID),
]


@pytest.mark.parametrize(("member_id", "instance", "error"), CASES)
def test_an_id_and_an_instance_have_to_belong_together(
    group: ClassicGroup, member_id: str, instance: str | None, error: ErrorCode | None
) -> None:
    assert identity_error(group, member_id, instance) is error


def heartbeat(group_id: str, member_id: str, generation: int, instance: str | None = None) -> Heartbeat:
    return Heartbeat(
        request_id=1, group_id=group_id, generation_id=generation, member_id=member_id, group_instance_id=instance
    )


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (heartbeat("", "dynamic", 3), ErrorCode.INVALID_GROUP_ID),
        (heartbeat("other", "dynamic", 3), ErrorCode.UNKNOWN_MEMBER_ID),
        (heartbeat("g", "stranger", 3), ErrorCode.UNKNOWN_MEMBER_ID),
        (heartbeat("g", "pending", 3), ErrorCode.UNKNOWN_MEMBER_ID),  # it has not joined
        (heartbeat("g", "earlier life", 3, "one"), ErrorCode.FENCED_INSTANCE_ID),
        (heartbeat("g", "earlier life", 2, "one"), ErrorCode.FENCED_INSTANCE_ID),  # worse than an old generation
        (heartbeat("g", "dynamic", 2), ErrorCode.ILLEGAL_GENERATION),
        (heartbeat("g", "dynamic", 4), ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_the_first_thing_that_is_wrong_is_told(group: ClassicGroup, request_: Heartbeat, error: ErrorCode) -> None:
    _, member, found = speaker({"g": group}, request_)
    assert (member, found) == (None, error)


def test_every_request_of_a_generation_has_a_speaker(group: ClassicGroup) -> None:
    terms = {"request_id": 1, "group_id": "g", "generation_id": 3, "member_id": "static", "group_instance_id": "one"}
    requests = (
        Heartbeat(**terms),  # type: ignore[arg-type]
        SyncGroup(**terms, protocol_type=None, protocol_name=None, assignments=()),  # type: ignore[arg-type]
        CommitOffsets(**terms, retention_ms=-1, offsets=()),  # type: ignore[arg-type]
    )
    for request in requests:
        assert speaker({"g": group}, request) == (group, group.members["static"], ErrorCode.NONE)
