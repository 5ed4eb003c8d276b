"""Heartbeats: when they are due, and what they carry"""

from collections.abc import Callable

from tidemill.connect.plugins.postgres.assignment import Assignment
from tidemill.connect.plugins.postgres.heartbeats import Heartbeats
from tidemill.connect.plugins.postgres.progress import KeptAlive, Lineage, Progress
from tidemill.core.runtime.clock import ManualClock

CONFIG = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "t"}


def progress() -> Progress:
    made = Progress(lsn=100, lineage=Lineage(), keepalive_interval_ms=1000)
    made.step(KeptAlive(wal_end=200))
    return made


def test_one_is_due_now_and_then_and_carries_the_offset(assigned: Callable[..., Assignment]) -> None:
    clock = ManualClock()
    beats = Heartbeats(assigned(CONFIG | {"heartbeat.interval.ms": "1000"}, clock=clock))
    [beat] = beats.take(progress())
    assert beat.topic == "__debezium-heartbeat.t"
    assert beat.offset is not None and beat.offset["lsn"] == 200
    clock.advance(999)
    assert beats.take(progress()) == []
    clock.advance(1)
    assert len(beats.take(progress())) == 1


def test_none_is_due_by_default(assigned: Callable[..., Assignment]) -> None:
    assert Heartbeats(assigned(CONFIG)).take(progress()) == []
