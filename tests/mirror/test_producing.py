"""Which batches go into one request."""

from collections import deque

from tidemill.core.client.connection import Address, Connection
from tidemill.core.types import ZERO_UUID, TopicPartition
from tidemill.mirror.link_events import Produce
from tidemill.mirror.producing import REQUEST_BYTES_MAX, take_request

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
