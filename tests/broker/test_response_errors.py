"""Error codes are found wherever a schema has them."""

from tidemill.broker.response_errors import error_codes
from tidemill.core.wire.messages.api_versions import ApiVersionsResponse
from tidemill.core.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tidemill.core.wire.messages.init_producer_id import InitProducerIdResponse
from tidemill.core.wire.messages.list_groups import ListGroupsResponse
from tidemill.core.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)


def test_none_is_no_error() -> None:
    assert error_codes(ListGroupsResponse()) == []
    assert error_codes(ApiVersionsResponse()) == []


def test_one_for_the_whole_response() -> None:
    assert error_codes(InitProducerIdResponse(error_code=48)) == [48]


def test_each_partition_that_has_one() -> None:
    rows = tuple(PartitionData(partition_index=number, error_code=code) for number, code in enumerate((0, 6, 6, 1)))
    topics = (
        FetchableTopicResponse(topic="t", partitions=rows),
        FetchableTopicResponse(topic="u", partitions=rows[:2]),
    )
    assert error_codes(FetchResponse(error_code=70, responses=topics)) == [70, 6, 6, 1, 6]


def test_however_deep_it_stands() -> None:
    partitions = (OffsetFetchResponsePartitions(partition_index=0, error_code=3),)
    topics = (OffsetFetchResponseTopics(name="t", partitions=partitions),)
    groups = (OffsetFetchResponseGroup(group_id="g", topics=topics, error_code=16),)
    assert sorted(error_codes(OffsetFetchResponse(groups=groups))) == [3, 16]


def test_what_is_no_message_has_none() -> None:
    assert error_codes(object()) == []
