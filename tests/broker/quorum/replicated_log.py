"""A log as the leader of a quorum writes it, and stores that have it."""

import random

from tests.sim.disk import SimulatedDisk
from tidemill.broker.quorum.control import ControlRecord, control_batch
from tidemill.broker.quorum.records import MetadataRecord, ProducerIdsRecord
from tidemill.broker.quorum.store import MetadataStore, encode_batch

NOW_MS = 1_700_000_000_000


def decision(number: int, count: int = 1) -> tuple[MetadataRecord, ...]:
    return tuple(ProducerIdsRecord(broker_id=1, broker_epoch=0, next_producer_id=number) for _ in range(count))


def batch(base_offset: int, epoch: int, count: int = 1, number: int = 0) -> bytes:
    return encode_batch(decision(number or base_offset, count), base_offset, NOW_MS, epoch)


def control(base_offset: int, epoch: int, *records: ControlRecord) -> bytes:
    return control_batch(records, base_offset=base_offset, epoch=epoch, now_ms=NOW_MS)


def batches(start: int, count: int, epoch: int, number: int = 0) -> bytes:
    """So many batches of one record each."""
    return b"".join(batch(start + n, epoch, number=number) for n in range(count))


def opened(disk: SimulatedDisk) -> MetadataStore:
    """A store of a member of the quorum after its start."""
    store = MetadataStore(disk.root, replicated=True)
    store.load(lambda _: None, committed_end=0)
    return store


def everything(store: MetadataStore) -> bytes:
    """What the log has from its start on."""
    found, offset = b"", store.log_start_offset
    while data := store.read(offset, 1000):
        found += data
        offset = last_offset(data) + 1
    assert offset == store.offset_end
    return found


def last_offset(data: bytes) -> int:
    """Of the last batch in `data`."""
    position = last = 0
    while position < len(data):
        last = int.from_bytes(data[position : position + 8], "big") + int.from_bytes(
            data[position + 23 : position + 27], "big"
        )
        position += int.from_bytes(data[position + 8 : position + 12], "big") + 12
    return last


def with_snapshot(store: MetadataStore, at: int, number: int) -> None:
    """Write a snapshot of all below an offset; it holds one record that names it."""
    store.high_watermark = max(store.high_watermark, at)
    store.write_snapshot(store.roll(at), decision(number), NOW_MS, lambda: False)


def crash(disk: SimulatedDisk, seed: int) -> None:
    """A kill for seed 0, else a power cut."""
    disk.kill() if seed == 0 else disk.crash(random.Random(seed))
