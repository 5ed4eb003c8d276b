"""The rejection table, asked of a running broker of ours and of a real Apache Kafka

The same bytes over the same Produce request; each answers with the code the table has for it, and afterwards a topic
that got nothing but bad batches is empty.
"""

import socket
import struct
import time
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.peers import Peer
from tests.broker.log.rejection_table import NONE, REJECTIONS, Rejection
from tidemill.core.error_code import ErrorCode
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.framing import decode_response, encode_request
from tidemill.core.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidemill.services import Service

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

NO_LEADER_YET = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
"""A broker lists a new topic a moment before it leads it; no row of the table expects either."""

LEADER_WITHIN_S = 20


def receive(stream: socket.socket) -> bytes:
    """One frame without its size."""
    file = stream.makefile("rb")
    (size,) = struct.unpack(">i", file.read(4))
    return file.read(size)


class Asker:
    """One broker and a topic for every combination of settings and verdict."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._admin = AdminClient({"bootstrap.servers": address})
        self._topics: dict[tuple[object, ...], str] = {}

    def topic(self, row: Rejection, accepted: bool) -> str:
        key = (accepted, *sorted(row.settings.items()))
        if key not in self._topics:
            name = f"rejections-{uuid.uuid4().hex[:10]}"
            self._admin.create_topics([NewTopic(name, 1, 1, config=row.settings)])[name].result(30)
            while name not in self._admin.list_topics(timeout=10).topics:
                time.sleep(0.05)
            self._topics[key] = name
        return self._topics[key]

    def ask(self, row: Rejection, accepted: bool) -> int:
        """The error code that the batch is answered with."""
        partition = PartitionProduceData(index=0, records=row.batch)
        data = TopicProduceData(name=self.topic(row, accepted), partition_data=(partition,))
        request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=(data,))
        frame = encode_request(ApiKey.PRODUCE, row.version, 1, "test", request)
        deadline = time.monotonic() + LEADER_WITHIN_S
        while (code := self._send(frame, row.version)) in NO_LEADER_YET and time.monotonic() < deadline:
            time.sleep(0.05)
        return code

    def _send(self, frame: bytes, version: int) -> int:
        host, _, port = self.address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=20) as stream:
            stream.sendall(frame)
            _, answer = decode_response(ApiKey.PRODUCE, version, receive(stream))
        return int(answer.responses[0].partition_responses[0].error_code)

    def check(self, code_of: Callable[[Rejection], int]) -> None:
        """Every row has its code, and topics of refused batches hold nothing."""
        different = {
            row.name: (code_of(row), found)
            for row in REJECTIONS
            if (found := self.ask(row, code_of(row) == NONE)) != code_of(row)
        }
        assert different == {}
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": "ends"})
        try:
            ends = {
                topic: consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1]
                for (accepted, *_), topic in self._topics.items()
                if not accepted
            }
        finally:
            consumer.close()
        assert ends and set(ends.values()) == {0}


def test_our_broker_answers_every_bad_batch_as_the_table_says(tidemill_broker: Service) -> None:
    Asker(tidemill_broker.facts["address"]).check(lambda row: row.code)


@pytest.mark.java
@pytest.mark.kafka_peer
def test_apache_kafka_answers_every_bad_batch_as_the_table_says(kafka_peer: tuple[str, Peer]) -> None:
    Asker(kafka_peer[0]).check(lambda row: row.kafka_code)
