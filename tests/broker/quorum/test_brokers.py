"""The life of a broker: registered, fenced, unfenced, about to stop, gone; and what partitions make of it."""

import uuid
from typing import Any, TypeVar

import pytest

from tidemill.broker.quorum.brokers import (
    BrokerHeartbeat,
    FenceBrokers,
    HeartbeatResult,
    Mended,
    MendPartitions,
    UnregisterBroker,
    Unregistration,
)
from tidemill.broker.quorum.image import ClusterImage, PartitionImage, apply, apply_batch
from tidemill.broker.quorum.metadata import (
    CreateTopics,
    NewTopic,
    RegisterBroker,
    Registration,
    Request,
    Result,
    Rules,
    decide,
)
from tidemill.broker.quorum.records import BrokerEndpoint, BrokerFeature, FeatureLevelRecord
from tidemill.core.error_code import ErrorCode

RULES = Rules(cluster_id="c")
ResponseT = TypeVar("ResponseT")


class Cluster:
    """Mutable: an image and what is asked of it."""

    def __init__(self, *nodes: int, rules: Rules = RULES) -> None:
        self.image = ClusterImage()
        self.rules = rules
        self.last = Result(records=(), response=())
        for node in nodes:
            self.start(node)

    def ask(self, request: Request, kind: type[ResponseT]) -> ResponseT:
        self.last = decide(self.image, request, self.rules)
        self.image = apply_batch(self.image, self.last.records)
        assert isinstance(self.last.response, kind)
        return self.last.response

    def register(self, node: int, incarnation: int = 1, **more: Any) -> Registration:
        terms: dict[str, Any] = {"fenced": True, "cluster_id": "c", "end_points": (), **more}
        incarnation_id = uuid.UUID(int=100 * node + incarnation)
        request = RegisterBroker(broker_id=node, incarnation_id=incarnation_id, **terms)
        return self.ask(request, Registration)

    def beat(self, node: int, **more: Any) -> HeartbeatResult:
        broker = self.image.brokers[node]
        terms: dict[str, Any] = {"broker_epoch": broker.epoch, "metadata_offset": self.image.offset - 1, **more}
        return self.ask(BrokerHeartbeat(broker_id=node, **terms), HeartbeatResult)

    def start(self, node: int, incarnation: int = 1, **more: Any) -> None:
        self.register(node, incarnation, **more)
        self.beat(node)

    def fence(self, *nodes: int) -> Mended:
        return self.ask(FenceBrokers(brokers=tuple((node, self.image.brokers[node].epoch) for node in nodes)), Mended)

    def create(self, *replicas: tuple[int, ...], **configs: str) -> None:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        topic = NewTopic(name="t", topic_id=uuid.UUID(int=9), assignments=dict(enumerate(replicas)), configs=named)
        (result,) = self.ask(CreateTopics(topics=(topic,)), tuple)
        assert result.error is None

    def state(self, number: int = 0) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """Leader, ISR, ELR."""
        partition = self.partition(number)
        return partition.leader, partition.isr, partition.eligible_leader_replicas

    def partition(self, number: int = 0) -> PartitionImage:
        return self.image.topics["t"].partitions[number]


def code(response: Registration | HeartbeatResult | Unregistration) -> int:
    return 0 if response.error is None else response.error.code


# --- another configuration


def test_a_controller_with_another_min_insync_replicas_frees_leaders_that_wait_for_eligible_ones() -> None:
    cluster = Cluster(1, 2, rules=Rules(cluster_id="c", min_insync_replicas=2))
    cluster.create((1, 2), (1, 2), min_insync_replicas="2")
    cluster.ask(CreateTopics(topics=(NewTopic(name="u", topic_id=uuid.UUID(int=8), assignments={0: (1, 2)}),)), tuple)
    cluster.fence(2)
    (partition,) = cluster.image.topics["u"].partitions
    assert (partition.isr, partition.eligible_leader_replicas) == ((1,), (2,))
    cluster.rules = RULES
    assert cluster.ask(MendPartitions(), Mended) == Mended()
    (partition,) = cluster.image.topics["u"].partitions
    assert (partition.leader, partition.isr, partition.eligible_leader_replicas) == (1, (1,), ())
    assert cluster.state() == (1, (1,), (2,)), "that topic has a setting of its own"
    cluster.ask(MendPartitions(), Mended)
    assert cluster.last.records == ()


# --- registration


def test_a_broker_is_fenced_until_it_has_taken_in_its_own_registration() -> None:
    cluster = Cluster()
    epoch = cluster.register(1).broker_epoch
    assert cluster.image.brokers[1].fenced
    assert cluster.beat(1, metadata_offset=epoch - 1) == HeartbeatResult(is_caught_up=False, is_fenced=True)
    assert cluster.beat(1, want_fence=True).is_fenced
    assert cluster.beat(1, metadata_offset=epoch) == HeartbeatResult(is_caught_up=True, is_fenced=False)
    assert cluster.beat(1) == HeartbeatResult(is_caught_up=True, is_fenced=False)
    assert cluster.last.records == ()


def test_a_quorum_of_one_takes_itself_in_at_once() -> None:
    cluster = Cluster()
    cluster.register(1, fenced=False, cluster_id="")
    assert len(cluster.last.records) == 1
    assert cluster.image.brokers[1].active


def test_the_same_process_keeps_its_epoch_and_its_state() -> None:
    cluster = Cluster(1, 2)
    epoch = cluster.image.brokers[1].epoch
    assert cluster.register(1, session_live=True).broker_epoch == epoch
    assert cluster.last.records == ()
    end_points = (BrokerEndpoint(name="P", host="h", port=1),)
    assert cluster.register(1, end_points=end_points).broker_epoch == epoch
    assert (cluster.image.brokers[1].end_points, cluster.image.brokers[1].fenced) == (end_points, False)


def test_two_processes_with_one_id_are_one_too_many() -> None:
    cluster = Cluster(1)
    refused = cluster.register(1, 2, session_live=True)
    assert (code(refused), cluster.last.records) == (ErrorCode.DUPLICATE_BROKER_REGISTRATION, ())
    assert code(cluster.register(1, 2)) == 0, "the session of the first is over"
    assert code(cluster.beat(1, broker_epoch=0)) == ErrorCode.STALE_BROKER_EPOCH


def test_who_holds_the_folder_of_the_one_before_need_not_wait_for_the_end_of_its_session() -> None:
    cluster = Cluster(1)
    epoch = cluster.image.brokers[1].epoch
    assert code(cluster.register(1, 2, session_live=True, previous_broker_epoch=epoch - 1)) != 0
    assert code(cluster.register(1, 2, session_live=True, loses_nothing=True)) != 0
    assert code(cluster.register(1, 2, session_live=True, previous_broker_epoch=epoch)) == 0
    assert code(cluster.beat(1, broker_epoch=epoch)) == ErrorCode.STALE_BROKER_EPOCH


def test_who_stops_in_order_may_be_followed_at_once() -> None:
    cluster = Cluster(1, 2)
    cluster.beat(1, want_shut_down=True)
    assert code(cluster.register(1, 2, session_live=True)) == 0
    assert not cluster.image.brokers[1].in_controlled_shutdown


@pytest.mark.parametrize(
    ("features", "error"),
    [
        ((), ErrorCode.UNSUPPORTED_VERSION),
        ((BrokerFeature(name="f", min_supported_version=1, max_supported_version=2),), ErrorCode.UNSUPPORTED_VERSION),
        ((BrokerFeature(name="f", min_supported_version=1, max_supported_version=3),), ErrorCode.NONE),
    ],
)
def test_a_broker_has_to_be_able_to_run_what_the_cluster_runs(
    features: tuple[BrokerFeature, ...], error: ErrorCode
) -> None:
    cluster = Cluster()
    cluster.image = apply(cluster.image, FeatureLevelRecord(name="f", feature_level=3))
    assert code(cluster.register(1, features=features)) == error


def test_a_broker_of_another_cluster_is_refused() -> None:
    assert code(Cluster().register(1, cluster_id="d")) == ErrorCode.INCONSISTENT_CLUSTER_ID


# --- who was in sync


def test_who_is_fenced_leaves_and_comes_back_by_way_of_its_leader() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((1, 2, 3))
    assert cluster.fence(1) == Mended(fenced=(1,))
    assert cluster.state() == (2, (2, 3), ())
    assert cluster.fence(2).fenced == (2,)
    assert cluster.state() == (3, (3,), (2,))
    cluster.fence(3)
    assert cluster.state() == (-1, (), (2, 3))
    cluster.beat(1)
    assert cluster.state() == (-1, (), (2, 3)), "it may lack what 2 and 3 acknowledged"
    cluster.beat(2)
    assert cluster.state() == (2, (2,), (3,))
    assert cluster.partition().leader_epoch == 4


def test_sessions_of_others_who_have_the_id_now_fence_nobody() -> None:
    cluster = Cluster(1)
    assert cluster.ask(FenceBrokers(brokers=((1, 77), (5, 0))), Mended) == Mended()
    assert cluster.image.brokers[1].active


@pytest.mark.parametrize("stopped", ["in order", "group", "unknown", "another"])
def test_what_an_incarnation_is_good_for_hangs_on_how_the_one_before_stopped(stopped: str) -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create((1, 2, 3))
    cluster.fence(3, 2, 1)
    assert cluster.state() == (-1, (), (1, 2, 3))
    epoch = cluster.image.brokers[1].epoch
    says: dict[str, Any] = {
        "in order": {"previous_broker_epoch": epoch},
        "group": {"loses_nothing": True},
        "unknown": {},
        "another": {"previous_broker_epoch": epoch - 1},
    }[stopped]
    cluster.register(1, 2, **says)
    kept = stopped in ("in order", "group")
    assert cluster.state()[2] == ((1, 2, 3) if kept else (2, 3))


def test_a_power_cut_of_all_loses_nothing_silently_and_leaves_nobody_without_a_leader_under_group() -> None:
    for loses_nothing in (True, False):
        cluster = Cluster(1, 2, 3)
        cluster.create((1, 2, 3))
        cluster.fence(1, 2, 3)
        for node in (1, 2, 3):
            cluster.start(node, 2, loses_nothing=loses_nothing)
        assert cluster.state() == ((1, (1,), (2, 3)) if loses_nothing else (-1, (), ()))
        assert cluster.partition().last_known_elr == (() if loses_nothing else (1,))
        assert cluster.last.unclean == ()


def test_the_only_replica_leads_again_whatever_happened_to_it() -> None:
    cluster = Cluster(1, 2)
    cluster.create((1,))
    cluster.register(1, 2)
    assert cluster.state() == (-1, (), ())
    cluster.beat(1)
    assert cluster.state() == (1, (1,), ())
    assert [each.leader for each in cluster.last.unclean] == [1]
    assert cluster.partition().leader_recovery_state == 1


def test_a_topic_may_take_any_leader_rather_than_none() -> None:
    cluster = Cluster(1, 2)
    cluster.create((1, 2), unclean_leader_election_enable="true")
    cluster.fence(2)
    assert cluster.state() == (1, (1,), ())
    cluster.beat(2)
    cluster.fence(1)
    assert cluster.state() == (2, (2,), ())
    assert [each.isr_before for each in cluster.last.unclean] == [(1,)]


# --- stopping


def test_leaderships_move_then_the_others_hear_of_it_then_it_goes() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.fence(3)
    cluster.create((1, 2), (1, 3))
    result = cluster.beat(1, want_shut_down=True)
    assert (result.should_shut_down, result.left_at) == (False, cluster.image.offset)
    assert [cluster.state(number)[0] for number in (0, 1)] == [2, -1]
    assert not cluster.beat(1, want_shut_down=True).should_shut_down
    assert cluster.last.records == ()
    result = cluster.beat(1, want_shut_down=True, others_know=True)
    assert (result.should_shut_down, result.is_fenced) == (True, True)
    assert cluster.image.brokers[1].fenced
    assert cluster.beat(1, want_shut_down=True).should_shut_down
    assert cluster.beat(1).is_fenced, "an incarnation that stops does not come back"


def test_a_broker_is_forgotten_when_it_is_gone() -> None:
    cluster = Cluster(1, 2)
    assert code(cluster.ask(UnregisterBroker(broker_id=1), Unregistration)) == ErrorCode.INVALID_REQUEST
    assert code(cluster.ask(UnregisterBroker(broker_id=7), Unregistration)) == ErrorCode.BROKER_ID_NOT_REGISTERED
    cluster.create((1, 2))
    cluster.fence(1)
    assert code(cluster.ask(UnregisterBroker(broker_id=1), Unregistration)) == 0
    assert 1 not in cluster.image.brokers
    cluster.fence(2)
    cluster.register(1, 2, loses_nothing=True)
    assert cluster.state()[2] == (2,), "nothing is known of what it was"


def test_a_new_topic_is_held_by_who_is_away_and_in_sync_without_it() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.fence(1)
    cluster.create((1, 2, 3))
    assert cluster.state() == (2, (2, 3), ())
    cluster.fence(2, 3)
    topic = NewTopic(name="u", topic_id=uuid.UUID(int=8), assignments={0: (1, 2)})
    (result,) = cluster.ask(CreateTopics(topics=(topic,)), tuple)
    assert result.error.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


# --- many partitions


def test_many_partitions_are_mended_bit_by_bit() -> None:
    cluster = Cluster(1, 2, rules=Rules(cluster_id="c", changes_max=4))
    cluster.create(*[(1, 2)] * 10)
    assert cluster.fence(1) == Mended(fenced=(1,), unfinished=True)
    assert len(cluster.last.records) == 5
    assert cluster.ask(MendPartitions(), Mended) == Mended(unfinished=True)
    assert cluster.ask(MendPartitions(), Mended) == Mended()
    assert all(cluster.state(number)[:2] == (2, (2,)) for number in range(10))
    assert cluster.ask(MendPartitions(), Mended) == Mended()
    assert cluster.last.records == ()


def test_a_registration_waits_until_all_partitions_know() -> None:
    cluster = Cluster(1, 2, rules=Rules(cluster_id="c", changes_max=4))
    cluster.create(*[(1, 2)] * 10)
    epoch = cluster.image.brokers[1].epoch
    assert [cluster.register(1, 2).unfinished for _ in range(2)] == [True, True]
    assert (cluster.image.brokers[1].epoch, cluster.image.brokers[1].fenced) == (epoch, True)
    registered = cluster.register(1, 2)
    assert (registered.unfinished, registered.broker_epoch > epoch) == (False, True)
    assert all(cluster.state(number)[:2] == (2, (2,)) for number in range(10))
