"""The metadata log of one member of a quorum, and a model of what its disk owes

The store and its start are production's. The world plays the rest of the quorum: leaders of rising epochs whose batches
come in groups, others whose log parts from this one's, snapshots that come in chunks, and now and then something that
no honest leader sends. The model is a list of batches with the offset up to which they were synced. Whenever the
power goes or the process dies, at any change to the disk, the next start has to find a beginning of that list that ends
at or above this offset, or what the operation that was cut off was about to make of it; and nothing that was cut off
before, ever again.
"""

import contextlib
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from tests.sim.disk import PowerCut, SimulatedDisk
from tidemill.broker.quorum.control import ControlRecord, KRaftVersion, LeaderChange, Voters, control_batch
from tidemill.broker.quorum.incoming import IncomingSnapshot
from tidemill.broker.quorum.log_batches import FetchedDataRefused, decode_log
from tidemill.broker.quorum.raft.voters import Voter, VoterSet
from tidemill.broker.quorum.records import MetadataFormatError, MetadataRecord, ProducerIdsRecord, TopicRecord
from tidemill.broker.quorum.snapshot import SnapshotDamaged, SnapshotId, encode
from tidemill.broker.quorum.store import (
    FOLDER,
    MetadataStore,
    MetadataStoreError,
    SnapshotStopped,
    TruncationRefused,
    encode_batch,
)
from tidemill.core.records.batch import iter_batches

NOW_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One batch of the log."""

    base_offset: int
    offset_end: int
    epoch: int
    data: bytes
    control: tuple[ControlRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What all below its end led to: here, one record that names it; and what stands of the quorum."""

    id: SnapshotId
    records: tuple[MetadataRecord, ...]
    standing: tuple[KRaftVersion | Voters, ...]

    @property
    def data(self) -> bytes:
        return b"".join(encode(self.records, epoch=self.id.epoch, now_ms=NOW_MS, standing=self.standing))


class MetadataLogSimulation:
    """One member through several lives."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = SimulatedDisk()
        self.disk.forgets_after_failed_sync = True
        self.log: list[Batch] = []
        self.snapshots: list[Snapshot] = []  # of which the disk may have any
        self.snapshot: Snapshot | None = None
        self.durable = self.high_watermark = 0
        self.epoch = 1
        self.cut_to: int | None = None  # while it is being cut, or a snapshot takes its place
        self.coming: Snapshot | None = None  # while it is put in place, or one of our own is
        self.incoming: tuple[IncomingSnapshot, Snapshot, bytes] | None = None
        self.store = MetadataStore(self.disk.root, replicated=True)
        self.numbers = 0
        self.lives = self.appended = self.cuts = self.installed = self.written = self.refused = self.failures = 0

    @property
    def offset_end(self) -> int:
        if self.log:
            return self.log[-1].offset_end
        return self.snapshot.id.offset_end if self.snapshot else 0

    @property
    def snapshot_end(self) -> int:
        return self.snapshot.id.offset_end if self.snapshot else 0

    # -- one life

    def live(self, steps: int) -> None:
        """Start, do random things until the power goes, the disk fails or it is time; then a crash or a kill."""
        if self.rng.random() < 0.8:
            self.disk.cut_power_in = self.rng.randrange(3 * steps + 10)
        with contextlib.suppress(PowerCut):
            self._start()
            for _ in range(steps):
                self._act()
                if self.store.failure is not None:
                    self.failures += 1
                    break
                self._look(thorough=self.rng.random() < 0.1)
        self.disk.fail_sync = self.disk.capacity_bytes = None
        self.disk.kill() if self.rng.random() < 0.4 else self.disk.crash(self.rng)
        self.lives += 1

    def _start(self) -> None:
        self.incoming = None
        heard: list[tuple[MetadataRecord, ...]] = []
        self.store = MetadataStore(self.disk.root, replicated=True)
        loaded = self.store.load(heard.append, committed_end=0)
        assert loaded.damaged == (), "nobody has damaged anything"
        self._find(heard)
        self._look(thorough=True)
        self.high_watermark = max(self.high_watermark, self.store.high_watermark)
        self.store.high_watermark = self.high_watermark

    def _find(self, heard: list[tuple[MetadataRecord, ...]]) -> None:
        """What was found is one of the things that may be there; from now on it is what is there."""
        found = self.store.snapshot
        if self.coming is not None and found == self.coming.id:
            self._replace(self.coming)
        assert found == (self.snapshot.id if self.snapshot else None)
        assert heard == ([self.snapshot.records] if self.snapshot else [])
        assert self._owed() <= self.store.offset_end <= self.offset_end
        self.log = [each for each in self.log if each.base_offset < self.store.offset_end]
        self.durable = self.store.offset_end
        self.cut_to = self.coming = None

    def _owed(self) -> int:
        return self.durable if self.cut_to is None else min(self.durable, self.cut_to)

    def _replace(self, which: Snapshot) -> None:
        """A snapshot is in place: one of our own is beside the log, one that came is instead of it."""
        if which.id.offset_end > self.high_watermark:
            self.log = []
            self.durable = self.high_watermark = which.id.offset_end
        self.snapshot = which

    # -- what must hold all the time

    def _look(self, *, thorough: bool) -> None:
        store, start = self.store, self.store.log_start_offset
        assert store.offset_end == self.offset_end
        assert self.durable == store.durable_end <= store.offset_end
        if thorough:
            kept = [each for each in self.log if each.base_offset >= start]
            assert self._read() == b"".join(each.data for each in kept)
            for each in kept:
                assert {store.epochs.epoch_at(at) for at in (each.base_offset, each.offset_end - 1)} == {each.epoch}
        if self.log:
            assert store.epochs.latest == self.log[-1].epoch
        elif self.snapshot:
            assert store.epochs.latest == self.snapshot.id.epoch
        voters, version = self._standing(self.offset_end)
        assert [each for _, each in store.voter_sets][-1:] == ([voters.voters] if voters else [])
        assert store.kraft_version == (version.version if version else 0)

    def _read(self) -> bytes:
        offset, found = self.store.log_start_offset, b""
        while data := self.store.read(offset, self.rng.choice((0, 300, 3000, 10**6))):
            found += data
            *_, last = iter_batches(data)
            offset = last.next_offset
        return found

    def _standing(self, below: int) -> tuple[Voters | None, KRaftVersion | None]:
        said: list[ControlRecord] = list(self.snapshot.standing) if self.snapshot else []
        for batch in self.log:
            if self.snapshot_end <= batch.base_offset and batch.offset_end <= below:
                said += batch.control
        voters = [each for each in said if isinstance(each, Voters)]
        versions = [each for each in said if isinstance(each, KRaftVersion)]
        return voters[-1] if voters else None, versions[-1] if versions else None

    # -- what happens

    def _act(self) -> None:
        rng = self.rng
        if self.disk.capacity_bytes is not None and rng.random() < 0.2:
            self.disk.capacity_bytes = None
        acts: list[tuple[int, Callable[[], None]]] = [
            (10, self._fetched),
            (3, self._lead),
            (3, self._not_honest),
            (8, self._sync),
            (4, self._commit),
            (5, self._cut),
            (2, self._snapshot),
            (6, self._receive),
            (1, self._fill),
            (1, self._break),
        ]
        (act,) = rng.choices([each for _, each in acts], [weight for weight, _ in acts])
        try:
            act()
        except MetadataStoreError:
            self.refused += 1

    def _fill(self) -> None:
        self.disk.capacity_bytes = self.disk.used_bytes() + self.rng.choice((0, self.rng.randrange(3000)))

    def _break(self) -> None:
        if self.rng.random() < 0.3:
            self.disk.fail_sync = OSError(5, "Input/output error")

    def _next_batch(self, base_offset: int) -> Batch:
        rng = self.rng
        if rng.random() < 0.1:
            self.epoch += rng.choice((1, 1, 3))
            return self._control_batch(base_offset)
        self.numbers += 1
        records: list[MetadataRecord] = [ProducerIdsRecord(broker_id=1, broker_epoch=0, next_producer_id=self.numbers)]
        for size in [rng.choice((1, 100, 1500))] * rng.choice((0, 0, 0, 1, 3)):
            name = f"{self.numbers}".ljust(size, "n")
            records.append(TopicRecord(name=name, topic_id=uuid.UUID(int=rng.getrandbits(128))))
        data = encode_batch(records, base_offset, NOW_MS, self.epoch)
        return Batch(base_offset=base_offset, offset_end=base_offset + len(records), epoch=self.epoch, data=data)

    def _control_batch(self, base_offset: int) -> Batch:
        rng = self.rng
        records: list[ControlRecord] = [LeaderChange(leader_id=rng.randrange(3), voters=(0, 1, 2))]
        if rng.random() < 0.3:
            records.append(KRaftVersion(version=rng.randrange(2)))
        if rng.random() < 0.5:
            voters = [Voter(node_id=each, directory_id=uuid.UUID(int=rng.randrange(9))) for each in range(3)]
            records.append(Voters(voters=VoterSet.of(rng.sample(voters, rng.randrange(1, 4)))))
        data = control_batch(records, base_offset=base_offset, epoch=self.epoch, now_ms=NOW_MS)
        return Batch(
            base_offset=base_offset,
            offset_end=base_offset + len(records),
            epoch=self.epoch,
            data=data,
            control=tuple(records),
        )

    def _fetched(self) -> None:
        group: list[Batch] = []
        for _ in range(self.rng.choice((1, 1, 2, 6))):
            group.append(self._next_batch(group[-1].offset_end if group else self.offset_end))
        before = len(self.log)
        self.log += group  # a crash may leave the first of them
        try:
            self.store.append_fetched(b"".join(each.data for each in group))
        except MetadataStoreError:
            if self.store.failure is None:
                del self.log[before:]
            raise
        self.appended += len(group)

    def _lead(self) -> None:
        batch = self._next_batch(self.offset_end)
        self.log.append(batch)
        ((_, _, epoch, records, control),) = decode_log(batch.data)
        try:
            if control:
                self.store.append_control(control, NOW_MS, epoch=epoch)
            else:
                self.store.append(records, NOW_MS, epoch=epoch)
        except MetadataStoreError:
            if self.store.failure is None:
                self.log.pop()
            raise
        self.appended += 1

    def _not_honest(self) -> None:
        """Something in a group of batches is not what it should be: nothing of them is stored."""
        rng, end = self.rng, self.offset_end
        known = self.log[-1].epoch if self.log else self.snapshot.id.epoch if self.snapshot else 0
        good = self._next_batch(end)
        then = self._next_batch(good.offset_end)
        records = (ProducerIdsRecord(broker_id=1, broker_epoch=0, next_producer_id=0),)
        bad = rng.choice(
            (
                then.data,
                good.data + good.data,
                good.data + then.data[: rng.randrange(1, len(then.data))],
                good.data + self._flipped(then.data),
                self._flipped(good.data) + then.data,
                good.data + encode_batch(records, good.offset_end, NOW_MS, good.epoch - 1),
                encode_batch(records, end, NOW_MS, known - 1) if known else then.data,
                encode_batch(records, end, NOW_MS, self.epoch) + self._next_batch(end + 2).data,
            )
        )
        try:
            self.store.append_fetched(bad)
        except FetchedDataRefused:
            return
        raise AssertionError("something that cannot follow was taken")

    def _flipped(self, data: bytes) -> bytes:
        """One bit is another one, where the CRC sees it."""
        position = self.rng.randrange(16, len(data))
        return data[:position] + bytes([data[position] ^ 1 << self.rng.randrange(8)]) + data[position + 1 :]

    def _sync(self) -> None:
        self.store.sync()
        self.durable = self.offset_end

    def _commit(self) -> None:
        """More is known to be committed: at most what is durable here, so that nobody asks for it to be cut off."""
        ends = [each.offset_end for each in self.log if self.high_watermark < each.offset_end <= self.durable]
        if ends:
            self.high_watermark = self.store.high_watermark = self.rng.choice(ends)

    def _cut(self) -> None:
        offset = self.rng.randint(max(0, self.high_watermark - 3), self.offset_end + 2)
        floor = max(self.high_watermark, self.snapshot_end)
        if offset < floor:
            with contextlib.suppress(TruncationRefused):
                self.store.truncate(offset)
                raise AssertionError("what is committed was cut off")
            return
        begin = next((each.base_offset for each in self.log if each.base_offset <= offset < each.offset_end), offset)
        begin = min(begin, self.offset_end)
        self.cut_to = begin
        assert self.store.truncate(offset) == begin
        if begin < self.offset_end:
            self.cuts += 1
            self.durable = begin
            self._forget(begin)
            self.epoch += 1
        self.cut_to = None

    def _forget(self, offset_end: int) -> None:
        self.log = [each for each in self.log if each.offset_end <= offset_end]

    def _snapshot(self) -> None:
        """One of our own, of what is committed."""
        ends = [each.offset_end for each in self.log if self.snapshot_end < each.offset_end <= self.high_watermark]
        if not ends:
            return
        end = self.rng.choice(ends)
        voters, version = self._standing(end)
        epoch = next(each.epoch for each in self.log if each.offset_end == end)
        which = self._named(SnapshotId(end, epoch), voters, version)
        try:
            assert self.store.roll(end) == which.id
        finally:
            assert self.store.durable_end in (self.durable, self.offset_end)
            self.durable = self.store.durable_end  # it is synced before the next segment is begun
        self.coming = which
        stopped = self.rng.random() < 0.1
        try:
            self.store.write_snapshot(which.id, which.records, NOW_MS, lambda: stopped)
        except (OSError, SnapshotStopped) as error:
            if self.store.snapshot != which.id and not isinstance(error, PowerCut):
                if self.disk.fail_sync is None:
                    self.coming = None
                return
            raise
        self._replace(which)
        self.coming = None
        self.written += 1

    def _named(self, which: SnapshotId, voters: Voters | None, version: KRaftVersion | None) -> Snapshot:
        self.numbers += 1
        record = ProducerIdsRecord(broker_id=2, broker_epoch=0, next_producer_id=self.numbers)
        standing = tuple(each for each in (version, voters) if each is not None)
        return Snapshot(id=which, records=(record,), standing=standing)

    def _receive(self) -> None:
        """One step of a snapshot from elsewhere: its beginning, a chunk, its end."""
        rng = self.rng
        if self.incoming is None:
            known = max(self.high_watermark, self.snapshot_end)
            end = rng.choice((known + 1, self.offset_end + 1, known + rng.randrange(1, 50)))
            self.epoch += 1
            voters = Voters(voters=VoterSet.of([Voter(node_id=rng.randrange(9))])) if rng.random() < 0.5 else None
            which = self._named(SnapshotId(max(end, known + 1), self.epoch), voters, None)
            with contextlib.suppress(OSError):
                self.incoming = self.store.receive(which.id), which, which.data
            return
        incoming, which, data = self.incoming
        if incoming.position < len(data) and rng.random() < 0.9:
            size = rng.choice((1, 60, 100, 10**6))
            with contextlib.suppress(OSError):
                incoming.add(incoming.position, data[incoming.position : incoming.position + size])
            return
        self.incoming = None
        if which.id.offset_end <= max(self.high_watermark, self.snapshot_end) or rng.random() < 0.1:
            incoming.discard()
            return
        self._install(incoming, which, whole=incoming.position == len(data))

    def _install(self, incoming: IncomingSnapshot, which: Snapshot, *, whole: bool) -> None:
        overlap = [each.base_offset for each in self.log if each.offset_end >= which.id.offset_end]
        self.cut_to = min([*overlap, self.offset_end])
        self.coming = which if whole else None
        try:
            self.store.install(incoming)
        except (SnapshotDamaged, MetadataFormatError):
            assert not whole
            self.cut_to = None
            return
        except MetadataStoreError:
            if self.store.failure is None:  # no room: the log goes on, without what could not have stayed
                assert self.store.offset_end in (self.cut_to, self.offset_end)
                assert self.store.durable_end in (self.durable, self.store.offset_end)
                self.durable = self.store.durable_end
                self._forget(self.store.offset_end)
                self.cut_to = self.coming = None
            raise
        assert whole, "half a snapshot was put in place"
        self._replace(which)
        self.epoch = max(self.epoch, which.id.epoch)
        self.cut_to = self.coming = None
        self.installed += 1


def left_over(simulation: MetadataLogSimulation) -> list[str]:
    """Files that a start should have removed."""
    names = simulation.disk.root.subdirectory(FOLDER).list()
    return [name for name in names if name.endswith((".part", ".tmp"))]
