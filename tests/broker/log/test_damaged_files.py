"""A small log folder with one thing wrong in it: every byte flipped, every file cut at every length, every file gone

Whatever is wrong, a start works, nothing is served that was not written, everything that is not served is reported, and
what a damaged file other than a log costs is time. Two starts are tried: one that believes in an orderly shutdown, and
one after a crash.
"""

import asyncio
import functools
import random
import uuid
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from tests.broker.log.log_world import NOW_MS, batch, look_up, payload
from tests.sim.disk import SimulatedDisk
from tidemill.broker.log.checkpoints import CLEAN_SHUTDOWN
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.partition import PartitionLog
from tidemill.broker.log.store import LogStore
from tidemill.core.errors import CorruptMessage
from tidemill.core.records.batch import BatchView, iter_batches
from tidemill.core.runtime.clock import ManualClock
from tidemill.core.runtime.disk import Directory

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100)
BATCHES = [
    batch(number % 3 + 1, value_bytes=12, timestamp=NOW_MS + 10 * number, producer=(7, 0, sequence))
    for number, sequence in enumerate((0, 1, 3, 6, 7, 9, 12, 13, 15, 18, 19))
]
EPOCHS = [(0, 0), (1, 7), (2, 15)]
REPORTS = (
    "the end of a segment is missing: acknowledged records are lost",
    "segment behind a torn one dropped: it was never acknowledged",
    "corrupt batch: it will not be served",
    "torn tail cut off: it was never acknowledged",
    "the log ends before what was durable: acknowledged records are missing",
)
Image = dict[str, bytes]


def files_of(directory: Directory, prefix: str = "") -> Image:
    """Every file below `directory` with its bytes."""
    image: Image = {}
    for name in directory.list():
        if directory.is_directory(name):
            image |= files_of(directory.subdirectory(name), f"{prefix}{name}/")
        else:
            image[prefix + name] = directory.read(name)
    return image


def disk_with(image: Image) -> SimulatedDisk:
    """A disk that holds these files."""
    disk = SimulatedDisk()
    for path, data in image.items():
        folder, _, name = path.rpartition("/")
        directory = disk.root.subdirectory(folder) if folder else disk.root
        directory.replace(name, data)
    return disk


@functools.cache
def sound() -> Image:
    """The folder of a store that was closed in order."""

    async def write() -> Image:
        disk = SimulatedDisk()
        store = LogStore(disk.root, clock=ManualClock(NOW_MS), node_id=1)
        store.open_all(lambda _topic: CONFIG)
        log = store.create("t", uuid.UUID(int=3), 0, CONFIG)
        for number, data in enumerate(BATCHES):
            await log.durable(log.append(data, now_ms=NOW_MS, leader_epoch=number // 4).last_offset)
        await store.close()
        return files_of(disk.root)

    image = asyncio.run(write())
    assert len([path for path in image if path.endswith(".log")]) >= 3
    return image


def crashed(image: Image, *, checkpointed: bool = True) -> Image:
    """The same without the mark of a clean shutdown."""
    left_out = {CLEAN_SHUTDOWN} if checkpointed else {CLEAN_SHUTDOWN, "recovery-point-offset-checkpoint"}
    return {path: data for path, data in image.items() if path not in left_out}


def paths(suffix: str) -> list[str]:
    return sorted(path for path in sound() if path.endswith(suffix))


def serve(image: Image) -> tuple[PartitionLog, list[tuple[int, bytes]], bool]:
    """Start on `image`: the log, what a consumer gets that steps over errors, and whether any loss was reported."""
    with capture_logs() as lines:
        store = LogStore(disk_with(image).root, clock=ManualClock(NOW_MS), node_id=1)
        store.open_all(lambda _topic: CONFIG)
        log = store.get("t", 0)
        assert log is not None
        got: list[tuple[int, bytes]] = []
        offset = log.log_start_offset
        refused = False
        while offset < log.committed_offset:
            try:
                data = bytes(log.read(offset, 300))
            except CorruptMessage:
                refused = True
                offset += 1
                continue
            if not data:
                break
            for view in iter_batches(data):
                assert view.verify_crc()
                got.append((view.base_offset, payload(view)))
                offset = view.next_offset
    return log, got, refused or any(line["event"] in REPORTS for line in lines)


def written() -> list[tuple[int, bytes]]:
    """What was appended: base offset and payload."""
    rows = []
    offset = 0
    for data in BATCHES:
        view = BatchView(data)
        rows.append((offset, payload(view)))
        offset += view.record_count
    return rows


def with_bytes(image: Image, path: str, data: bytes) -> Image:
    return {**image, path: data}


STARTS: dict[str, Callable[[Image], Image]] = {
    "after a clean shutdown": lambda image: image,
    "after a crash": crashed,
    "after a crash without a checkpoint": functools.partial(crashed, checkpointed=False),
}


@pytest.mark.parametrize("start", STARTS)
def test_the_sound_folder_serves_everything(start: str) -> None:
    log, got, reported = serve(STARTS[start](sound()))
    assert (got, reported) == (written(), False)
    assert log.epochs.entries() == EPOCHS


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("number", range(3))
def test_a_flipped_bit_at_any_byte_of_a_log_costs_one_batch_and_is_reported(start: str, number: int) -> None:
    path = paths(".log")[number]
    data = sound()[path]
    base = int(path[-24:-4])
    whole = written()
    positions = {view.offset: view.base_offset for view in iter_batches(data)}
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1 << position % 8
        _, got, reported = serve(STARTS[start](with_bytes(sound(), path, bytes(flipped))))
        at = max(begin for begin in positions if begin <= position)
        if 12 <= position - at < 16:  # the leader epoch, which no CRC covers
            assert got == whole, position
        else:
            assert positions[at] >= base
            assert got == [row for row in whole if row[0] != positions[at]], position
            assert reported, position


@pytest.mark.parametrize("start", ["after a crash", "after a crash without a checkpoint"])
def test_a_log_cut_at_any_length_serves_what_is_left_and_reports_the_rest(start: str) -> None:
    whole = written()
    for path in paths(".log"):
        data = sound()[path]
        views = list(iter_batches(data))
        boundaries = {view.offset for view in views}  # where the last segment may have ended before the crash
        for length in range(len(data)):
            _, got, reported = serve(STARTS[start](with_bytes(sound(), path, data[:length])))
            lost = {view.base_offset for view in views if view.offset + view.size_bytes > length}
            left = [row for row in whole if row[0] not in lost]
            behind = [row for row in left if row[0] < min(lost)]
            assert got in (left, behind), (path, length)  # an unacknowledged rest may go, but never what came before
            unnoticeable = path == paths(".log")[-1] and start != "after a crash" and length in boundaries
            assert reported or got == whole or unnoticeable, (path, length)
            if start == "after a crash":
                assert got == left, (path, length)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint"])
def test_any_other_file_cut_at_any_length_or_gone_costs_only_time(start: str, suffix: str) -> None:
    for path in paths(suffix):
        data = sound()[path]
        images = [with_bytes(sound(), path, data[:length]) for length in range(len(data))]
        images.append({name: kept for name, kept in sound().items() if name != path})
        for number, image in enumerate(images):
            log, got, _ = serve(STARTS[start](image))
            assert got == written(), (path, number)
            assert look_up(log, NOW_MS + 60) == (NOW_MS + 60, 12), (path, number)
            assert log.epochs.entries() == EPOCHS, (path, number)
            for retry in BATCHES[-2:]:
                assert log.append(retry, now_ms=NOW_MS).duplicate, (path, number)


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
@pytest.mark.parametrize("start", STARTS)
def test_a_flipped_bit_in_an_index_or_a_snapshot_costs_no_record(start: str, suffix: str) -> None:
    for path in paths(suffix):
        data = sound()[path]
        for position in range(len(data)):
            flipped = bytearray(data)
            flipped[position] ^= 1 << position % 8
            log, got, _ = serve(STARTS[start](with_bytes(sound(), path, bytes(flipped))))
            assert got == written(), (path, position)
            assert log.append(BATCHES[-1], now_ms=NOW_MS).duplicate, (path, position)


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
def test_a_checkpoint_cut_at_any_length_or_gone_hides_nothing(name: str) -> None:
    data = sound()[name]
    for start in STARTS.values():
        for length in range(len(data)):
            assert serve(start(with_bytes(sound(), name, data[:length])))[1] == written(), length
        assert serve(start({path: kept for path, kept in sound().items() if path != name}))[1] == written()


def test_checkpoints_of_offsets_that_are_gone_say_nothing_of_what_is_appended_in_their_place() -> None:
    image = {path: data for path, data in crashed(sound()).items() if path not in paths(".log")[1:]}
    asyncio.run(deleted_and_appended(image))


async def deleted_and_appended(image: dict[str, bytes]) -> None:
    """All that is left of the log had been deleted; more comes, and then a power cut."""
    image["log-start-offset-checkpoint"] = b"0\n1\nt 0 20\n"
    disk = disk_with(image)
    store = LogStore(disk.root, clock=ManualClock(NOW_MS), node_id=1)
    store.open_all(lambda _topic: CONFIG)
    log = store.get("t", 0)
    assert log is not None
    end = log.log_end_offset
    assert log.log_start_offset == end < 20, "everything that is left had been deleted"
    for _ in range(20):
        await log.durable(log.append(batch(1), now_ms=NOW_MS).last_offset)
    disk.crash(random.Random(1))
    store = LogStore(disk.root, clock=ManualClock(NOW_MS), node_id=1)
    store.open_all(lambda _topic: CONFIG)
    log = store.get("t", 0)
    assert log is not None
    assert (log.log_start_offset, log.log_end_offset) == (end, end + 20)
