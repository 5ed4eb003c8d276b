"""A Kafka cluster's metadata log made ours: same offsets and epochs whatever a node has of it, and what is refused.

That three of our nodes start on what three of Kafka's left is in `tests/integration/test_kafka_adopt_cluster.py`.
"""

import asyncio
import json
import shutil
import uuid
from pathlib import Path

import pytest

from tests.broker.broker_world import running_broker
from tests.broker.quorum import kafka_records as kafka
from tests.broker.tools.test_adopt import Failing, tree
from tidemill.broker.log.checkpoints import CLEAN_SHUTDOWN
from tidemill.broker.quorum.batches import sound_batches
from tidemill.broker.quorum.control import Voters, control_batch
from tidemill.broker.quorum.election_state import ELECTION_STATE, decode
from tidemill.broker.quorum.image import ClusterImage
from tidemill.broker.quorum.metadata import NewTopic
from tidemill.broker.quorum.raft.voters import Voter, VoterSet
from tidemill.broker.quorum.store import FILE, FOLDER, KAFKA_ASIDE, KAFKA_STATE, MetadataStore
from tidemill.broker.registration_file import epoch_held
from tidemill.broker.tools import adopt
from tidemill.broker.tools.adopt import AdoptRefused
from tidemill.broker.tools.adopt_cluster import convert
from tidemill.broker.tools.kafka_metadata import KafkaMetadataError
from tidemill.core.runtime.disk import OsDirectory

ORDERS = uuid.UUID(int=77)
STATE = b'{"leaderId":2,"leaderEpoch":9,"votedId":3,"appliedOffset":0,"data_version":0}'
NOW_MS = 1_700_000_000_000


def batches_of(data: bytes) -> list[tuple[int, int, int, bool]]:
    return [(view.base_offset, view.next_offset, view.leader_epoch, view.is_control) for view, _ in sound_batches(data)]


def kafka_log() -> list[bytes]:
    """Batches of two leaders."""
    leader = kafka.control_batch(2, 0)
    begun = [
        kafka.broker(1, 1),
        kafka.broker(2, 2),
        kafka.frame(27, 0, kafka.int32(1)),
        kafka.topic("orders", ORDERS),
        kafka.partition(0, ORDERS, (1, 2), leader=1, leader_epoch=3),
        kafka.config(2, "orders", "retention.ms", "5"),
        kafka.config(2, "orders", "what.is.this", "5"),
    ]
    changed = [
        kafka.change(0, ORDERS, {0: kafka.int32s((2,)), 1: kafka.int32(2), 6: kafka.int32s((1,))}),
        kafka.frame(20, 0, kafka.tagged({})),
    ]
    return [
        leader,
        kafka.batch(begun, 1, 4),
        kafka.batch(changed, 8, 5),
        kafka.batch([kafka.producer_ids(5000)], 10, 5),
    ]


def test_every_batch_keeps_its_offsets_and_its_epoch() -> None:
    whole = kafka_log()
    found = convert({FILE: b"".join(whole)}, STATE, NOW_MS)
    assert batches_of(found.files[FILE]) == batches_of(b"".join(whole))
    assert (found.offset_end, found.epoch) == (11, 5)
    partition = found.image.topics["orders"].partitions[0]
    assert (partition.leader, partition.leader_epoch, partition.isr) == (2, 4, (2,))
    assert partition.eligible_leader_replicas == ()
    assert dict(found.image.topics["orders"].configs) == {"retention.ms": "5"}
    assert list(found.left_out) == ["what.is.this of orders: not a setting here"]
    assert {node: (each.epoch, each.fenced) for node, each in found.image.brokers.items()} == {
        1: (1, True),
        2: (2, True),
    }
    assert found.image.next_producer_id == 5000
    election = decode(found.files[ELECTION_STATE])
    assert (election.epoch, election.leader_id, election.voted_id) == (9, 2, 3)


def test_a_shorter_copy_is_the_beginning_of_a_longer_one() -> None:
    whole = kafka_log()
    longest = convert({FILE: b"".join(whole)}, STATE, NOW_MS).files[FILE]
    for count in range(1, len(whole)):
        assert longest.startswith(convert({FILE: b"".join(whole[:count])}, STATE, NOW_MS).files[FILE])


def test_a_snapshot_and_what_is_behind_it(tmp_path: Path) -> None:
    name = "00000000000000000008-0000000004.checkpoint"
    whole = kafka_log()
    values = [kafka.topic("orders", ORDERS), kafka.partition(0, ORDERS, (1, 2), leader=1, leader_epoch=3)]
    files = {name: kafka.snapshot([kafka.broker(1, 1), *values]), FILE: b"".join(whole)}
    found = convert(files, STATE, NOW_MS)
    assert batches_of(found.files["00000000000000000008.log"]) == batches_of(b"".join(whole[2:]))
    (tmp_path / FOLDER).mkdir()
    for each, content in found.files.items():
        (tmp_path / FOLDER / each).write_bytes(content)
    store = MetadataStore(OsDirectory(tmp_path), replicated=True)
    taken: list[object] = []
    store.load(taken.extend)
    assert (store.log_start_offset, store.offset_end, store.epochs.latest) == (8, 11, 5)
    assert len(taken) == 3 + 3
    store.close()


def test_a_setting_of_one_broker_that_the_controller_goes_by_too_is_left_out() -> None:
    values = [kafka.config(4, "2", "min.insync.replicas", "1"), kafka.config(4, "", "min.insync.replicas", "2")]
    found = convert({FILE: b"".join([*kafka_log(), kafka.batch(values, 11, 5)])}, STATE, NOW_MS)
    assert {name: dict(each) for name, each in found.image.broker_configs.items()} == {"": {"min.insync.replicas": "2"}}
    assert any(each.startswith("min.insync.replicas of 2: ") for each in found.left_out)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([kafka.frame(23, 0, kafka.tagged({}))], "ends within a transaction"),
        ([kafka.frame(23, 0, kafka.tagged({})), kafka.frame(25, 0, kafka.tagged({}))], "given up in the middle"),
        ([kafka.change(5, ORDERS, {1: kafka.int32(2)})], "contradicts itself"),
    ],
)
def test_what_cannot_be_followed_is_refused(values: list[bytes], says: str) -> None:
    with pytest.raises(KafkaMetadataError, match=says):
        convert({FILE: b"".join([*kafka_log(), kafka.batch(values, 11, 5)])}, STATE, NOW_MS)


def test_a_state_of_elections_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(KafkaMetadataError, match="quorum-state"):
        convert({FILE: b"".join(kafka_log())}, b"half a fi", NOW_MS)


# -- a whole folder


def voters_batch(*nodes: int) -> bytes:
    """These vote, from offset 6 on."""
    voters = VoterSet.of(Voter(node_id=node, directory_id=uuid.UUID(int=node + 1000)) for node in nodes)
    return control_batch([Voters(voters=voters)], base_offset=6, epoch=4, now_ms=NOW_MS)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as node 1 of two would have left it, closed in order."""
    folder = tmp_path_factory.mktemp("made") / "data"

    async def fill() -> ClusterImage:
        async with running_broker(folder) as broker:
            await broker.controller.create_topics([NewTopic(name="orders", partitions=1)])
            return broker.controller.image

    topic_id = asyncio.run(fill()).topics["orders"].topic_id
    shutil.rmtree(folder / FOLDER)
    (folder / FOLDER).mkdir()
    (folder / FOLDER / KAFKA_STATE).write_bytes(
        json.dumps({"leaderId": 1, "leaderEpoch": 4, "currentVoters": [{"voterId": 1}, {"voterId": 2}]}).encode()
    )
    values = [
        kafka.broker(1, 6),
        kafka.broker(2, 7),
        kafka.topic("orders", topic_id),
        kafka.partition(0, topic_id, (2, 1), leader=2),
        kafka.topic("others", ORDERS),
        kafka.partition(0, ORDERS, (2,), leader=2),
    ]
    (folder / FOLDER / FILE).write_bytes(kafka.batch(values, 0, 4))
    return folder


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "data")


def test_a_node_keeps_its_place_in_the_cluster(data: Path) -> None:
    directory = OsDirectory(data)
    (data / CLEAN_SHUTDOWN).write_text('{"version":0,"brokerEpoch":6}')
    adoption = adopt.plan(directory, now_ms=NOW_MS)
    assert "metadata up to offset 6, epoch 4" in adoption.taken
    assert any("topic orders" in line and "1 of 1 partitions here" in line for line in adoption.taken)
    assert any("topic others" in line and "0 of 1 partitions here" in line for line in adoption.taken)
    adopt.carry_out(directory, adoption)
    assert {each.name for each in (data / FOLDER).iterdir()} == {FILE, ELECTION_STATE}
    assert (data / KAFKA_ASIDE / KAFKA_STATE).exists()
    assert epoch_held(directory, closed_in_order=True) == 6
    with pytest.raises(AdoptRefused, match="already"):
        adopt.plan(directory, now_ms=NOW_MS)


@pytest.mark.parametrize("was_killed", [False, True])
def test_wherever_it_is_cut_short_it_can_be_finished(data: Path, tmp_path: Path, was_killed: bool) -> None:
    if was_killed:
        (data / CLEAN_SHUTDOWN).unlink()

    def take_over(folder: Path, disk: OsDirectory) -> None:
        adopt.carry_out(disk, adopt.plan(OsDirectory(folder), now_ms=NOW_MS, was_killed=was_killed))

    reference = shutil.copytree(data, tmp_path / "reference")
    take_over(reference, OsDirectory(reference))
    for number in range(20):
        cut = shutil.copytree(data, tmp_path / str(number))
        failing = Failing(cut)
        failing.left = number
        try:
            take_over(cut, failing)
        except OSError:
            if not (cut / FOLDER / ELECTION_STATE).exists():
                take_over(cut, OsDirectory(cut))
            assert tree(cut) == tree(reference)
            continue
        assert number > 5, "every change was tried"
        return
    pytest.fail("it never came to an end")


def test_a_folder_that_was_not_closed_in_order_is_refused_unless_its_machine_stayed_up(data: Path) -> None:
    (data / CLEAN_SHUTDOWN).unlink()
    directory = OsDirectory(data)
    with pytest.raises(AdoptRefused, match=r"was not closed in order.*start Kafka on it once more.*--was-killed"):
        adopt.plan(directory, now_ms=NOW_MS)
    adopt.carry_out(directory, adopt.plan(directory, now_ms=NOW_MS, was_killed=True))
    assert epoch_held(directory, closed_in_order=False) == 6


def test_a_replica_in_sync_without_a_folder_is_refused(data: Path) -> None:
    shutil.rmtree(data / "orders-0")
    with pytest.raises(AdoptRefused, match="orders-0 has no folder here"):
        adopt.plan(OsDirectory(data), now_ms=NOW_MS)


def test_partitions_without_anybody_in_sync_and_nodes_that_are_no_brokers_are_refused(data: Path) -> None:
    path = data / FOLDER / FILE
    before = path.read_bytes()
    for value, says in (
        (kafka.change(0, ORDERS, {0: kafka.int32s(())}), "others-0 has no replica in sync"),
        (kafka.broker_gone(1), "node 1 is no broker"),
    ):
        path.write_bytes(before + kafka.batch([value], 6, 4))
        with pytest.raises(AdoptRefused, match=says):
            adopt.plan(OsDirectory(data), now_ms=NOW_MS)


def test_a_cluster_whose_controllers_are_no_brokers_is_refused(data: Path) -> None:
    """Its brokers' folders would be ours, and nobody could vote: the controllers' are refused."""
    state = {"leaderId": 8, "leaderEpoch": 4, "currentVoters": [{"voterId": 8}, {"voterId": 9}]}
    (data / FOLDER / KAFKA_STATE).write_text(json.dumps(state))
    with pytest.raises(AdoptRefused, match="8, 9 vote and are no brokers"):
        adopt.plan(OsDirectory(data), now_ms=NOW_MS)


def test_voters_are_those_of_the_log_where_it_names_some(data: Path) -> None:
    (data / FOLDER / KAFKA_STATE).write_text(json.dumps({"leaderId": 1, "leaderEpoch": 4, "data_version": 1}))
    path = data / FOLDER / FILE
    before = path.read_bytes()
    for nodes, says in (((1, 2), None), ((1, 9), "9 vote and are no brokers")):
        path.write_bytes(before + voters_batch(*nodes))
        if says is None:
            adopt.plan(OsDirectory(data), now_ms=NOW_MS)
        else:
            with pytest.raises(AdoptRefused, match=says):
                adopt.plan(OsDirectory(data), now_ms=NOW_MS)
