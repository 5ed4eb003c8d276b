"""Which batches go into one request, and when none goes any more."""

import asyncio
import uuid
from collections import deque
from collections.abc import Coroutine, Mapping
from types import MappingProxyType

from tidemill.core.client.batches import RecordBytes
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.client.connection import Address, Connection
from tidemill.core.error_code import ErrorCode
from tidemill.core.types import ZERO_UUID, TopicPartition
from tidemill.core.wire.message import Message
from tidemill.core.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from tidemill.mirror.link_events import Event, Produce, ProduceFailed, Trouble
from tidemill.mirror.producing import REQUEST_BYTES_MAX, REQUESTS_IN_FLIGHT_MAX, Sender, take_request

HERE, OTHER = (Connection(Address("h", port), "test") for port in (1, 2))


class Partition:
    def __init__(self, number: int, connection: Connection | None = HERE) -> None:
        self.target = TopicPartition("t", number)
        self.target_id = ZERO_UUID
        self.connection = connection


def take(queue: deque[tuple[Partition, Produce]]) -> tuple[list[int], list[int]]:
    sent_back: list[int] = []
    work = take_request(queue, HERE, lambda _, produce: sent_back.append(produce.token))
    return [produce.token for _, produce in work], sent_back


def batch(token: int, size: int = 10) -> Produce:
    return Produce(token=token, batch=bytes(size))


def test_one_batch_of_each_partition_in_order() -> None:
    one, two = Partition(1), Partition(2)
    queue = deque([(one, batch(1)), (one, batch(2)), (two, batch(3)), (one, batch(4)), (two, batch(5))])
    assert take(queue) == ([1, 3], [])
    assert take(queue) == ([2, 5], [])
    assert take(queue) == ([4], [])
    assert take(queue) == ([], [])


def test_a_request_has_a_size() -> None:
    half = REQUEST_BYTES_MAX // 2 + 1
    queue = deque((Partition(number), batch(number, half)) for number in range(3))
    assert take(queue) == ([0], [])
    assert take(queue) == ([1], [])


def test_a_batch_above_the_size_goes_alone() -> None:
    queue = deque([(Partition(1), batch(1, 2 * REQUEST_BYTES_MAX)), (Partition(2), batch(2))])
    assert take(queue) == ([1], [])
    assert take(queue) == ([2], [])


def test_nothing_overtakes_within_a_partition() -> None:
    one, two = Partition(1), Partition(2)
    half = REQUEST_BYTES_MAX // 2 + 1
    queue = deque([(one, batch(1, half)), (two, batch(2, half)), (two, batch(3))])
    assert take(queue) == ([1], [])
    assert take(queue) == ([2], [])
    assert take(queue) == ([3], [])


def test_a_partition_that_looked_elsewhere_gets_its_batches_back() -> None:
    queue = deque([(Partition(1, OTHER), batch(1)), (Partition(2), batch(2)), (Partition(3, None), batch(3))])
    assert take(queue) == ([2], [1, 3])


class Slow(ClusterClient):
    """A cluster that reads what it is sent and answers when it is told to."""

    def __init__(self) -> None:
        super().__init__("h:1")
        self.sent: list[asyncio.Future[Message]] = []

    def open_connection(self, node_id: int, lane: str = "") -> Connection:
        return ALWAYS

    def send_produce(
        self,
        connection: Connection,
        batches: Mapping[TopicPartition, RecordBytes],
        topic_ids: Mapping[TopicPartition, uuid.UUID] = MappingProxyType({}),
    ) -> "asyncio.Future[Message]":
        self.sent.append(asyncio.get_running_loop().create_future())
        return self.sent[-1]


class Writable(Connection):
    """Takes what comes."""

    @property
    def writable(self) -> bool:
        return True


ALWAYS = Writable(Address("h", 1), "test")


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def never(work: Coroutine[None, None, None]) -> None:
    raise AssertionError("nothing has to be waited for")


async def test_nothing_is_sent_or_heard_after_the_end() -> None:
    client, heard = Slow(), list[Event]()
    sender: Sender[Partition] = Sender(client, 1, lambda _, event: heard.append(event), never)
    one = Partition(1, ALWAYS)
    for token in range(REQUESTS_IN_FLIGHT_MAX + 3):
        sender.send(one, batch(token))
    await settle()
    assert len(client.sent) == REQUESTS_IN_FLIGHT_MAX
    client.sent[0].set_result(ProduceResponse(responses=[]))
    await settle()
    assert (len(client.sent), len(heard)) == (REQUESTS_IN_FLIGHT_MAX + 1, 1)
    sender.end()
    sender.send(one, batch(100))
    for answer in client.sent[1:]:
        answer.set_result(ProduceResponse(responses=[]))
    await settle()
    assert (len(client.sent), len(heard)) == (REQUESTS_IN_FLIGHT_MAX + 1, 1)


async def test_a_batch_whose_numbers_the_target_had_long_ago_is_not_taken_for_stored() -> None:
    """A mirror that was stopped goes on after another has taken over: what has these numbers may be other records."""
    client, heard = Slow(), list[Event]()
    sender: Sender[Partition] = Sender(client, 1, lambda _, event: heard.append(event), never)
    sender.send(Partition(1, ALWAYS), batch(7))
    await settle()
    row = PartitionProduceResponse(index=1, error_code=ErrorCode.DUPLICATE_SEQUENCE_NUMBER, base_offset=-1)
    client.sent[0].set_result(ProduceResponse(responses=(TopicProduceResponse(name="t", partition_responses=(row,)),)))
    await settle()
    assert isinstance(heard[0], ProduceFailed)
    assert (heard[0].token, heard[0].trouble, heard[0].in_doubt) == (7, Trouble.OUT_OF_ORDER, False)
