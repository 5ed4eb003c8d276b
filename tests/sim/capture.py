"""A database, a broker and a capture between them that is killed again and again

One thread, one seed. The decisions are the product's (`Life`, `Progress`, `SourceMachine`); the world is a model of
what they decide about: a table with its log and a slot, a topic, a topic of offsets. Whatever takes a moment in the
world is a `yield` of the capture, and at every one of them writers may write, the table may be rewritten, the broker
may acknowledge, an offset may become durable, or the process may be gone with all it had not handed over.

What has to hold: the slot is never told to forget what is not durable, and in the end the last record of every key is
the row as the table has it.
"""

import bisect
import random
from collections import deque
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.connect.api import Fatal
from tidemill.connect.plugins.postgres.catalog import Server, Slot
from tidemill.connect.plugins.postgres.life import (
    Action,
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
from tidemill.connect.plugins.postgres.progress import (
    Confirm,
    KeptAlive,
    Offer,
    Progress,
    Stored,
    Tick,
    TransactionBegan,
    TransactionEnded,
    read_offset,
)
from tidemill.connect.tasks import source_machine as machine

PARTITION = b"p"
KEYS = 40
PAGE_ROWS = 5
FLUSH_INTERVAL_MS = 60_000
TURN_MS = 40
"""Most lives end long before a flush of offsets is due, as they do with the default of a minute."""

Row = tuple[int, int | None]
"""A key and its value; None deletes it."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """What a transaction did, and the position behind its commit."""

    end_lsn: int
    rows: tuple[Row, ...]


class Database:
    """One table with its log, and the slot that keeps the log."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.lsn = 100
        self.log: list[Transaction] = []
        self.table: dict[int, int] = {}
        self.slot_lsn: int | None = None
        self.slot_lost = False
        self.rewritten_lsn = 0
        self.locked = False
        self.values = 0

    def write(self) -> None:
        """Commit a transaction."""
        rows: list[Row] = []
        for _ in range(self.chance.randint(1, 3)):
            key = self.chance.randrange(KEYS)
            if key in self.table and self.chance.random() < 0.5:
                rows.append((key, None))
                value = self.table.pop(key)
                if self.chance.random() < 0.3:  # a changed key
                    other = self.chance.randrange(KEYS)
                    rows.append((other, value))
                    self.table[other] = value
                continue
            self.values += 1
            rows.append((key, self.values))
            self.table[key] = self.values
        self.lsn += self.chance.randint(1, 5)
        self.log.append(Transaction(self.lsn, tuple(rows)))

    def rewrite(self) -> None:
        """Rewrite the table, as ALTER … TYPE does: older snapshots see no row of it from now on."""
        if not self.locked:
            self.lsn += 1
            self.rewritten_lsn = self.lsn

    def as_of(self, lsn: int) -> dict[int, int]:
        """The rows that a snapshot taken at `lsn` shows now."""
        if self.rewritten_lsn > lsn:
            return {}
        rows: dict[int, int] = {}
        for transaction in self.log:
            if transaction.end_lsn > lsn:
                break
            apply(rows, transaction.rows)
        return rows

    def after(self, lsn: int) -> Transaction | None:
        """The first transaction that ends behind `lsn`."""
        index = bisect.bisect_right(self.log, lsn, key=lambda each: each.end_lsn)
        return self.log[index] if index < len(self.log) else None

    def slot(self) -> Slot | None:
        """The connector's slot as the catalog shows it."""
        if self.slot_lsn is None:
            return None
        return Slot(
            name="s",
            kind="logical",
            plugin="pgoutput",
            database="db",
            active_pid=None,
            confirmed_lsn=self.slot_lsn,
            wal_status="lost" if self.slot_lost else "reserved",
        )

    def server(self) -> Server:
        """What the catalog says about the server."""
        return Server(
            version=150000,
            system_id="7",
            timeline=1,
            wal_level="logical",
            superuser=True,
            replication=True,
            wal_insert_lsn=self.lsn,
            in_recovery=False,
        )


def apply(rows: dict[int, int], changes: tuple[Row, ...] | list[Row]) -> None:
    """Apply changes to rows."""
    for key, value in changes:
        if value is None:
            rows.pop(key, None)
        else:
            rows[key] = value


class Broker:
    """A topic and the topic of offsets; what is in flight reaches it in order, or not at all after a kill."""

    def __init__(self) -> None:
        self.topic: list[Row] = []
        self.offset: Mapping[str, Any] | None = None


class Process:
    """One life of the task: the runtime's machine and what it has in flight."""

    def __init__(self, world: "CaptureWorld") -> None:
        self.world = world
        self.machine = machine.SourceMachine(
            flush_interval_ms=FLUSH_INTERVAL_MS, in_flight_bytes_max=1 << 20, in_flight_records_max=50
        )
        self.token = 0
        self.unsent: deque[tuple[int, list[Row]]] = deque()
        self.flush: machine.StoreOffsets | None = None
        self.told: list[Mapping[str, Any]] = []
        self.streaming = False

    def poll(self, rows: list[Row], offset: Mapping[str, Any] | None = None, *, now: bool = False) -> None:
        """What the task returned from a poll."""
        self.token += 1
        if rows:
            self.unsent.append((self.token, rows))
        self._do(
            self.machine.step(
                machine.Polled(
                    token=self.token,
                    partition=PARTITION,
                    offset=offset,
                    records=len(rows),
                    size_bytes=len(rows),
                    offset_now=now,
                )
            )
        )

    def turn(self) -> None:
        """Something of what is in flight arrives."""
        chance, broker = self.world.chance, self.world.broker
        self._do(self.machine.step(machine.Tick(now_ms=self.world.now_ms)))
        if self.unsent and chance.random() < 0.5:
            token, rows = self.unsent.popleft()
            broker.topic += rows
            self._do(self.machine.step(machine.Delivered(token=token, records=len(rows))))
        if self.flush is not None and chance.random() < 0.5:
            flush, self.flush = self.flush, None
            broker.offset = dict(flush.offsets)[PARTITION]
            self._do(self.machine.step(machine.OffsetsStored(flush=flush.flush)))

    def die(self) -> None:
        """Be killed: some of what was on its way arrives all the same."""
        chance, broker = self.world.chance, self.world.broker
        while self.unsent and chance.random() < 0.5:
            broker.topic += self.unsent.popleft()[1]
        if self.flush is not None and chance.random() < 0.5:
            broker.offset = dict(self.flush.offsets)[PARTITION]

    def _do(self, actions: list[machine.Action]) -> None:
        for action in actions:
            match action:
                case machine.StoreOffsets():
                    self.flush = action
                case machine.NotifyCommitted(offset=offset):
                    self.told.append(offset)
                case _:
                    assert isinstance(action, machine.Produce), action


class CaptureWorld:
    """The whole of it; `make_life` makes the decisions of a life."""

    def __init__(
        self,
        seed: int,
        *,
        mode: str = "initial",
        mismatch: str = "strict",
        make_life: Callable[[LifeSettings], Life] = Life,
    ) -> None:
        self.chance = random.Random(seed)
        self.database = Database(self.chance)
        self.broker = Broker()
        self.now_ms = 0
        self.kills = self.snapshots = self.slots_lost = self.snapshots_again = 0
        self._mode = mode
        self._settings = LifeSettings(mode=mode, mismatch=mismatch, slot_name="s", database="db")
        self._make_life = make_life
        for _ in range(self.chance.randint(0, 25)):
            self.database.write()

    def run(self, lives: int) -> None:
        """Kill so many lives, then let one come to its end."""
        for _ in range(lives):
            self.live(self.chance.choice([3, 8, 20, 60]))
        self.live(None)

    def live(self, turns: int | None) -> None:
        """One life of so many turns; None lets it live, without writers, until all is captured and stored."""
        process = Process(self)
        self.database.locked = False
        capture = self._capture(process)
        left = turns
        while left is None or left > 0:
            self.now_ms += self.chance.randrange(TURN_MS if left is not None else FLUSH_INTERVAL_MS)
            try:
                next(capture)
            except StopIteration:
                break
            process.turn()
            if left is None:
                if process.streaming and self._all_stored():
                    break
                assert self.now_ms < 1 << 40, "it does not come to its end"
            else:
                self._others()
                left -= 1
            self._check()
        if left is not None:
            self.kills += 1
            process.die()
        if self._mode == "when_needed" and self.chance.random() < 0.2 and turns is not None:
            self._lose_slot()

    def difference(self) -> tuple[dict[int, int], dict[int, int]]:
        """The table, and what the topic's last records say."""
        rows: dict[int, int] = {}
        apply(rows, self.broker.topic)
        return self.database.table, rows

    def _others(self) -> None:
        """What others do meanwhile."""
        if self.chance.random() < 0.4:
            self.database.write()
        if self.chance.random() < 0.2:
            self.database.rewrite()

    def _lose_slot(self) -> None:
        self.slots_lost += 1
        if self.chance.random() < 0.5:
            self.database.slot_lost = True
        else:
            self.database.slot_lsn = None

    def _check(self) -> None:
        offset, slot_lsn = self.broker.offset, self.database.slot_lsn
        if offset is not None and slot_lsn is not None and not self.slots_lost:
            assert slot_lsn <= read_offset(offset).lsn, "the slot forgot what is not stored"

    def _all_stored(self) -> bool:
        offset = self.broker.offset
        stored = None if offset is None else read_offset(offset)
        return stored is not None and stored.snapshot_completed and stored.lsn >= self.database.lsn

    # ------------------------------------------------------------- the capture

    def _capture(self, process: Process) -> Generator[None]:
        """What the task does, cut where the world takes its time."""
        life = self._make_life(self._settings)
        offset = self.broker.offset
        yield
        stored = None if offset is None else read_offset(offset)
        todo: deque[Action] = deque(
            life.step(Found(server=self.database.server(), slot=self.database.slot(), stored=stored))
        )
        entered = 0
        while todo:
            action = todo.popleft()
            yield
            match action:
                case Announce(offset=announcement):
                    process.poll([], announcement, now=True)
                    while announcement not in process.told:
                        yield
                    process.told.clear()  # heard, and not by the stream: it may begin at an older position
                    todo.extend(life.step(Announced()))
                case DropSlot():
                    self.database.slot_lsn, self.database.slot_lost = None, False
                case MakeSlot():
                    entered = self.database.lsn
                    self.database.slot_lsn, self.database.slot_lost = entered, False
                    yield
                    todo.extend(life.step(SlotMade(lsn=entered)))
                case Enter(make_slot=make_slot):
                    self.snapshots += 1
                    entered = self.database.lsn
                    if make_slot:
                        self.database.slot_lsn, self.database.slot_lost = entered, False
                    yield
                    todo.extend(life.step(Entered(lsn=entered, xid=1, time_us=1)))
                case Look():
                    changed = "the table" if self.database.rewritten_lsn > entered else None
                    self.snapshots_again += changed is not None
                    self.database.locked = changed is None
                    todo.extend(life.step(Looked(changed=changed)))
                case Read(offset=begin):
                    process.poll([], begin, now=True)
                    rows = list(self.database.as_of(entered).items())
                    while rows:
                        yield
                        process.poll([(key, value) for key, value in rows[:PAGE_ROWS]])
                        rows = rows[PAGE_ROWS:]
                    self.database.locked = False
                    todo.extend(life.step(AllRead()))
                case Complete(offset=end):
                    process.poll([], end, now=True)
                case Stream(lsn=lsn):
                    yield from self._stream(process, lsn)
                case Finish() | GiveUp():
                    return

    def _stream(self, process: Process, lsn: int) -> Generator[None]:
        database = self.database
        if database.slot_lsn is None or database.slot_lost:
            raise Fatal("the slot is gone")
        process.streaming = True
        server = database.server()
        progress = Progress(lsn=lsn, lineage=server.lineage, keepalive_interval_ms=100)
        sent = max(lsn, database.slot_lsn)  # an older position is moved forward without a word
        heard = 0
        while True:
            yield
            for offset in process.told[heard:]:
                heard += 1
                for action in progress.step(Stored(lsn=read_offset(offset).lsn)):
                    if isinstance(action, Confirm):
                        database.slot_lsn = max(database.slot_lsn, action.lsn)
            following = database.after(sent)
            if following is not None and process.machine.accepts_more:
                yield from self._transaction(process, progress, following)
                sent = following.end_lsn
                continue
            if following is None:
                progress.step(KeptAlive(wal_end=database.lsn))
                sent = database.lsn
            for offer in progress.step(Tick(now_ms=self.now_ms)):
                assert isinstance(offer, Offer)
                process.poll([], offer.offset)

    def _transaction(self, process: Process, progress: Progress, transaction: Transaction) -> Generator[None]:
        """A transaction may be spread over several polls; only the last one carries its end."""
        progress.step(TransactionBegan(xid=1, commit_time_us=1))
        rows = list(transaction.rows)
        while len(rows) > 1 and self.chance.random() < 0.3:
            process.poll([rows.pop(0)], progress.offset())
            yield
        progress.step(TransactionEnded(end_lsn=transaction.end_lsn))
        process.poll(rows, progress.offset())
