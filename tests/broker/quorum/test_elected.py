"""Several controllers that agree, with their real logs: who decides, what survives, what a full disk means"""

import asyncio
import uuid
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.broker.quorum.quorum_stage import CLUSTER, ENDPOINT, PORT, Node, Stage
from tidemill.broker.quorum.control import KRaftVersion, Voters
from tidemill.broker.quorum.log_batches import decode_log
from tidemill.broker.quorum.metadata import RegisterBroker, Registration, TopicRef
from tidemill.broker.quorum.raft.messages import AddVoterRequest, RemoveVoterRequest
from tidemill.broker.quorum.raft.voters import Voter, VoterEndpoint, VoterSet
from tidemill.broker.quorum.raft.wire import request_to_wire
from tidemill.broker.quorum.records import RegisterBrokerRecord
from tidemill.broker.quorum.snapshot import SnapshotId, encode, records_of
from tidemill.broker.quorum.store import FILE, FOLDER
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import NotController
from tidemill.core.types import ZERO_UUID

SEEDS = range(5)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_decides_and_all_know(seed: int) -> None:
    async def course(stage: Stage) -> None:
        await stage.start()
        leader = await stage.leader()
        await stage.register(leader)
        for number in range(5):
            assert (await leader.create(f"t{number}")).error is None
        await stage.agree()
        assert [node.controller.leads for node in stage.nodes.values()].count(True) == 1
        for other in stage.others(leader):
            assert sorted(other.controller.image.topics) == [f"t{number}" for number in range(5)]
            with pytest.raises(NotController, match=f"node {leader.node_id} is the active controller"):
                await other.create("elsewhere")

    Stage(seed).run(course)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("power", [False, True])
def test_what_was_answered_survives_its_leader(seed: int, power: bool) -> None:
    async def course(stage: Stage) -> None:
        await stage.start()
        leader = await stage.leader()
        await stage.register(leader)
        for number in range(3):
            await leader.create(f"before{number}")
        await leader.end(power=power)
        others = stage.others(leader)
        second = await stage.leader(others)
        assert len(second.controller.image.topics) == 3
        await second.create("after")
        await leader.start()
        await stage.agree()
        assert len(leader.controller.image.topics) == 4

    Stage(seed).run(course)


@pytest.mark.parametrize("seed", SEEDS)
def test_all_of_them_lose_power_and_nothing_is_lost(seed: int) -> None:
    async def course(stage: Stage) -> None:
        await stage.start()
        leader = await stage.leader()
        await stage.register(leader)
        await asyncio.gather(*(leader.create(f"t{number}") for number in range(20)))
        for node in stage.nodes.values():
            await node.end(power=True)
        await stage.start()
        again = await stage.leader()
        assert len(again.controller.image.topics) == 20
        await again.create("one more")
        await stage.agree()

    Stage(seed).run(course)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_leader_that_is_cut_off_decides_nothing_and_another_does(seed: int) -> None:
    async def course(stage: Stage) -> None:
        await stage.start()
        leader = await stage.leader()
        await stage.register(leader)
        others = stage.others(leader)
        stage.wires.apart = {frozenset((leader.host, each.host)) for each in others}
        lost = asyncio.ensure_future(leader.create("lost"))
        second = await stage.leader(others)
        assert (await second.create("kept")).error is None
        with pytest.raises(NotController):
            await lost
        stage.wires.apart = set()
        await stage.agree()
        assert list(leader.controller.image.topics) == ["kept"]

    Stage(seed).run(course)


@pytest.mark.parametrize("seed", SEEDS)
def test_who_stood_still_blames_nobody(seed: int) -> None:
    """All event loops stop, for longer than any leader is waited for or goes on without followers."""

    async def course(stage: Stage) -> None:
        await stage.start()
        leader = await stage.leader()
        await stage.register(leader)
        await stage.agree()
        epoch = leader.member.machine.epoch
        for seconds in (2.5, 4.0, 9.0):
            await asyncio.sleep(1.0 + stage.rng.random())
            stage.loop.spend(seconds)
            await asyncio.sleep(3.0)
            assert [each.member.machine.epoch for each in stage.nodes.values()] == [epoch] * 3
            assert leader.controller.leads
        await leader.create("t")
        await stage.agree()

    Stage(seed).run(course)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_follower_whose_disk_was_slow_stays_with_its_leader(seed: int) -> None:
    async def course(stage: Stage) -> None:
        await stage.start()
        leader = await stage.leader()
        await stage.register(leader)
        await stage.agree()
        await asyncio.sleep(2.0 + stage.rng.random())
        votes = stage.wires.asked["VoteRequest"]
        for node in stage.others(leader):
            node.thread.more_s = 2.2  # which is longer than they wait for a leader
        made = asyncio.ensure_future(leader.create("t"))
        await asyncio.sleep(1.5)
        for node in stage.others(leader):
            node.thread.more_s = 0.0
        assert not made.done(), "nobody has it on its disk but the leader"
        assert (await made).error is None
        await asyncio.sleep(3.0)
        assert stage.wires.asked["VoteRequest"] == votes, "nobody looks for another"

    Stage(seed).run(course)


@pytest.mark.parametrize("seed", SEEDS)
def test_nodes_that_take_long_to_begin_do_not_all_stand_for_election_at_once(seed: int) -> None:
    """The chance that keeps candidates apart is in how long they listen, not in how long they took to begin."""

    async def course(stage: Stage) -> None:
        stage.begins_after_s = 3.0
        await stage.start()
        await stage.leader()
        assert max(each.member.machine.epoch for each in stage.nodes.values()) == 1

    Stage(seed).run(course)


@pytest.mark.parametrize("seed", SEEDS)
def test_who_is_far_behind_gets_a_snapshot(seed: int) -> None:
    async def course(stage: Stage) -> None:
        await stage.start()
        leader = await stage.leader()
        await stage.register(leader)
        late = stage.others(leader)[0]
        await late.end()
        for number in range(40):
            await leader.create(f"t{number}")
        assert leader.store.log_start_offset > late.store.offset_end
        gone = await leader.controller.delete_topics([TopicRef(name="t7")])
        await late.start()
        await stage.agree()
        assert late.store.log_start_offset > 0
        assert len(late.controller.image.topics) == 39
        assert gone[0].topic_id in leader.controller.removed_topic_ids
        await late.end(power=True)
        await late.start()
        await stage.agree()

    Stage(seed, snapshot_bytes=1500).run(course)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("what", ["read", "read_snapshot"])
def test_what_is_asked_for_may_go_while_it_is_read(what: str, seed: int) -> None:
    """A thread writes snapshots while the leader answers: what it has promised is gone then, and it leads on."""

    async def course(stage: Stage) -> None:
        await stage.start()
        leader = await stage.leader()
        await stage.register(leader)
        late = stage.others(leader)[0]
        await late.end()
        images = []
        for number in range(6):
            await leader.create(f"t{number}")
            images.append(leader.controller.image)
        store = leader.store

        def compact() -> None:
            image = images.pop(0)
            store.write_snapshot(store.roll(image.offset), records_of(image, {}), 0, lambda: False)

        if what == "read_snapshot":
            compact()
            compact()
        read = getattr(store, what)

        def compact_first(where: object, *rest: int) -> object:
            if len(images) > 2 and rest[-1]:  # nothing is read where it is only asked how much there is
                compact()
                compact()
            return read(where, *rest)

        setattr(store, what, compact_first)
        await late.start()
        await stage.agree()
        assert len(images) == 2
        assert leader.controller.leads

    Stage(seed).run(course)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_full_disk_holds_no_half_of_a_snapshot(seed: int) -> None:
    async def course(stage: Stage) -> None:
        await stage.start()
        leader = await stage.leader()
        await stage.register(leader)
        late = stage.others(leader)[0]
        await late.end()
        for number in range(40):
            await leader.create(f"t{number}")
        await late.start()
        late.disk.capacity_bytes = late.disk.used_bytes() + 1_000
        free = []
        for _ in range(40):
            await asyncio.sleep(0.05)
            free.append(late.disk.capacity_bytes - late.disk.used_bytes())
        assert late.failure is None
        assert free[-20:].count(1_000) > 10, "what came of it is given back until it is tried again"
        late.disk.capacity_bytes = None
        await stage.agree()

    Stage(seed, snapshot_bytes=1500).run(course)


@pytest.mark.parametrize("seed", SEEDS)
def test_full_disks_do_not_keep_a_quorum_from_electing(seed: int) -> None:
    async def course(stage: Stage) -> None:
        await stage.start()
        leader = await stage.leader()
        await stage.register(leader)
        for node in stage.nodes.values():
            node.disk.capacity_bytes = node.disk.used_bytes()
        for number in range(3):
            await leader.end()
            second = await stage.leader(stage.others(leader))
            assert (await second.create(f"t{number}")).error is None
            await leader.start()
            await stage.agree()
            leader = second

    Stage(seed).run(course)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sector_that_is_lost_of_a_synced_log_is_not_outvoted(seed: int) -> None:
    """What two of three hold is committed; one of them loses it, and must not elect the third with it."""

    async def course(stage: Stage) -> None:
        await stage.start()
        leader = await stage.leader()
        await stage.register(leader)
        other, third = stage.others(leader)
        await leader.create("known-to-all")
        await stage.agree()
        await third.end()
        for number in range(20):
            await leader.create(f"kept-{number}")
        await stage.agree([leader, other])
        await other.end()
        await leader.end()
        file = other.disk.root.subdirectory(FOLDER).open(FILE)
        file.write_at(1024 + 512 * (seed % 2), bytes(512))
        with capture_logs() as told:
            await other.start()
        assert any("something is gone of the metadata log" in each["event"] for each in told)
        await third.start()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(20):
                await stage.leader([other, third])
        await leader.start()
        again = await stage.leader()
        assert again is leader, "only it has everything"
        await stage.agree()
        assert len(other.controller.image.topics) == 21
        await leader.end()  # the one that had forgotten votes again
        second = await stage.leader([other, third])
        await second.create("after")
        await other.end(power=True)
        await other.start()
        assert not other.store.has_forgotten

    Stage(seed).run(course)


def voter(node: Node) -> Voter:
    return Voter(
        node_id=node.node_id,
        directory_id=node.directory_id,
        endpoints=(VoterEndpoint("CONTROLLER", node.host, PORT),),
    )


def formatted(node: Node) -> None:
    """Its folder is that of a quorum in which it votes alone, as a snapshot says that ends where the log begins."""
    voters = Voters(voters=VoterSet.of([voter(node)]))
    data = b"".join(encode((), epoch=0, now_ms=0, standing=(KRaftVersion(version=1), voters)))
    folder = node.disk.root.subdirectory(FOLDER)
    folder.replace(SnapshotId(0, 0).name, data)
    folder.create(FILE).close()
    folder.sync()
    node.disk.root.sync()


async def changed(leader: Node, request: AddVoterRequest | RemoveVoterRequest) -> ErrorCode:
    answer: Any = await leader.member.serve(request_to_wire(request))
    return ErrorCode(answer.error_code)


async def first_alone(stage: "Stage") -> tuple[Node, VoterSet]:
    """The first node leads by itself; those who join are told where it is, and find a leader there."""
    first = next(iter(stage.nodes.values()))
    formatted(first)
    await first.start(voters=VoterSet())
    return await stage.leader([first]), VoterSet.of([replace(voter(first), directory_id=ZERO_UUID)])


async def become_voter(node: Node, leader: Node, known: VoterSet) -> None:
    await node.start(voters=known)
    joins = AddVoterRequest(cluster_id=CLUSTER, voter=voter(node), timeout_ms=5_000)
    assert await changed(leader, joins) == ErrorCode.NONE


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("snapshot_bytes", [700, 10**7])
def test_voters_come_and_the_first_one_goes(snapshot_bytes: int, seed: int) -> None:
    async def course(stage: Stage) -> None:
        first, *others = stage.nodes.values()
        leader, known = await first_alone(stage)
        await stage.register(leader)
        await leader.create("before")
        for node in others:
            await become_voter(node, leader, known)
        for number in range(8):
            await leader.create(f"t{number}")
        goes = RemoveVoterRequest(cluster_id=CLUSTER, node_id=first.node_id, directory_id=first.directory_id)
        assert await changed(leader, goes) == ErrorCode.NONE
        second = await stage.leader(others)
        await second.create("after")
        await stage.agree()
        for node in stage.nodes.values():
            await node.end(power=True)
        for node in stage.nodes.values():
            await node.start(voters=known)
        again = await stage.leader(others)
        await again.create("at-last")
        await stage.agree()
        assert len(again.controller.image.topics) == 11
        for node in stage.nodes.values():
            assert node.store.kraft_version == 1
            assert node.store.voter_sets[-1][1].ids == (2, 3)

    Stage(seed, snapshot_bytes=snapshot_bytes).run(course)


def test_a_voter_that_comes_back_with_another_folder_is_told_as_away_and_as_an_observer() -> None:
    async def course(stage: Stage) -> None:
        first, second, third = stage.nodes.values()
        leader, known = await first_alone(stage)
        await stage.register(leader)
        for node in (second, third):
            await become_voter(node, leader, known)
        await third.end(power=True)
        lost, third.directory_id = third.directory_id, uuid.UUID(int=33)
        third.disk.root.subdirectory(FOLDER).remove(FILE)
        await third.start(voters=known)
        await leader.create("t")
        await asyncio.sleep(2.0)
        state = leader.member.state()
        (gone,) = [each for each in state.voters if each.node_id == third.node_id]
        assert (gone.directory_id, gone.log_end_offset, gone.last_fetch_ms) == (lost, -1, -1)
        (back,) = state.observers
        assert (back.node_id, back.directory_id) == (third.node_id, third.directory_id)
        assert back.log_end_offset == leader.store.offset_end

    Stage(0).run(course)


def test_an_observer_that_is_gone_is_told_for_a_while_also_where_nobody_else_follows() -> None:
    async def course(stage: Stage) -> None:
        _, second, third = stage.nodes.values()
        leader, known = await first_alone(stage)
        await second.start(voters=known)
        await asyncio.sleep(2.0)
        await second.end(power=True)
        await asyncio.sleep(280.0)
        assert [each.node_id for each in leader.member.state().observers] == [second.node_id]
        await asyncio.sleep(30.0)
        assert leader.member.state().observers == ()
        for node in (second, third):
            await node.start(voters=known)

    Stage(0).run(course)


@pytest.mark.parametrize("seed", range(10))
def test_voters_come_and_go_between_decisions_that_count_on_their_offsets(seed: int) -> None:
    """A broker's epoch is the offset of its registration, and one may be decided before another one is written."""

    async def course(stage: Stage) -> None:
        first, *others = stage.nodes.values()
        leader, known = await first_alone(stage)
        granted: dict[int, int] = {}

        async def register(broker_id: int) -> None:
            await asyncio.sleep(stage.rng.random() * 0.4)
            request = RegisterBroker(
                broker_id=broker_id, incarnation_id=uuid.UUID(int=broker_id), end_points=(ENDPOINT,), rack=None
            )
            done = await leader.controller.decide(request)
            assert isinstance(done, Registration)
            granted[broker_id] = done.broker_epoch

        registering = [asyncio.ensure_future(register(100 + each)) for each in range(200)]
        for node in others:
            await become_voter(node, leader, known)
        await asyncio.gather(*registering)
        await stage.agree()
        found = {
            record.broker_id: view.base_offset + number
            for view in decode_log(leader.store.read(0, 2**20))
            for number, record in enumerate(view.records)
            if isinstance(record, RegisterBrokerRecord)
        }
        assert found == granted
        assert {each.node_id: each.epoch for each in others[0].controller.image.brokers.values()} == granted

    Stage(seed).run(course)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_leader_is_removed_under_load_and_the_next_goes_on(seed: int) -> None:
    async def course(stage: Stage) -> None:
        first, *others = stage.nodes.values()
        leader, known = await first_alone(stage)
        await stage.register(leader)
        for node in others:
            await become_voter(node, leader, known)
        made: list[str] = []

        async def make() -> None:
            for number in range(40):
                name, away = f"t{number}", 0
                while True:
                    try:
                        result = await (await stage.leader()).create(name)
                    except NotController:
                        away += 1
                        assert away < 1000
                        await asyncio.sleep(0.01)
                        continue
                    assert result.error is None or result.error.code == ErrorCode.TOPIC_ALREADY_EXISTS
                    made.append(name)
                    break

        making = asyncio.ensure_future(make())
        await asyncio.sleep(stage.rng.random() * 0.05)
        goes = RemoveVoterRequest(cluster_id=CLUSTER, node_id=first.node_id, directory_id=first.directory_id)
        assert await changed(leader, goes) == ErrorCode.NONE
        await making
        await stage.agree()
        assert (await stage.leader()) in others
        assert sorted(leader.controller.image.topics) == sorted(made)

    Stage(seed).run(course)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_voter_that_comes_back_at_another_address_is_found_there(seed: int) -> None:
    async def course(stage: Stage) -> None:
        first, second, third = stage.nodes.values()
        leader, known = await first_alone(stage)
        await stage.register(leader)
        for node in (second, third):
            await become_voter(node, leader, known)
        for moved in (second, first):  # a follower, and the leader
            await moved.end()
            moved.host += "-moved"
            await moved.start(voters=known)
            among = [each for each in stage.nodes.values() if each is not moved]
            await (await stage.leader(among)).create(f"by-{moved.host}")
            await stage.agree()
            async with asyncio.timeout(10):
                while moved.store.voter_sets[-1][1].get(moved.node_id) != voter(moved):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        await third.end()
        await (await stage.leader([first, second])).create("by those two alone")

    Stage(seed).run(course)


def test_a_quorum_of_one_needs_nobody() -> None:
    async def course(stage: Stage) -> None:
        await stage.start()
        leader = await stage.leader()
        await stage.register(leader)
        await leader.create("t")
        await leader.end(power=True)
        await leader.start()
        await stage.leader()
        assert list(leader.controller.image.topics) == ["t"]

    Stage(3, nodes=1).run(course)
