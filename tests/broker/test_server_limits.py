"""Sharing memory and counting connections, without connections"""

from tidemill.broker.server_limits import ConnectionCounts, RequestMemory, ServerLimits


def test_request_memory_lets_in_what_fits_in_order_and_always_the_first() -> None:
    memory, order = RequestMemory(100), list[str]()
    waiting = {name: (lambda name=name: order.append(name)) for name in "abcd"}
    assert memory.take(500, waiting["a"]), "larger than the whole, but alone"
    assert not memory.take(60, waiting["b"])
    assert not memory.take(60, waiting["c"])
    assert not memory.take(10, waiting["d"]), "no overtaking"
    memory.give_back(500)
    assert (order, memory.held_bytes) == (["b"], 60)
    memory.stop_waiting(waiting["c"])
    memory.give_back(60)
    assert (order, memory.held_bytes) == (["b", "d"], 10)
    memory.give_back(10)
    assert memory.take(100, waiting["a"])


def test_one_that_stops_waiting_is_not_in_the_way_of_smaller_ones() -> None:
    memory, order = RequestMemory(100), list[str]()
    waiting = {name: (lambda name=name: order.append(name)) for name in "abc"}
    assert memory.take(60, waiting["a"])
    assert not memory.take(60, waiting["b"])
    assert not memory.take(10, waiting["c"])
    memory.stop_waiting(waiting["b"])
    assert (order, memory.held_bytes) == (["c"], 70)


class Keeper:
    """Somebody who goes on holding memory until it is wanted back, perhaps a little later."""

    def __init__(self, memory: RequestMemory, size_bytes: int) -> None:
        self.memory = memory
        self.size_bytes = size_bytes
        self.in_use = False
        assert memory.take(size_bytes, self.drop) and memory.keep(self.drop)

    def drop(self) -> None:
        if not self.in_use:
            size_bytes, self.size_bytes = self.size_bytes, 0
            self.memory.give_back(size_bytes, self.drop)


def test_what_is_kept_is_dropped_for_whoever_needs_it_and_no_more_than_that() -> None:
    memory = RequestMemory(100)
    keepers = [Keeper(memory, 30) for _ in range(3)]
    assert memory.keep(keepers[0].drop), "used again, so it is not the next to go"
    assert memory.take(35, lambda: None)
    assert [keeper.size_bytes for keeper in keepers] == [30, 0, 30]
    assert memory.held_bytes == 95
    assert not memory.take(500, lambda: None), "35 are in use"
    assert [keeper.size_bytes for keeper in keepers] == [0, 0, 0]
    assert memory.waiting == 1


def test_what_is_in_use_when_it_is_wanted_is_not_kept_afterwards() -> None:
    memory, order = RequestMemory(100), list[str]()
    keeper = Keeper(memory, 80)
    keeper.in_use = True
    assert not memory.take(50, lambda: order.append("let in"))
    assert memory.held_bytes == 80
    keeper.in_use = False
    assert not memory.keep(keeper.drop)
    keeper.drop()
    assert (order, memory.held_bytes) == (["let in"], 50)
    assert Keeper(memory, 50).size_bytes == 50


def test_counts_of_a_host_are_forgotten_with_its_last_connection() -> None:
    counts, limits = ConnectionCounts(), ServerLimits(max_connections=3, max_connections_per_ip=2)
    assert [counts.enter(host, limits) for host in ("a", "a", "a", "b", "c")] == [True, True, False, True, False]
    counts.leave("a")
    counts.leave("b")
    assert (counts.count, counts.per_host) == (1, {"a": 1})
