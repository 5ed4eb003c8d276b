"""What a replica tells those who have read it to its end, and how often"""

from tests.broker.log.log_world import NOW_MS, LogWorld, batch
from tests.broker.replication.replica_world import image, led
from tests.sim.disk import SimulatedDisk
from tidemill.broker.replication.moved import Moved
from tidemill.broker.replication.replica import Replica


class Session:
    """Somebody who knows all that there is."""

    def __init__(self, replica: Replica, *, of_appends: bool = False) -> None:
        self.heard: list[Moved] = []
        replica.listen(self.stir, of_appends=of_appends)

    def stir(self, moved: Moved) -> None:
        self.heard.append(moved)


def shared() -> Replica:
    """One that another broker copies."""
    return led(LogWorld(SimulatedDisk().root).open(), image(isr=(1, 2), version=1))


async def append(replica: Replica) -> None:
    """A batch of two records, which only this broker has."""
    await replica.log.durable(replica.log.append(batch(2), now_ms=NOW_MS).last_offset)


def fetched(replica: Replica, offset: int) -> None:
    """The follower holds everything below `offset`."""
    end, epoch = replica.log.log_end_offset, replica.machine.leader_epoch
    replica.take(replica.machine.fetched(2, offset, leader_epoch=epoch, log_end=end, now_ms=0))


async def test_a_consumer_hears_once_that_more_is_committed_and_of_no_append() -> None:
    replica = shared()
    consumer = Session(replica)
    await append(replica)
    assert consumer.heard == []
    fetched(replica, 2)
    await append(replica)
    fetched(replica, 4)
    assert (consumer.heard, replica.listening) == ([Moved.COMMITTED], 0)


async def test_by_itself_what_is_durable_is_committed() -> None:
    replica = led(LogWorld(SimulatedDisk().root).open())
    consumer = Session(replica)
    await append(replica)
    assert consumer.heard == [Moved.COMMITTED]


async def test_a_follower_hears_once_of_an_append_also_after_it_has_heard_of_a_commit() -> None:
    replica = shared()
    await append(replica)
    follower = Session(replica, of_appends=True)
    fetched(replica, 2)
    assert (follower.heard, replica.listening) == ([Moved.COMMITTED], 1)
    await append(replica)
    await append(replica)
    assert (follower.heard, replica.listening) == ([Moved.COMMITTED, Moved.APPENDED], 0)
    assert replica.log.on_append is None, "nobody is waited for"


async def test_how_it_is_led_and_where_it_begins_is_told_as_often_as_that_moves() -> None:
    replica = shared()
    await append(replica)
    fetched(replica, 2)
    consumer, follower = Session(replica), Session(replica, of_appends=True)
    replica.assign(image(isr=(1, 2), version=2), now_ms=0)
    replica.log.advance_log_start(1)
    assert consumer.heard == [Moved.OTHER, Moved.OTHER]
    assert follower.heard == [Moved.OTHER, Moved.APPENDED], "who copies has to delete, too"
    replica.retire()
    assert consumer.heard == [Moved.OTHER, Moved.OTHER, Moved.OTHER]


async def test_the_end_of_leadership_and_of_the_log_is_worth_a_look() -> None:
    for end in (
        lambda it: it.assign(image(leader=2, isr=(1, 2), epoch=1, version=2), now_ms=0),
        lambda it: it.log.detach(),
    ):
        replica = shared()
        consumer, follower = Session(replica), Session(replica, of_appends=True)
        end(replica)
        assert Moved.COMMITTED in consumer.heard
        assert Moved.APPENDED in follower.heard


async def test_who_wants_to_hear_no_more_does_not() -> None:
    replica = shared()
    follower = Session(replica, of_appends=True)
    replica.ignore(follower.stir)
    await append(replica)
    fetched(replica, 2)
    assert (follower.heard, replica.listening, replica.log.on_append) == ([], 0, None)
