"""Progress: what is confirmed is stored, whatever the order of events"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tidemill.connect.plugins.postgres.progress import (
    Confirm,
    KeptAlive,
    Lineage,
    Offer,
    Progress,
    Stored,
    StoredPosition,
    Tick,
    TransactionBegan,
    TransactionEnded,
    UnreadableOffset,
    read_offset,
    snapshot_offset,
)


def progress(lsn: int = 100, interval_ms: int = 1000) -> Progress:
    return Progress(lsn=lsn, lineage=Lineage(system_id="7", timeline=1), keepalive_interval_ms=interval_ms)


def test_a_transaction_counts_when_it_is_complete() -> None:
    machine = progress()
    machine.step(TransactionBegan(xid=5, commit_time_us=42))
    assert machine.offset()["lsn"] == 100
    machine.step(TransactionEnded(end_lsn=200))
    offset = machine.offset()
    assert offset == {
        "lsn_proc": 200,
        "messageType": "COMMIT",
        "lsn_commit": 200,
        "lsn": 200,
        "txId": 5,
        "ts_usec": 42,
        "system_id": "7",
        "timeline": 1,
    }


def test_nothing_is_confirmed_before_it_is_stored() -> None:
    machine = progress()
    machine.step(TransactionBegan(xid=5, commit_time_us=0))
    machine.step(TransactionEnded(end_lsn=200))
    machine.offset()
    assert machine.confirmed == 100
    assert machine.step(Stored(lsn=200)) == [Confirm(lsn=200)]
    assert machine.step(Stored(lsn=200)) == []


def test_storing_what_was_never_offered_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        progress().step(Stored(lsn=101))


def test_keepalives_are_offered_now_and_then() -> None:
    machine = progress(interval_ms=1000)
    machine.step(KeptAlive(wal_end=500))
    assert machine.step(Tick(now_ms=10_000)) == [], "the first interval begins"
    assert machine.step(Tick(now_ms=10_999)) == []
    [offer] = machine.step(Tick(now_ms=11_000))
    assert isinstance(offer, Offer)
    assert offer.offset["lsn"] == 500
    assert machine.step(Tick(now_ms=20_000)) == [], "nothing new"
    machine.step(KeptAlive(wal_end=501))
    assert len(machine.step(Tick(now_ms=30_000))) == 1


def test_a_keepalive_inside_a_transaction_is_no_progress() -> None:
    machine = progress()
    machine.step(TransactionBegan(xid=5, commit_time_us=0))
    machine.step(KeptAlive(wal_end=900))
    assert machine.position == 100


def test_lag_is_the_age_of_the_transaction_at_hand() -> None:
    machine = progress()
    assert machine.behind_ms(5_000) == 0
    machine.step(TransactionBegan(xid=5, commit_time_us=1_000_000))
    assert machine.behind_ms(5_000) == 4_000
    machine.step(TransactionEnded(end_lsn=200))
    assert machine.behind_ms(9_000) == 0


class ProgressMachine(RuleBasedStateMachine):
    """Any order of events that the server and the runtime may produce."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = progress(lsn=0, interval_ms=10)
        self.wal = 0
        self.now_ms = 0
        self.inside = False
        self.offered: list[int] = []
        self.durable = 0
        self.told = 0

    @precondition(lambda self: not self.inside)
    @rule()
    def begin(self) -> None:
        self.machine.step(TransactionBegan(xid=1, commit_time_us=0))
        self.inside = True

    @precondition(lambda self: self.inside)
    @rule(size=st.integers(1, 50))
    def end(self, size: int) -> None:
        self.wal += size
        self.machine.step(TransactionEnded(end_lsn=self.wal))
        self.inside = False

    @rule(size=st.integers(0, 50))
    def keepalive(self, size: int) -> None:
        if not self.inside:
            self.wal += size
        self.machine.step(KeptAlive(wal_end=self.wal))

    @rule(elapsed_ms=st.integers(0, 30))
    def tick(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms
        self.offered += [
            int(action.offset["lsn"])
            for action in self.machine.step(Tick(now_ms=self.now_ms))
            if isinstance(action, Offer)
        ]

    @rule()
    def hand_over(self) -> None:
        self.offered.append(int(self.machine.offset()["lsn"]))

    @precondition(lambda self: self.offered)
    @rule(data=st.data())
    def store(self, data: st.DataObject) -> None:
        """The runtime stores in order, and may skip to the newest."""
        count = data.draw(st.integers(1, len(self.offered)))
        self.durable = self.offered[count - 1]
        self.offered = self.offered[count:]
        for action in self.machine.step(Stored(lsn=self.durable)):
            assert isinstance(action, Confirm)
            self.told = action.lsn

    @invariant()
    def confirmed_never_passes_stored(self) -> None:
        assert self.told <= self.durable
        assert self.machine.confirmed <= self.machine.stored <= self.machine.offered <= self.machine.position


ProgressMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestProgressMachine = ProgressMachine.TestCase


def test_debeziums_offsets_are_read() -> None:
    streaming = {"lsn_proc": 90, "messageType": "UPDATE", "lsn_commit": 70, "lsn": 90, "txId": 3, "ts_usec": 1}
    assert read_offset(streaming) == StoredPosition(lsn=90, snapshot_completed=True)
    half = {"last_snapshot_record": False, "lsn": 5, "txId": 1, "snapshot": "INITIAL", "snapshot_completed": False}
    assert read_offset(half) == StoredPosition(lsn=5, snapshot_completed=False)
    assert read_offset(half | {"snapshot_completed": True}).snapshot_completed


@pytest.mark.parametrize("complete", [False, True])
def test_offsets_of_debezium_2_are_read(complete: bool) -> None:
    """They have `snapshot: true` until the first change after the snapshot, and no `snapshot_completed`."""
    offset = {"lsn": 5, "txId": 1, "ts_usec": 1, "snapshot": True, "last_snapshot_record": complete}
    assert read_offset(offset) == StoredPosition(lsn=5, snapshot_completed=complete)


@given(st.booleans())
def test_our_snapshot_offsets_are_read(completed: bool) -> None:
    lineage = Lineage(system_id="7", timeline=2)
    offset = snapshot_offset(9, 3, 1, lineage, completed=completed)
    assert read_offset(offset) == StoredPosition(lsn=9, snapshot_completed=completed, lineage=lineage)


@pytest.mark.parametrize("offset", [{}, {"lsn": "x"}, {"lsn": None}, {"lsn": True}, {"lsn": -1}])
def test_an_offset_without_a_position_is_refused(offset: dict[str, object]) -> None:
    with pytest.raises(UnreadableOffset, match="no position"):
        read_offset(offset)
