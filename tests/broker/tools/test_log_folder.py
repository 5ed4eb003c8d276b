"""What is found under a path: data folders, single partitions, copies, and things that are neither."""

from pathlib import Path

import pytest

from tests.broker.broker_world import broker_and_client, running_broker
from tests.broker.handlers.data_path import make_topic, produce, records
from tests.broker.log.damaged_logs import write_log
from tidemill.broker.log.checkpoints import CLEANED, write_offsets
from tidemill.broker.quorum.election_state import ElectionStateFile
from tidemill.broker.quorum.raft.election import ElectionState
from tidemill.broker.quorum.records import ProducerIdsRecord
from tidemill.broker.quorum.store import encode_batch
from tidemill.broker.tools.log_folder import NotALog, look
from tidemill.core.runtime.disk import OsDirectory
from tidemill.core.types import TopicPartition


async def test_a_data_folder_is_found_with_its_checkpoints_and_topic_settings(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, partitions=2)
        await produce(client, topic, records(b"a", b"b"))
        running = look(tmp_path)
        assert (running.in_use, running.clean) == (True, False)
    folder = look(tmp_path)
    assert (folder.in_use, folder.clean, folder.metadata_problem) == (False, True, None)
    found = {each.path.name: each for each in folder.partitions}
    assert {"t-0", "t-1", "__cluster_metadata-0"} <= set(found)
    assert (found["t-0"].recovery_point, found["t-0"].log_start_offset) == (2, 0)
    assert found["t-0"].cleaned_offset is None
    (tmp_path / CLEANED).unlink()
    assert look(tmp_path / "t-0").partitions[0].cleaned_offset is None, "it is not a compacted topic"
    assert (found["t-0"].is_metadata, found["__cluster_metadata-0"].is_metadata) == (False, True)
    single = look(tmp_path / "t-0")
    assert single.data == tmp_path.resolve()
    assert single.partitions == (found["t-0"],)
    write_offsets(OsDirectory(tmp_path), CLEANED, {TopicPartition("t", 0): 1})
    assert look(tmp_path / "t-0").partitions[0].cleaned_offset == 1


async def test_a_compacted_log_may_have_gaps_when_the_checkpoint_of_the_cleaner_is_lost(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await make_topic(broker, cleanup_policy="compact")
    assert look(tmp_path / "t-0").partitions[0].cleaned_offset is None
    (tmp_path / CLEANED).write_text("0\n1\nt 0")
    (tmp_path / "t-0" / f"{20:020d}.log").touch()
    assert look(tmp_path / "t-0").partitions[0].cleaned_offset == 20, "all but the last segment may have been cleaned"


async def test_a_damaged_metadata_log_is_told_and_the_rest_is_found(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await make_topic(broker)
    path = next((tmp_path / "__cluster_metadata-0").glob("*.log"))
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    folder = look(tmp_path)
    assert folder.metadata_problem is not None
    assert "corrupt" in folder.metadata_problem
    assert "t-0" in {each.path.name for each in folder.partitions}
    assert path.read_bytes() == data
    (path.parent / "quorum-state").touch()
    assert look(tmp_path).metadata_problem is None, "the metadata log of Apache Kafka has its own format"


RECORDS = [ProducerIdsRecord(broker_id=1, broker_epoch=0, next_producer_id=1)]


async def test_the_folder_of_a_member_of_a_quorum_is_looked_at_as_its_start_does(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await make_topic(broker)
    path = next((tmp_path / "__cluster_metadata-0").glob("*.log"))
    last = path.read_bytes()
    path.write_bytes(last + bytes(2000) + encode_batch(RECORDS, 10**6, 0))
    assert "a sound one follows" in (look(tmp_path).metadata_problem or "")
    ElectionStateFile(OsDirectory(tmp_path)).store(ElectionState(epoch=2))
    assert look(tmp_path).metadata_problem is None, "it was never written, and can be fetched"
    (path.parent / "election-state").write_text("{")
    assert "election-state cannot be used" in (look(tmp_path).metadata_problem or "")


async def test_a_data_folder_that_lost_its_metadata_log_is_told(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await make_topic(broker)
    metadata = tmp_path / "__cluster_metadata-0"
    for path in metadata.iterdir():
        path.unlink()
    assert "forget topics" in (look(tmp_path).metadata_problem or "")
    metadata.rmdir()
    assert "forget topics" in (look(tmp_path).metadata_problem or "")
    (tmp_path / "__cluster_metadata-0.kafka").mkdir()
    assert look(tmp_path).metadata_problem is None, "`log adopt` died between its renames and goes on from there"


def test_a_copy_of_a_partition_under_any_name_is_a_log(tmp_path: Path) -> None:
    write_log(tmp_path / "copy")
    folder = look(tmp_path / "copy")
    assert (folder.data, folder.clean, folder.in_use) == (None, False, False)
    assert folder.partitions[0].partition == TopicPartition("copy", 0)
    assert folder.partitions[0].recovery_point == -1


def test_folders_that_no_broker_opens_are_skipped(tmp_path: Path) -> None:
    write_log(tmp_path / "t-0")
    OsDirectory(tmp_path / "t-1.0123-delete")
    folder = look(tmp_path)
    assert [each.path.name for each in folder.partitions] == ["t-0"]
    assert folder.skipped == ("t-1.0123-delete",)


@pytest.mark.parametrize(("name", "text"), [("nothing", "does not exist"), ("file", "not a folder"), (".", "no log")])
def test_what_is_no_log_is_refused_with_a_reason(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotALog, match=text):
        look(tmp_path / name)
