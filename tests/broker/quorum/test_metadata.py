"""The metadata machine: every rule, and replay equal to live state under random requests."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.broker.quorum.metadata import (
    PRODUCER_ID_BLOCK,
    AllocateProducerIds,
    AlterConfigs,
    ClusterImage,
    ConfigChange,
    ConfigOp,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    NewTopic,
    PartitionIncrease,
    RegisterBroker,
    Request,
    ResourceChange,
    Rules,
    TopicRef,
    TopicResult,
    apply,
    apply_batch,
    decide,
    with_topic_ids,
)
from tidemill.broker.quorum.records import BrokerEndpoint, ConfigRecord, decode_record, encode_record
from tidemill.broker.quorum.shared_map import MapDraft
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import StaleBrokerEpoch

RULES = Rules()


def cluster(*nodes: int) -> ClusterImage:
    image = ClusterImage()
    for node in nodes or (1,):
        request = RegisterBroker(
            broker_id=node,
            incarnation_id=uuid.UUID(int=node),
            end_points=(BrokerEndpoint(name="PLAINTEXT", host="h", port=1),),
        )
        image = apply_batch(image, decide(image, request, RULES).records)
    return image


def run(image: ClusterImage, request: Request, rules: Rules = RULES) -> tuple[ClusterImage, Any]:
    result = decide(image, request, rules)
    return apply_batch(image, result.records), result.response


def create(image: ClusterImage, *topics: NewTopic, rules: Rules = RULES, **terms: Any) -> tuple[ClusterImage, Any]:
    request = CreateTopics(topics=topics, **terms)
    ids = [uuid.UUID(int=1000 + len(image.topic_names) + index) for index in range(len(topics))]
    return run(image, with_topic_ids(request, ids), rules)


def codes(results: tuple[TopicResult, ...]) -> list[int]:
    return [0 if result.error is None else result.error.code for result in results]


def test_a_topic_takes_the_defaults_of_the_cluster() -> None:
    image, (result,) = create(cluster(), NewTopic(name="t"), rules=Rules(num_partitions=3))
    assert (result.error, result.partitions, result.replication_factor) == (None, 3, 1)
    topic = image.topics["t"]
    assert [(p.partition, p.leader, p.replicas, p.isr, p.leader_epoch) for p in topic.partitions] == [
        (index, 1, (1,), (1,), 0) for index in range(3)
    ]


def test_replicas_are_spread_and_leaders_take_turns() -> None:
    image, _ = create(cluster(1, 2, 3), NewTopic(name="t", partitions=6, replication_factor=2))
    partitions = image.topics["t"].partitions
    assert sorted(p.leader for p in partitions) == [1, 1, 2, 2, 3, 3]
    assert all(len(set(p.replicas)) == 2 and p.leader == p.replicas[0] for p in partitions)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic(name=""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(name="."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(name=".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(name="a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(name="é"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(name="a\n"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(name="x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(name="__cluster_metadata"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(name="x" * 249), ErrorCode.NONE),
        (NewTopic(name="taken"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (NewTopic(name="t", partitions=0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic(name="t", partitions=-2), ErrorCode.INVALID_PARTITIONS),
        (NewTopic(name="t", partitions=2**31 - 1), ErrorCode.POLICY_VIOLATION),
        (NewTopic(name="t", replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic(name="t", replication_factor=2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic(name="t", configs={"retention.ms": "x"}), ErrorCode.INVALID_CONFIG),
        (NewTopic(name="t", configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        (NewTopic(name="t", configs={"nonsense": "1"}), ErrorCode.INVALID_CONFIG),
        (NewTopic(name="t", configs={"cleanup.policy": "compact,delete"}), ErrorCode.NONE),
        (NewTopic(name="t", assignments={0: (1,), 1: (1,)}), ErrorCode.NONE),
        (NewTopic(name="t", assignments={0: (1,)}, partitions=1), ErrorCode.INVALID_REQUEST),
        (NewTopic(name="t", assignments={1: (1,)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic(name="t", assignments={0: ()}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic(name="t", assignments={0: (1, 1)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic(name="t", assignments={0: (7,)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_what_a_new_topic_may_be(topic: NewTopic, code: ErrorCode) -> None:
    image, _ = create(cluster(), NewTopic(name="taken"))
    after, (result,) = create(image, topic)
    assert (0 if result.error is None else result.error.code) == code
    assert (topic.name in after.topics and topic.name != "taken") == (code is ErrorCode.NONE)


def test_assignments_need_the_same_number_of_replicas_everywhere() -> None:
    _, (result,) = create(cluster(1, 2), NewTopic(name="t", assignments={0: (1, 2), 1: (1,)}))
    assert result.error.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_an_unknown_setting_names_the_nearest_one() -> None:
    _, (result,) = create(cluster(), NewTopic(name="t", configs={"retention.mss": "1"}))
    assert "did you mean 'retention.ms'" in str(result.error)


def test_entries_of_one_request_are_judged_one_after_the_other() -> None:
    rules = Rules(max_topics=2, max_partitions=3)
    names = [NewTopic(name=name, partitions=1) for name in "abc"]
    image, results = create(cluster(), *names, rules=rules)
    assert codes(results) == [0, 0, ErrorCode.POLICY_VIOLATION]
    image, results = create(image, NewTopic(name="d"), rules=Rules(max_partitions=2))
    assert codes(results) == [ErrorCode.POLICY_VIOLATION]


def test_a_name_given_twice_is_refused_once() -> None:
    image, results = create(cluster(), NewTopic(name="a"), NewTopic(name="a"), NewTopic(name="b"))
    assert [(result.name, code) for result, code in zip(results, codes(results), strict=True)] == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", 0),
    ]
    assert list(image.topics) == ["b"]


@pytest.mark.parametrize("others", [0, 40])
@pytest.mark.parametrize(
    ("name", "refused"),
    [("a_b", True), ("a_b.c", False), ("ab", False), ("a.b", False), ("c.d.e", True), ("c_d_f", False)],
)
def test_no_two_topics_differ_only_in_dots_and_underscores(name: str, refused: bool, others: int) -> None:
    image, _ = create(
        cluster(), NewTopic(name="a.b"), NewTopic(name="c_d.e"), *(NewTopic(name=f"o-{n}") for n in range(others))
    )
    _, (result,) = create(image, NewTopic(name=name))
    expected = ErrorCode.INVALID_TOPIC_EXCEPTION if refused else 0
    assert codes((result,)) == [ErrorCode.TOPIC_ALREADY_EXISTS if name == "a.b" else expected]
    _, results = create(cluster(), NewTopic(name="x.y"), NewTopic(name="x_y"))
    assert codes(results) == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_a_name_that_looks_the_same_is_free_again_when_its_topic_is_gone() -> None:
    image, _ = create(cluster(), NewTopic(name="a_b.c"))
    _, (refused,) = create(image, NewTopic(name="a.b_c"))
    assert "'a_b.c'" in str(refused.error)
    image, _ = run(image, DeleteTopics(topics=(TopicRef(name="a_b.c"),)))
    image, (made,) = create(image, NewTopic(name="a.b_c"))
    assert made.error is None
    assert codes(create(image, NewTopic(name="a_b_c"))[1]) == [ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_a_new_name_is_judged_without_a_walk_over_all_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of names with many dots come in one request, and there may be a hundred thousand topics."""
    image, _ = create(cluster(), *(NewTopic(name=f"o-{n}") for n in range(200)))

    def walked(_draft: object) -> Iterator[str]:
        raise AssertionError("walked over all topics")

    monkeypatch.setattr(MapDraft, "__iter__", walked)
    _, (result,) = create(image, NewTopic(name="_" * 200))
    assert result.error is None


def test_validate_only_answers_and_changes_nothing() -> None:
    image = cluster()
    after, (result,) = create(image, NewTopic(name="t", partitions=4), validate_only=True)
    assert (result.error, result.partitions) == (None, 4)
    assert after == image


def test_topics_are_deleted_by_name_or_id() -> None:
    image, results = create(cluster(), NewTopic(name="a"), NewTopic(name="b"), NewTopic(name="__consumer_offsets"))
    refs = (
        TopicRef(name="a"),
        TopicRef(topic_id=results[1].topic_id),
        TopicRef(name="c"),
        TopicRef(topic_id=uuid.UUID(int=5)),
        TopicRef(name="__consumer_offsets"),
    )
    image, deleted = run(image, DeleteTopics(topics=refs))
    assert codes(deleted) == [
        0,
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.POLICY_VIOLATION,
    ]
    assert deleted[1].name == "b"
    assert list(image.topics) == ["__consumer_offsets"]


def test_a_topic_to_delete_is_named_once_and_in_one_way() -> None:
    image, (made,) = create(cluster(), NewTopic(name="a"))
    refs = (TopicRef(name="a"), TopicRef(name="a"), TopicRef(), TopicRef(name="a", topic_id=made.topic_id))
    after, deleted = run(image, DeleteTopics(topics=refs))
    assert codes(deleted) == [ErrorCode.INVALID_REQUEST] * 3
    assert after == image


def test_deleting_can_be_forbidden() -> None:
    image, _ = create(cluster(), NewTopic(name="a"))
    _, results = run(image, DeleteTopics(topics=(TopicRef(name="a"),)), Rules(delete_topic_enable=False))
    assert codes(results) == [ErrorCode.TOPIC_DELETION_DISABLED]


@pytest.mark.parametrize(
    ("increase", "code"),
    [
        (PartitionIncrease(name="t", count=3), ErrorCode.NONE),
        (PartitionIncrease(name="t", count=3, assignments=((1,), (1,))), ErrorCode.NONE),
        (PartitionIncrease(name="t", count=1), ErrorCode.INVALID_PARTITIONS),
        (PartitionIncrease(name="t", count=0), ErrorCode.INVALID_PARTITIONS),
        (PartitionIncrease(name="t", count=2**31 - 1), ErrorCode.POLICY_VIOLATION),
        (PartitionIncrease(name="t", count=3, assignments=((1,),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (PartitionIncrease(name="t", count=2, assignments=((9,),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (PartitionIncrease(name="missing", count=3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (PartitionIncrease(name="__consumer_offsets", count=3), ErrorCode.POLICY_VIOLATION),
    ],
)
def test_how_a_topic_may_grow(increase: PartitionIncrease, code: ErrorCode) -> None:
    image, _ = create(cluster(), NewTopic(name="t"), NewTopic(name="__consumer_offsets"))
    after, results = run(image, CreatePartitions(topics=(increase,)))
    assert codes(results) == [code]
    assert len(after.topics["t"].partitions) == (3 if code is ErrorCode.NONE else 1)
    unchanged, _ = run(image, CreatePartitions(topics=(increase,), validate_only=True))
    assert unchanged == image
    _, twice = run(image, CreatePartitions(topics=(increase, increase)))
    assert codes(twice) == [ErrorCode.INVALID_REQUEST]


def alter(image: ClusterImage, *changes: ConfigChange, kind: int = 2, name: str = "t") -> tuple[ClusterImage, int]:
    resource = ResourceChange(resource_type=kind, resource_name=name, changes=changes)
    after, (result,) = run(image, AlterConfigs(resources=(resource,)))
    return after, 0 if result.error is None else result.error.code


def change(name: str, value: str | None, op: int = ConfigOp.SET) -> ConfigChange:
    return ConfigChange(name=name, op=op, value=value)


def test_settings_are_set_appended_to_subtracted_from_and_deleted() -> None:
    image, _ = create(cluster(), NewTopic(name="t"))
    image, code = alter(image, change("retention.ms", "5"), change("cleanup.policy", "compact", ConfigOp.APPEND))
    assert code == 0
    assert dict(image.topics["t"].configs) == {"retention.ms": "5", "cleanup.policy": "delete,compact"}
    image, code = alter(
        image,
        change("cleanup.policy", "delete", ConfigOp.SUBTRACT),
        change("retention.ms", None, ConfigOp.DELETE),
    )
    assert code == 0
    assert dict(image.topics["t"].configs) == {"cleanup.policy": "compact"}


def test_a_change_that_changes_nothing_writes_nothing() -> None:
    image, _ = create(cluster(), NewTopic(name="t", configs={"retention.ms": "5"}))
    assert alter(image, change("retention.ms", "5"))[0] == image
    assert alter(image, change("segment.ms", None, ConfigOp.DELETE))[0] == image


@pytest.mark.parametrize(
    ("kind", "name", "given", "code"),
    [
        (2, "t", change("nonsense", "1"), ErrorCode.INVALID_CONFIG),
        (2, "t", change("retention.ms", "soon"), ErrorCode.INVALID_CONFIG),
        (2, "t", change("retention.ms", None), ErrorCode.INVALID_REQUEST),
        (2, "t", change("retention.ms", "1", ConfigOp.APPEND), ErrorCode.INVALID_CONFIG),
        (2, "t", change("retention.ms", "1", 9), ErrorCode.INVALID_REQUEST),
        (2, "missing", change("retention.ms", "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (2, "", change("retention.ms", "1"), ErrorCode.INVALID_REQUEST),
        (4, "1", change("log.retention.ms", "1"), ErrorCode.NONE),
        (4, "", change("log.retention.ms", "1"), ErrorCode.NONE),
        (4, "2", change("log.retention.ms", "1"), ErrorCode.INVALID_REQUEST),
        (4, "x", change("log.retention.ms", "1"), ErrorCode.INVALID_REQUEST),
        (4, "1", change("num.partitions", "3"), ErrorCode.INVALID_REQUEST),
        (4, "1", change("log.retention.mss", "3"), ErrorCode.INVALID_CONFIG),
        (4, "1", change("leader.replication.throttled.rate", "-1"), ErrorCode.INVALID_REQUEST),
        (8, "1", change("x", "3"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_may_be_changed(kind: int, name: str, given: ConfigChange, code: ErrorCode) -> None:
    image, _ = create(cluster(), NewTopic(name="t"))
    after, got = alter(image, given, kind=kind, name=name)
    assert got == code
    assert (after == image) == (code is not ErrorCode.NONE)


def test_settings_that_contradict_each_other_are_refused() -> None:
    least, most = change("min.compaction.lag.ms", "10"), change("max.compaction.lag.ms", "5")
    image, _ = create(cluster(), NewTopic(name="t"))
    assert alter(image, least, most) == (image, ErrorCode.INVALID_CONFIG)
    image, code = alter(image, least)
    assert code == 0
    assert alter(image, most) == (image, ErrorCode.INVALID_CONFIG)
    _, (result,) = create(cluster(), NewTopic(name="u", configs={least.name: least.value, most.name: most.value}))
    assert codes((result,)) == [ErrorCode.INVALID_CONFIG]
    assert str(result.error) == "min.compaction.lag.ms (10) is more than max.compaction.lag.ms (5)"


def test_what_was_never_set_may_be_deleted_whatever_it_is_called() -> None:
    image, _ = create(cluster(), NewTopic(name="t"))
    for kind, name, key in ((2, "t", "nonsense"), (4, "1", "nonsense"), (4, "1", "num.partitions")):
        assert alter(image, change(key, None, ConfigOp.DELETE), kind=kind, name=name) == (image, 0)


def test_a_setting_without_effect_is_refused_with_the_reason() -> None:
    resource = ResourceChange(resource_type=4, resource_name="1", changes=(change("num.io.threads", "8"),))
    _, (result,) = run(cluster(), AlterConfigs(resources=(resource,)))
    assert result.error is not None
    assert result.error.code == ErrorCode.INVALID_CONFIG
    assert str(result.error) == "Configuration 'num.io.threads' has no effect here: one event loop serves the node"


def test_settings_that_need_a_restart_are_named_all_at_once() -> None:
    given = (change("num.partitions", "3"), change("log.retention.ms", "5"), change("node.id", "2"))
    resource = ResourceChange(resource_type=4, resource_name="1", changes=given)
    _, (result,) = run(cluster(), AlterConfigs(resources=(resource,)))
    assert result.error is not None
    assert result.error.code == ErrorCode.INVALID_REQUEST
    assert str(result.error).startswith("Cannot update these configs dynamically: [node.id, num.partitions]")


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("min.insync.replicas", "2", "Broker-level min.insync.replicas cannot be altered"),
        ("unclean.leader.election.enable", "true", "Broker-level unclean.leader.election.enable cannot be altered"),
        ("listener.name.internal.ssl.keystore.location", "/new.pem", "dynamically: set it in the file and restart"),
    ],
)
def test_what_holds_for_no_single_broker_is_refused_for_one(name: str, value: str, sentence: str) -> None:
    resource = ResourceChange(resource_type=4, resource_name="1", changes=(change(name, value),))
    image, (result,) = run(cluster(), AlterConfigs(resources=(resource,)))
    assert result.error is not None
    assert sentence in str(result.error)
    assert not image.broker_configs
    everybody = ResourceChange(resource_type=4, resource_name="", changes=(change(name, value),))
    _, (result,) = run(cluster(), AlterConfigs(resources=(everybody,)))
    assert (result.error is None) == (not name.startswith("listener."))


@pytest.mark.parametrize("name", ["01", "+1", "\u0661", " 1", "7"])
def test_a_broker_has_one_name(name: str) -> None:
    resource = ResourceChange(resource_type=4, resource_name=name, changes=(change("log.retention.ms", "5"),))
    image, (result,) = run(cluster(), AlterConfigs(resources=(resource,)))
    assert f"no broker has the id {name!r}" in str(result.error)
    assert not image.broker_configs


def test_replacing_settings_drops_those_that_are_not_named() -> None:
    image, _ = create(cluster(), NewTopic(name="t", configs={"retention.ms": "5", "segment.ms": "7"}))

    def replaced(*changes: ConfigChange) -> tuple[ClusterImage, int]:
        resource = ResourceChange(resource_type=2, resource_name="t", changes=changes, replace=True)
        after, (result,) = run(image, AlterConfigs(resources=(resource,)))
        return after, 0 if result.error is None else result.error.code

    after, code = replaced(change("segment.ms", "7"), change("max.message.bytes", "9"))
    assert (code, dict(after.topics["t"].configs)) == (0, {"segment.ms": "7", "max.message.bytes": "9"})
    after, code = replaced()
    assert (code, dict(after.topics["t"].configs)) == (0, {})
    assert replaced(change("segment.ms", None)) == (image, ErrorCode.INVALID_REQUEST)
    assert replaced(change("segment.ms", "soon")) == (image, ErrorCode.INVALID_CONFIG)


def test_a_setting_of_another_version_stands_in_nobodys_way_and_can_be_deleted() -> None:
    image, _ = create(cluster(), NewTopic(name="t"))
    image = apply(image, ConfigRecord(resource_type=2, resource_name="t", name="from.the.future", value="?"))
    image, code = alter(image, change("retention.ms", "5"))
    assert (code, set(image.topics["t"].configs)) == (0, {"from.the.future", "retention.ms"})
    image, code = alter(image, change("from.the.future", None, ConfigOp.DELETE))
    assert (code, set(image.topics["t"].configs)) == (0, {"retention.ms"})


def test_a_resource_changes_as_a_whole_or_not_at_all() -> None:
    image, _ = create(cluster(), NewTopic(name="t"))
    after, code = alter(image, change("retention.ms", "1"), change("segment.ms", "soon"))
    assert (code, after) == (ErrorCode.INVALID_CONFIG, image)
    after, code = alter(image, change("retention.ms", "1"), change("retention.ms", "2"))
    assert (code, after) == (ErrorCode.INVALID_REQUEST, image)
    resource = ResourceChange(resource_type=2, resource_name="t", changes=(change("retention.ms", "1"),))
    _, results = run(image, AlterConfigs(resources=(resource, resource)))
    assert codes(results) == [ErrorCode.INVALID_REQUEST] * 2
    after, _ = run(image, AlterConfigs(resources=(resource,), validate_only=True))
    assert after == image


def test_producer_ids_are_handed_out_once() -> None:
    image = cluster()
    seen: set[int] = set()
    for _ in range(3):
        image, block = run(image, AllocateProducerIds(broker_id=1))
        ids = set(range(block.first, block.first + block.count))
        assert block.count == PRODUCER_ID_BLOCK
        assert not ids & seen
        seen |= ids


def test_an_incarnation_that_is_over_gets_no_producer_ids() -> None:
    image = cluster()
    epoch = image.brokers[1].epoch
    _, block = run(image, AllocateProducerIds(broker_id=1, broker_epoch=epoch))
    assert block.count == PRODUCER_ID_BLOCK
    for node, said in ((1, epoch - 1), (1, epoch + 1), (77, epoch)):
        with pytest.raises(StaleBrokerEpoch):
            run(image, AllocateProducerIds(broker_id=node, broker_epoch=said))


def test_a_broker_that_comes_back_gets_a_later_epoch() -> None:
    image = cluster()
    again = RegisterBroker(broker_id=1, incarnation_id=uuid.UUID(int=9), end_points=())
    after, registration = run(image, again)
    assert registration.broker_epoch > image.brokers[1].epoch
    assert after.brokers[1].incarnation_id == uuid.UUID(int=9)


names = st.sampled_from(["a", "b", "c", "bad name"])
requests = st.one_of(
    st.builds(
        CreateTopics,
        topics=st.lists(
            st.builds(
                NewTopic,
                name=names,
                topic_id=st.uuids(),
                partitions=st.integers(-1, 3),
                replication_factor=st.integers(-1, 3),
                configs=st.dictionaries(
                    st.sampled_from(["retention.ms", "segment.ms", "nonsense"]),
                    st.sampled_from(["1", "2", "x"]),
                    max_size=2,
                ),
            ),
            max_size=3,
        ).map(tuple),
    ),
    st.builds(DeleteTopics, topics=st.lists(st.builds(TopicRef, name=names), max_size=2).map(tuple)),
    st.builds(
        CreatePartitions,
        topics=st.lists(st.builds(PartitionIncrease, name=names, count=st.integers(0, 6)), max_size=2).map(tuple),
    ),
    st.builds(
        AlterConfigs,
        resources=st.lists(
            st.builds(
                ResourceChange,
                resource_type=st.just(2),
                resource_name=names,
                changes=st.lists(
                    st.builds(
                        ConfigChange,
                        name=st.sampled_from(["retention.ms", "cleanup.policy"]),
                        op=st.sampled_from(list(ConfigOp)),
                        value=st.sampled_from(["1", "delete", "compact", None]),
                    ),
                    max_size=2,
                ).map(tuple),
            ),
            max_size=2,
        ).map(tuple),
    ),
    st.just(AllocateProducerIds(broker_id=1)),
)


@given(st.lists(requests, max_size=12))
def test_replaying_the_log_gives_the_live_image(script: list[Request]) -> None:
    start = image = cluster(1, 2)
    log: list[bytes] = []
    for request in script:
        before = image
        result = decide(image, request, RULES)
        assert image == before
        log += [encode_record(record) for record in result.records]
        image = apply_batch(image, result.records)
        assert image.partition_count == sum(len(topic.partitions) for topic in image.topics.values())
        assert {topic.topic_id: name for name, topic in image.topics.items()} == dict(image.topic_names)
    assert apply_batch(start, [decode_record(value) for value in log]) == image
