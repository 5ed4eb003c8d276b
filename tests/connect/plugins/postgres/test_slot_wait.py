"""Patience with a slot in use: often at first, named, and not for ever"""

from collections.abc import Callable

from psycopg import errors

from tidemill.connect.api import Fatal, RetryAfter
from tidemill.connect.plugins.postgres.assignment import Assignment
from tidemill.connect.plugins.postgres.slot_wait import SlotWait
from tidemill.core.runtime.clock import ManualClock

CONFIG = {
    "database.hostname": "h",
    "database.user": "u",
    "database.dbname": "d",
    "topic.prefix": "t",
    "slot.name": "s",
    "slot.max.retries": "2",
    "slot.retry.delay.ms": "1000",
}
IN_USE = errors.ObjectInUse('replication slot "s" is active for PID 4711')


def test_it_asks_often_at_first_and_gives_up_in_the_end(assigned: Callable[..., Assignment]) -> None:
    clock = ManualClock()
    wait = SlotWait(assigned(CONFIG, clock=clock))
    delays = []
    for _ in range(4):
        refused = wait.refused(IN_USE)
        assert isinstance(refused, RetryAfter)
        delays.append(refused.seconds)
        assert "slot s is in use by process 4711" in str(refused)
    assert delays == [0.25, 0.5, 1.0, 1.0]
    clock.advance(1999)
    assert isinstance(wait.refused(IN_USE), RetryAfter)
    clock.advance(1)
    assert isinstance(wait.refused(IN_USE), Fatal)


def test_a_holder_that_is_not_named(assigned: Callable[..., Assignment]) -> None:
    refused = SlotWait(assigned(CONFIG, clock=ManualClock())).refused(errors.ObjectInUse("occupied"))
    assert "another connection" in str(refused)
