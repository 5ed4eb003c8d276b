"""What is being moved is copied at a limited rate, and nothing else"""

from tidemill.broker.replication.throttle import UNLIMITED_BYTES, UNTHROTTLED, RateThrottle, names_replica


def test_a_rate_is_kept_by_waiting() -> None:
    rate = [1000]
    throttle = RateThrottle(lambda: rate[0], lambda topic, number: (topic, number) == ("t", 0))
    assert throttle.pause_ms("t", 0, 50) == 0
    throttle.note("t", 0, 500, 50)
    throttle.note("t", 0, 500, 60)
    throttle.note("t", 1, 10**9, 60)
    assert (throttle.pause_ms("t", 0, 60), throttle.pause_ms("t", 1, 60)) == (991, 0), "a second from the first on"
    assert throttle.pause_ms("t", 0, 1051) == 0
    throttle.note("t", 0, 100, 60_000)
    assert throttle.pause_ms("t", 0, 60_000) == 101, "what was not used is not saved up"
    rate[0] = UNLIMITED_BYTES
    throttle.note("t", 0, 10**12, 70_000)
    assert throttle.pause_ms("t", 0, 70_000) == 0


def test_another_rate_holds_for_what_is_owed_already() -> None:
    rate = [10]
    throttle = RateThrottle(lambda: rate[0], lambda _topic, _number: True)
    throttle.note("t", 0, 1000, 0)
    assert throttle.pause_ms("t", 0, 0) == 100_001
    rate[0] = 1000
    assert throttle.pause_ms("t", 0, 100) == 901
    rate[0] = UNLIMITED_BYTES
    assert throttle.pause_ms("t", 0, 101) == 0


def test_without_one_nobody_waits() -> None:
    UNTHROTTLED.note("t", 0, 10**12, 0)
    assert UNTHROTTLED.pause_ms("t", 0, 0) == 0


def test_replicas_are_named_one_by_one_or_all_at_once() -> None:
    assert names_replica(["0:1", "1:2"], 1, 2)
    assert not names_replica(["0:1", "1:2"], 1, 1)
    assert not names_replica(["11:2"], 1, 2)
    assert names_replica(["*"], 5, 9)


def test_it_owes_nothing_until_more_was_copied_than_its_rate_allows_and_once_that_has_had_its_time() -> None:
    throttle = RateThrottle(lambda: 1000, lambda _topic, number: number == 0)
    assert (UNTHROTTLED.owes, throttle.owes) == (False, False)
    throttle.note("t", 1, 500, 0)
    assert not throttle.owes, "of another partition"
    throttle.note("t", 0, 500, 0)
    assert throttle.owes
    assert (throttle.pause_ms("t", 0, 600), throttle.owes) == (0, False)
