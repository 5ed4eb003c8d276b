"""Where to begin: every combination of what is stored and what the slot says"""

from typing import Any

import pytest

from tidemill.connect.api import Fatal, RetryAfter
from tidemill.connect.plugins.postgres.catalog import Server, Slot
from tidemill.connect.plugins.postgres.progress import Lineage, StoredPosition
from tidemill.connect.plugins.postgres.startup import Finished, Plan, StreamFrom, TakeSnapshot, plan

SERVER = Server(
    version=150000,
    system_id="7",
    timeline=3,
    wal_level="logical",
    superuser=True,
    replication=True,
    wal_insert_lsn=1000,
    in_recovery=False,
)


def slot(**changes: Any) -> Slot:
    values: dict[str, Any] = {
        "name": "s",
        "kind": "logical",
        "plugin": "pgoutput",
        "database": "db",
        "active_pid": None,
        "confirmed_lsn": 100,
        "wal_status": "reserved",
    }
    return Slot(**values | changes)


def stored(
    lsn: int = 100, *, completed: bool = True, system_id: str | None = "7", timeline: int | None = 3
) -> StoredPosition:
    return StoredPosition(
        lsn=lsn, snapshot_completed=completed, lineage=Lineage(system_id=system_id, timeline=timeline)
    )


def decide(
    mode: str = "initial", found: Slot | None = None, position: StoredPosition | None = None, mismatch: str = "strict"
) -> Plan:
    return plan(
        mode=mode,
        mismatch=mismatch,
        slot_name="s",
        database="db",
        server=SERVER,
        slot=found,
        stored=position,
        history={1: 50, 2: 100},
    )


@pytest.mark.parametrize("mode", ["initial", "always", "when_needed"])
@pytest.mark.parametrize("position", [None, stored(completed=False)])
def test_without_a_finished_snapshot_one_is_taken(mode: str, position: StoredPosition | None) -> None:
    assert decide(mode, None, position) == TakeSnapshot(create_slot=True)
    assert decide(mode, slot(), position) == TakeSnapshot(create_slot=False)


def test_always_means_always() -> None:
    assert decide("always", slot(), stored()) == TakeSnapshot(create_slot=False)


def test_initial_only_ends_with_the_snapshot() -> None:
    assert decide("initial_only") == TakeSnapshot(create_slot=True, then_stream=False)
    assert decide("initial_only", None, stored()) == Finished()


def test_no_data_streams_at_once() -> None:
    assert decide("no_data") == StreamFrom(lsn=None, create_slot=True)
    assert decide("no_data", slot()) == StreamFrom(lsn=None)


def test_the_stream_goes_on_where_it_was_stored() -> None:
    assert decide("initial", slot(confirmed_lsn=90), stored(100)) == StreamFrom(lsn=100)
    assert decide("initial", slot(confirmed_lsn=100), stored(100, system_id=None)) == StreamFrom(lsn=100)


@pytest.mark.parametrize(
    ("found", "position", "reason"),
    [
        (None, stored(), "slot s is gone"),
        (slot(confirmed_lsn=101), stored(100), "ahead of the stored offset"),
        (slot(wal_status="lost"), stored(), "lost WAL"),
        (slot(), stored(system_id="8"), "of server 8, but this is 7"),
        (slot(), stored(2000), "restored from an older state"),
        (slot(), stored(100, timeline=1), "promoted to timeline 3"),
        (slot(), stored(100, timeline=4), "another branch"),
    ],
)
def test_a_gap_stops_the_connector_and_says_what_to_do(
    found: Slot | None, position: StoredPosition, reason: str
) -> None:
    with pytest.raises(Fatal, match=reason) as caught:
        decide("initial", found, position)
    assert "snapshot.mode=when_needed" in str(caught.value)
    assert isinstance(decide("when_needed", found, position), TakeSnapshot)


@pytest.mark.parametrize("timeline", [None, 2, 3])
def test_a_promoted_standby_goes_on_where_the_primary_was(timeline: int | None) -> None:
    assert decide("initial", slot(), stored(100, timeline=timeline)) == StreamFrom(lsn=100)


def test_a_slot_that_is_being_made_is_waited_for() -> None:
    with pytest.raises(RetryAfter, match="being made by process 9"):
        decide("initial", slot(confirmed_lsn=None, active_pid=9))


def test_a_lost_slot_is_replaced() -> None:
    assert decide("when_needed", slot(wal_status="lost"), stored()) == TakeSnapshot(create_slot=True, drop_slot=True)
    with pytest.raises(Fatal, match="drop it"):
        decide("no_data", slot(wal_status="lost"))


@pytest.mark.parametrize("mismatch", ["trust_slot", "trust_greater_lsn", "no_validation"])
def test_a_slot_that_is_ahead_may_be_trusted(mismatch: str) -> None:
    assert decide("initial", slot(confirmed_lsn=150), stored(100), mismatch) == StreamFrom(lsn=150)
    assert decide("initial", slot(confirmed_lsn=50), stored(100), mismatch) == StreamFrom(lsn=100)


@pytest.mark.parametrize(
    "found", [slot(plugin="wal2json"), slot(kind="physical", plugin=None, database=None), slot(database="other")]
)
def test_somebody_elses_slot_is_left_alone(found: Slot) -> None:
    with pytest.raises(Fatal, match=r"another slot\.name"):
        decide("initial", found)
