"""The decisions of one life: what is stored, made and streamed, in which order"""

from typing import Any

import pytest

from tidemill.connect.plugins.postgres.catalog import Server, Slot
from tidemill.connect.plugins.postgres.life import (
    SNAPSHOTS_MAX,
    AllRead,
    Announce,
    Announced,
    Complete,
    DropSlot,
    Enter,
    Entered,
    Finish,
    Found,
    GiveUp,
    Life,
    LifeSettings,
    Look,
    Looked,
    MakeSlot,
    Read,
    SlotMade,
    Stream,
)
from tidemill.connect.plugins.postgres.progress import Lineage, StoredPosition

LINEAGE = Lineage(system_id="7", timeline=1)
SERVER = Server(
    version=150000,
    system_id="7",
    timeline=1,
    wal_level="logical",
    superuser=True,
    replication=True,
    wal_insert_lsn=1000,
    in_recovery=False,
)


def life(mode: str = "initial") -> Life:
    return Life(LifeSettings(mode=mode, mismatch="strict", slot_name="s", database="db"))


def slot(confirmed_lsn: int = 100, wal_status: str = "reserved") -> Slot:
    return Slot(
        name="s",
        kind="logical",
        plugin="pgoutput",
        database="db",
        active_pid=None,
        confirmed_lsn=confirmed_lsn,
        wal_status=wal_status,
    )


def found(there: Slot | None = None, stored: StoredPosition | None = None) -> Found:
    return Found(server=SERVER, slot=there, stored=stored)


def stored(lsn: int, *, completed: bool = True) -> StoredPosition:
    return StoredPosition(lsn=lsn, snapshot_completed=completed, lineage=LINEAGE)


def entered(lsn: int) -> Entered:
    return Entered(lsn=lsn, xid=5, time_us=6)


def offset(lsn: int, *, completed: bool) -> dict[str, Any]:
    return {
        "last_snapshot_record": completed,
        "lsn": lsn,
        "txId": 5,
        "ts_usec": 6,
        "snapshot": "INITIAL",
        "snapshot_completed": completed,
        "system_id": "7",
        "timeline": 1,
    }


def test_the_first_life_makes_the_slot_and_reads_from_its_snapshot() -> None:
    subject = life()
    assert subject.step(found()) == [Enter(make_slot=True)]
    assert subject.step(entered(100)) == [Look()]
    assert subject.step(Looked(changed=None)) == [Read(offset=offset(100, completed=False))]
    assert subject.step(AllRead()) == [Complete(offset=offset(100, completed=True)), Stream(lsn=100)]


@pytest.mark.parametrize("before", [None, stored(100, completed=False)])
def test_a_life_after_an_interrupted_snapshot_streams_from_where_the_slot_stands(before: StoredPosition | None) -> None:
    subject = life()
    assert subject.step(found(slot(100), before)) == [Enter(make_slot=False)]
    subject.step(entered(300))
    assert subject.step(Looked(changed=None)) == [Read(offset=offset(100, completed=False))]
    assert subject.step(AllRead()) == [Complete(offset=offset(100, completed=True)), Stream(lsn=100)]


def test_tables_that_changed_are_read_at_a_later_moment_and_the_slot_stays() -> None:
    subject = life()
    subject.step(found())
    subject.step(entered(100))
    assert subject.step(Looked(changed="table a")) == [Enter(make_slot=False)]
    subject.step(entered(200))
    assert subject.step(Looked(changed=None)) == [Read(offset=offset(100, completed=False))]
    assert subject.step(AllRead())[-1] == Stream(lsn=100)


def test_tables_that_always_change_end_the_life() -> None:
    subject = life()
    subject.step(found())
    for number in range(SNAPSHOTS_MAX - 1):
        subject.step(entered(100 + number))
        assert subject.step(Looked(changed="table a")) == [Enter(make_slot=False)]
    subject.step(entered(900))
    [given_up] = subject.step(Looked(changed="table a"))
    assert isinstance(given_up, GiveUp)
    assert "table a" in given_up.reason


@pytest.mark.parametrize(
    ("mode", "there", "drop", "make"),
    [
        ("always", slot(100), False, False),
        ("when_needed", None, False, True),
        ("when_needed", slot(100, "lost"), True, True),
        ("when_needed", slot(150), False, False),
    ],
)
def test_a_complete_offset_is_overwritten_before_the_slot_is_touched(
    mode: str, there: Slot | None, drop: bool, make: bool
) -> None:
    subject = life(mode)
    [announce] = subject.step(found(there, stored(100)))
    assert isinstance(announce, Announce)
    assert announce.offset["snapshot_completed"] is False
    assert announce.offset["lsn"] == 100
    assert subject.step(Announced()) == [*([DropSlot()] if drop else []), Enter(make_slot=make)]


def test_without_a_snapshot_the_new_slot_is_streamed() -> None:
    subject = life("no_data")
    assert subject.step(found()) == [MakeSlot()]
    assert subject.step(SlotMade(lsn=70)) == [Stream(lsn=70)]
    assert life("no_data").step(found(slot(60))) == [Stream(lsn=60)]


def test_the_stream_goes_on_at_the_stored_offset() -> None:
    assert life().step(found(slot(100), stored(120))) == [Stream(lsn=120)]


def test_initial_only_makes_no_slot() -> None:
    subject = life("initial_only")
    assert subject.step(found()) == [Enter(make_slot=False)]
    subject.step(entered(100))
    subject.step(Looked(changed=None))
    assert subject.step(AllRead()) == [Complete(offset=offset(100, completed=True)), Finish()]
    assert life("initial_only").step(found(None, stored(100))) == [Finish()]
