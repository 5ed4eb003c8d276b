"""A data folder of Kafka's becoming ours: what is refused, what is told, and every place where it can be cut short.

The folder is one of our own broker's with the metadata log that a Kafka node would have in its place; real ones are in
`tests/integration/test_kafka_adopt.py`.
"""

import asyncio
import errno
import shutil
import uuid
from pathlib import Path

import pytest

from tests.broker.broker_world import running_broker
from tests.broker.quorum import kafka_records as kafka
from tidemill.broker.groups.coordinator import OFFSETS_TOPIC
from tidemill.broker.groups.events import CommitOffsets, OffsetToCommit
from tidemill.broker.log.checkpoints import CLEAN_SHUTDOWN, CLEANED, RECOVERY_POINTS, read_offsets
from tidemill.broker.log.identity import read_identity
from tidemill.broker.node import StartRefused
from tidemill.broker.quorum.batches import sound_batches
from tidemill.broker.quorum.image import ClusterImage
from tidemill.broker.quorum.metadata import NewTopic
from tidemill.broker.quorum.store import FILE, FOLDER, KAFKA_ASIDE, KAFKA_STATE
from tidemill.broker.tools import adopt
from tidemill.broker.tools.adopt import AdoptRefused
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.runtime.disk import OsDirectory
from tidemill.core.types import TopicPartition

NOW_MS = 1_700_000_000_000
ONE_VOTER = b'{"leaderId":1,"currentVoters":[{"voterId":1}],"data_version":0}'
TOPICS = (("orders", 2), (OFFSETS_TOPIC, 1))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as Kafka would have left it: two topics, one of them with a committed offset."""
    folder = tmp_path_factory.mktemp("made") / "data"

    async def fill() -> ClusterImage:
        async with running_broker(folder, offsets_topic_num_partitions="1") as broker:
            await broker.controller.create_topics([NewTopic(name="orders", partitions=2)])
            await broker.ensure_offsets_topic()
            offset = OffsetToCommit(topic="orders", partition=1, offset=7, leader_epoch=3, metadata="")
            await broker.groups.commit(
                CommitOffsets(
                    request_id=broker.groups.request_id(),
                    group_id="g",
                    member_id="",
                    group_instance_id=None,
                    generation_id=-1,
                    retention_ms=-1,
                    offsets=(offset,),
                )
            )
            return broker.controller.image

    image = asyncio.run(fill())
    ids = {name: topic.topic_id for name, topic in image.topics.items()}
    shutil.rmtree(folder / FOLDER)
    (folder / FOLDER).mkdir()
    (folder / FOLDER / KAFKA_STATE).write_bytes(ONE_VOTER)
    write_metadata(folder, *standard(folder, ids))
    return folder


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "data")


def standard(folder: Path, ids: dict[str, uuid.UUID]) -> list[bytes]:
    directory = read_identity(OsDirectory(folder)).directory_id
    values = [kafka.broker(1)]
    for name, count in TOPICS:
        values.append(kafka.topic(name, ids[name]))
        values += [kafka.partition(each, ids[name], leader_epoch=4, directories=(directory,)) for each in range(count)]
    return [*values, kafka.config(2, OFFSETS_TOPIC, "cleanup.policy", "compact"), kafka.producer_ids(5000)]


def write_metadata(folder: Path, *values: bytes) -> None:
    (folder / FOLDER / FILE).write_bytes(b"".join(kafka.batch([each], number) for number, each in enumerate(values)))


def add(folder: Path, *values: bytes) -> None:
    """More records at the end of Kafka's log."""
    path = folder / FOLDER / FILE
    before = path.read_bytes()
    count = sum(1 for _ in sound_batches(before))
    path.write_bytes(before + b"".join(kafka.batch([each], count + number) for number, each in enumerate(values)))


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def take_over(folder: Path, *, keep_uncommitted: bool = False) -> adopt.Adoption:
    directory = OsDirectory(folder)
    adoption = adopt.plan(directory, now_ms=NOW_MS, keep_uncommitted=keep_uncommitted)
    adopt.carry_out(directory, adoption)
    return adoption


async def test_topics_epochs_ids_and_offsets_are_there_afterwards(data: Path) -> None:
    before = tree(data)
    with pytest.raises(StartRefused, match="written by Apache Kafka: `tidemill log adopt"):
        async with running_broker(data):
            pass
    adoption = take_over(data)
    assert "committed offsets: 1 of 1 groups" in adoption.taken
    assert "producer ids, of which the next is 5000" in adoption.taken
    after = tree(data)
    kept = {name.replace(KAFKA_ASIDE, FOLDER): content for name, content in after.items() if KAFKA_ASIDE in name}
    assert kept == {name: content for name, content in before.items() if name.startswith(FOLDER)}
    async with running_broker(data) as broker:
        image = broker.controller.image
        assert {name: len(topic.partitions) for name, topic in image.topics.items()} == dict(TOPICS)
        assert image.topics["orders"].partitions[1].leader_epoch == 5
        assert (await broker.producer_ids.take()) >= 5000
        found = await broker.groups.committed_offsets("g")
        assert found["orders", 1].offset == 7
        assert not list(data.glob("*stray*"))
    with pytest.raises(AdoptRefused, match="already"):
        adopt.plan(OsDirectory(data), now_ms=NOW_MS)


class Failing(OsDirectory):
    """A disk on which the change number `left` fails, and every one after it, as for a process that died there."""

    __slots__ = ("left",)

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.EIO, "the power is gone")

    def rename(self, old: str, new: str) -> None:
        self.spend()
        super().rename(old, new)

    def replace(self, name: str, data: bytes, *, sync_name: bool = True) -> None:
        self.spend()
        super().replace(name, data, sync_name=sync_name)

    def sync(self) -> None:
        self.spend()
        super().sync()


async def test_wherever_it_is_cut_short_it_is_refused_and_can_be_finished(made: Path, tmp_path: Path) -> None:
    killed = shutil.copytree(made, tmp_path / "killed")
    (killed / CLEAN_SHUTDOWN).unlink()
    reference = shutil.copytree(killed, tmp_path / "reference")
    take_over(reference)
    for number in range(20):
        data = shutil.copytree(killed, tmp_path / str(number))
        failing = Failing(data)
        failing.left = number
        try:
            adopt.carry_out(failing, adopt.plan(OsDirectory(data), now_ms=NOW_MS))
        except OSError:
            ours = (data / FOLDER).is_dir() and not (data / FOLDER / KAFKA_STATE).exists()
            if not ours:
                with pytest.raises(StartRefused, match="tidemill log adopt"):
                    async with running_broker(data):
                        pass
                take_over(data)
            # As if it had gone well the first time: the broker that was refused left nothing, no mark of a clean end.
            assert tree(data) == tree(reference)
            continue
        assert number > 5, "every change was tried"
        return
    pytest.fail("it never came to an end")


def test_logs_that_kafka_compacted_are_known_to_have_gaps(data: Path) -> None:
    (data / CLEAN_SHUTDOWN).unlink()
    (data / f"{OFFSETS_TOPIC}-0" / "00000000000000000900.log").write_bytes(b"")
    take_over(data)
    directory = OsDirectory(data)
    partition = TopicPartition(OFFSETS_TOPIC, 0)
    assert read_offsets(directory, CLEANED) == {partition: 0}
    points = read_offsets(directory, RECOVERY_POINTS)
    assert points[partition] == 900
    assert points["orders", 0] == 0


@pytest.mark.parametrize(
    ("first", "compacted"),
    [
        (kafka.batch([b"", b""]) + kafka.batch([b""], 2), False),
        (kafka.batch([b"", b""]) + kafka.batch([b""], 2)[:-1], False),  # torn, which recovery judges
        (kafka.batch([b"", b""]), True),
        (kafka.batch([b""]) + kafka.batch([b""], 2), True),
        (kafka.batch([b"", b""], 1), True),
        (b"", True),
    ],
    ids=["whole", "torn", "end", "middle", "beginning", "empty"],
)
def test_after_a_kill_gaps_tell_of_compaction_that_no_setting_tells_of(
    data: Path, first: bytes, compacted: bool
) -> None:
    (data / CLEAN_SHUTDOWN).unlink()
    folder = data / "orders-0"
    (folder / "00000000000000000000.log").write_bytes(first)
    (folder / "00000000000000000003.log").write_bytes(kafka.batch([b""], 3))
    take_over(data)
    directory = OsDirectory(data)
    partition = TopicPartition("orders", 0)
    assert (partition in read_offsets(directory, CLEANED)) is compacted
    assert read_offsets(directory, RECOVERY_POINTS).get(partition, 0) == (3 if compacted else 0)


def test_what_is_not_taken_is_said(data: Path) -> None:
    add(
        data,
        kafka.frame(18, 0, b""),
        kafka.config(2, "orders", "remote.storage.enable", "true"),
        kafka.config(2, "orders", "retention.ms", "77"),
        kafka.config(2, "orders", "what.is.this", "1"),
        kafka.config(4, "", "log.retention.ms", "88"),
        kafka.config(4, "3", "log.retention.ms", "99"),
    )
    adoption = take_over(data)
    said = "\n".join(adoption.not_taken)
    assert "access control entries: 1 records" in said
    assert "remote.storage.enable of topic orders: " in said and "tiered storage" in said
    assert "what.is.this of topic orders: not a setting here" in said
    assert "settings of broker 3, which is not this node" in said
    taken = "\n".join(adoption.taken)
    assert "settings of all brokers: log.retention.ms=88" in taken
    assert "retention.ms=77" in taken and "what.is.this" not in taken


def test_metadata_that_is_not_understood_is_refused(data: Path) -> None:
    add(data, kafka.frame(77, 0, b""))
    refused(data, "type 77")


def test_partitions_that_are_elsewhere_are_refused(data: Path) -> None:
    topic_id = uuid.UUID(int=4711)
    made = kafka.topic("far", topic_id)
    for partition, says in (
        (kafka.partition(0, topic_id, (1, 2)), r"replicas \[1, 2\]"),
        (kafka.partition(0, topic_id, directories=(uuid.UUID(int=999),)), r"another of Kafka's log\.dirs"),
        (kafka.partition(0, topic_id), "far-0 has no folder here"),
    ):
        before = (data / FOLDER / FILE).read_bytes()
        add(data, made, partition)
        refused(data, says)
        (data / FOLDER / FILE).write_bytes(before)


def test_records_that_were_not_committed_are_refused_unless_accepted(data: Path) -> None:
    (data / "orders-1" / "00000000000000000000.txnindex").write_bytes(b"one aborted")
    refused(data, "aborted transactions in orders-1.*--keep-uncommitted")
    adoption = take_over(data, keep_uncommitted=True)
    assert any("aborted transactions in orders-1" in line for line in adoption.not_taken)


def test_transactions_that_are_not_over_are_refused(data: Path) -> None:
    topic_id = uuid.UUID(int=4712)
    folder = data / "__transaction_state-0"
    folder.mkdir()
    add(data, kafka.topic("__transaction_state", topic_id), kafka.partition(0, topic_id))
    for status, over in ((1, False), (5, True)):
        value = b"\0\0" + bytes(8) + bytes(2) + bytes(4) + bytes((status,))
        records = build_batch([NewRecord(timestamp=0, key=b"\0\0\0\1x", value=value)])
        (folder / "00000000000000000000.log").write_bytes(records)
        if over:
            assert any("transactional ids" in line for line in adopt.plan(OsDirectory(data), now_ms=NOW_MS).not_taken)
        else:
            refused(data, "1 transactions are not over")


def test_other_folders_are_refused(data: Path, tmp_path: Path) -> None:
    refused(tmp_path, "no data folder")
    meta = data / "meta.properties"
    text = meta.read_text()
    meta.write_text(text.replace("version=1", "version=0"))
    refused(data, "version 0")
    meta.write_text(text)
    (data / FOLDER / KAFKA_STATE).write_bytes(b"half a fi")
    refused(data, "cannot be read")
    (data / KAFKA_ASIDE).mkdir()
    refused(data, "in the way")
    (data / KAFKA_ASIDE).rmdir()
    (data / FOLDER).rename(data / "elsewhere")
    refused(data, "both broker and controller")


def refused(folder: Path, says: str) -> None:
    before = tree(folder)
    with pytest.raises(AdoptRefused, match=says):
        adopt.plan(OsDirectory(folder), now_ms=NOW_MS)
    assert tree(folder) == before
