"""Requests and answers for raw batches, through the wire codec."""

import uuid

from tidemill.core.client.batches import (
    FetchWant,
    FoundOffset,
    fetch_answers,
    fetch_request,
    list_offsets_answers,
    list_offsets_request,
    produce_answers,
    produce_request,
)
from tidemill.core.error_code import ErrorCode
from tidemill.core.types import TopicPartition
from tidemill.core.wire.codec import decode, encode
from tidemill.core.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tidemill.core.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidemill.core.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
ID_A, ID_B = uuid.UUID(int=1), uuid.UUID(int=2)


def test_fetch_groups_partitions_by_topic() -> None:
    wants = [FetchWant(A0, 5, 100), FetchWant(B0, 6, 200), FetchWant(A1, 7, 300)]
    request = fetch_request(wants, max_wait_ms=10, min_bytes=1, max_bytes=1000, isolation_level=1)
    read, _ = decode(FetchRequest, 12, encode(request, 12))
    assert [
        (t.topic, [(p.partition, p.fetch_offset, p.partition_max_bytes) for p in t.partitions]) for t in read.topics
    ] == [
        ("a", [(0, 5, 100), (1, 7, 300)]),
        ("b", [(0, 6, 200)]),
    ]
    assert (read.max_wait_ms, read.isolation_level, read.session_id, read.session_epoch) == (10, 1, 0, -1)


def test_fetch_answers_by_id_get_their_names_back() -> None:
    wants = [FetchWant(A0, 5, 100, ID_A), FetchWant(B0, 6, 200, ID_B)]
    request = fetch_request(wants, max_wait_ms=10, min_bytes=1, max_bytes=1000, isolation_level=0)
    read, _ = decode(FetchRequest, 13, encode(request, 13))
    assert [topic.topic_id for topic in read.topics] == [ID_A, ID_B]
    response = FetchResponse(
        responses=(
            FetchableTopicResponse(
                topic_id=ID_B,
                partitions=(
                    PartitionData(
                        partition_index=0,
                        high_watermark=9,
                        last_stable_offset=-1,
                        records=b"data",
                        aborted_transactions=(AbortedTransaction(producer_id=4, first_offset=6),),
                    ),
                ),
            ),
            FetchableTopicResponse(
                topic_id=ID_A, partitions=(PartitionData(partition_index=0, error_code=1, records=None),)
            ),
        )
    )
    answered, _ = decode(FetchResponse, 13, encode(response, 13))
    found = fetch_answers(answered, wants)
    assert [(row.partition, row.error_code, bytes(row.data)) for row in found] == [(B0, 0, b"data"), (A0, 1, b"")]
    assert (found[0].last_stable_offset, found[0].aborted) == (9, ((4, 6),))


def test_produce_carries_one_batch_per_partition() -> None:
    request = produce_request({A0: b"1", B0: memoryview(b"2"), A1: bytearray(b"3")}, timeout_ms=9)
    read, _ = decode(ProduceRequest, 9, encode(request, 9))
    assert (read.acks, read.timeout_ms, read.transactional_id) == (-1, 9, None)
    assert [(t.name, [(p.index, bytes(p.records or b"")) for p in t.partition_data]) for t in read.topic_data] == [
        ("a", [(0, b"1"), (1, b"3")]),
        ("b", [(0, b"2")]),
    ]


def test_produce_by_topic_id() -> None:
    ids = {A0: uuid.UUID(int=1), A1: uuid.UUID(int=2), B0: uuid.UUID(int=3)}
    request = produce_request({A0: b"1", A1: b"2", B0: b"3"}, timeout_ms=9, topic_ids=ids)
    assert [(topic.name, topic.topic_id.int) for topic in request.topic_data] == [("a", 1), ("a", 2), ("b", 3)]
    response = ProduceResponse(
        responses=(
            TopicProduceResponse(
                topic_id=uuid.UUID(int=3), partition_responses=(PartitionProduceResponse(index=0, base_offset=7),)
            ),
        )
    )
    (answer,) = produce_answers(response, ids)
    assert (answer.partition, answer.base_offset) == (B0, 7)


def test_produce_answers_keep_the_servers_words() -> None:
    response = ProduceResponse(
        responses=(
            TopicProduceResponse(
                name="a",
                partition_responses=(
                    PartitionProduceResponse(index=0, base_offset=7, log_start_offset=2),
                    PartitionProduceResponse(
                        index=1,
                        error_code=87,
                        base_offset=-1,
                        record_errors=(BatchIndexAndErrorMessage(batch_index=0, batch_index_error_message="no key"),),
                    ),
                ),
            ),
        )
    )
    answered, _ = decode(ProduceResponse, 9, encode(response, 9))
    good, bad = produce_answers(answered)
    assert (good.partition, good.error_code, good.base_offset, good.log_start_offset) == (A0, 0, 7, 2)
    assert (bad.partition, bad.error_code, bad.message) == (A1, 87, "no key")


def test_offsets_that_are_not_answered_are_unknown() -> None:
    request = list_offsets_request({A0: -1, B0: -2}, isolation_level=1)
    read, _ = decode(ListOffsetsRequest, 7, encode(request, 7))
    assert read.isolation_level == 1
    assert [(t.name, t.partitions[0].timestamp) for t in read.topics] == [("a", -1), ("b", -2)]
    response = ListOffsetsResponse(
        topics=(
            ListOffsetsTopicResponse(
                name="a", partitions=(ListOffsetsPartitionResponse(partition_index=0, offset=12, timestamp=-1),)
            ),
        )
    )
    assert list_offsets_answers(response, [A0, B0]) == {
        A0: FoundOffset(0, 12, -1),
        B0: FoundOffset(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1),
    }
