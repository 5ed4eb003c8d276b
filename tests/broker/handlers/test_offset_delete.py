"""OffsetDelete on the wire, and what is left of the offsets after a restart."""

from pathlib import Path

from tests.broker.broker_world import WireClient, broker_and_client
from tidemill.broker.handlers.groups import GROUP_KEY
from tidemill.broker.quorum.metadata import NewTopic
from tidemill.core.error_code import ErrorCode
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.find_coordinator import FindCoordinatorRequest
from tidemill.core.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidemill.core.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidemill.core.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

READS_T = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"


async def delete(client: WireClient, group: str, **topics: tuple[int, ...]) -> OffsetDeleteResponse:
    request = OffsetDeleteRequest(
        group_id=group,
        topics=tuple(
            OffsetDeleteRequestTopic(
                name=name,
                partitions=tuple(OffsetDeleteRequestPartition(partition_index=index) for index in partitions),
            )
            for name, partitions in topics.items()
        ),
    )
    response: OffsetDeleteResponse = await client.ask(ApiKey.OFFSET_DELETE, 0, request)
    return response


def codes(response: OffsetDeleteResponse) -> dict[str, list[tuple[int, int]]]:
    return {
        topic.name: [(entry.partition_index, entry.error_code) for entry in topic.partitions]
        for topic in response.topics
    }


async def commit(client: WireClient, group: str, *topics: str) -> None:
    found = await client.ask(ApiKey.FIND_COORDINATOR, 0, FindCoordinatorRequest(key=group, key_type=GROUP_KEY))
    assert found.error_code == 0
    offset = OffsetCommitRequestPartition(partition_index=0, committed_offset=3)
    request = OffsetCommitRequest(
        group_id=group, topics=tuple(OffsetCommitRequestTopic(name=name, partitions=(offset,)) for name in topics)
    )
    response = await client.ask(ApiKey.OFFSET_COMMIT, 8, request)
    assert all(entry.error_code == 0 for topic in response.topics for entry in topic.partitions)


async def test_deleted_offsets_do_not_come_back(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await broker.controller.create_topics([NewTopic(name="t", partitions=2), NewTopic(name="u")])
        await commit(client, "g", "t", "u")
        response = await delete(client, "g", t=(0, 1, 9), x=(0,))
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert response.error_code == 0
        assert codes(response) == {"t": [(0, 0), (1, 0), (9, missing)], "x": [(0, missing)]}
    async with broker_and_client(tmp_path) as (broker, _):
        assert list(await broker.groups.committed_offsets("g")) == [("u", 0)]


async def test_offsets_of_a_topic_that_is_being_read_stay(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await broker.controller.create_topics([NewTopic(name="t"), NewTopic(name="u")])
        await commit(client, "g", "t", "u")
        join = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=READS_T),),
        )
        assert (await client.ask(ApiKey.JOIN_GROUP, 3, join)).error_code == 0
        response = await delete(client, "g", t=(0,), u=(0,))
        assert codes(response) == {"t": [(0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)], "u": [(0, 0)]}
        assert list(await broker.groups.committed_offsets("g")) == [("t", 0)]


async def test_an_error_about_the_group_is_the_whole_answer(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await broker.controller.create_topics([NewTopic(name="t")])
        for group, code in (("nobody", ErrorCode.GROUP_ID_NOT_FOUND), ("", ErrorCode.INVALID_GROUP_ID)):
            response = await delete(client, group, t=(0,))
            assert (response.error_code, response.topics) == (code, ())
