"""The grammar of mm2.properties, its defaults, and its errors."""

import pytest

from tidemill.core.config import ConfigError, parse_properties
from tidemill.mirror.config import FLOW_TABLE, MirrorConfig, parse_mirror_config
from tidemill.mirror.link import Reset
from tidemill.mirror.naming import DefaultPolicy, IdentityPolicy

MINIMAL = """
clusters = A, B
A.bootstrap.servers = a1:9092, a2:9092
B.bootstrap.servers = b:9092
A->B.enabled = true
"""
IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


def parse(text: str) -> MirrorConfig:
    return parse_mirror_config(parse_properties(text))


def problems(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    return "\n".join(caught.value.problems)


def test_defaults_are_those_of_mirrormaker_2() -> None:
    flow = parse(MINIMAL).flow("A", "B")
    assert flow.enabled
    assert flow.policy == DefaultPolicy()
    assert flow.selection.takes("orders")
    assert not flow.selection.takes("x.replica")
    assert flow.groups.accepts("billing")
    assert not flow.groups.accepts("connect-x")
    assert flow.configs_exclude.accepts("min.insync.replicas")
    assert (flow.replication_factor, flow.refresh_topics.seconds, flow.emit_checkpoints.seconds) == (2, 600, 60)
    assert (flow.sync_group_offsets.enabled, flow.emit_heartbeats.seconds) == (False, 1)
    assert flow.syncs_on_source
    assert not parse(MINIMAL).flow("B", "A").enabled


def test_a_flows_own_key_wins_over_a_bare_one() -> None:
    config = parse(MINIMAL + "topics = a.*\nB->A.topics = b.*\nreplication.factor = 3\n")
    assert config.flow("A", "B").selection.takes("abc")
    assert not config.flow("B", "A").selection.takes("abc")
    assert config.flow("B", "A").replication_factor == 3


def test_reading_settings_belong_to_the_source_cluster() -> None:
    config = parse(MINIMAL + "A.consumer.auto.offset.reset = latest\nA.consumer.isolation.level=read_uncommitted\n")
    assert config.clusters["A"].reset is Reset.LATEST
    assert (config.clusters["A"].isolation_level, config.clusters["B"].isolation_level) == (0, 1)


def test_aliases_may_contain_one_another() -> None:
    text = "clusters = A, A.x\nA.bootstrap.servers=a:1\nA.x.bootstrap.servers=x:1\nA->A.x.enabled=true\n"
    config = parse(text)
    assert config.clusters["A.x"].bootstrap_servers == "x:1"
    assert config.flow("A", "A.x").enabled


def test_keys_without_effect_are_listed() -> None:
    config = parse(MINIMAL + "tasks.max = 10\nA.producer.batch.size = 1\nB.offset.storage.replication.factor = 1\n")
    assert config.without_effect == ("tasks.max", "A.producer.batch.size", "B.offset.storage.replication.factor")


def test_every_problem_is_reported_at_once_with_the_nearest_key() -> None:
    found = problems(
        MINIMAL
        + "topcs = a\nA->B.emit.heartbeat.enabled = true\nA.consumer.auto.offset.rset = latest\nA->C.enabled = true\n"
        + "B.security.protocol = SASL_SSL\nB.consumer.auto.offset.reset = soon\nA->B.replication.factor = 0\n"
    )
    for expected in (
        "'topcs': did you mean 'topics'?",
        "did you mean 'A->B.emit.heartbeats.enabled'?",
        "did you mean 'A.consumer.auto.offset.reset'?",
        "'A->C.enabled' names a cluster that is not in clusters",
        "B: security.protocol=SASL_SSL is not available yet",
        "soon is not one of earliest, latest, none",
        "Value must be at least 1",
    ):
        assert expected in found


def test_what_would_change_the_outcome_is_refused_by_name() -> None:
    found = problems(
        MINIMAL
        + "topic.filter.class = com.example.Mine\nA->B.sync.topic.acls.enabled = true\ntransforms = Mask\n"
        + "transforms.Mask.type = com.example.Mask\nB.producer.compression.type = zstd\n"
        + "A->B.consumer.isolation.level = read_uncommitted\nsecurity.protocol = SASL_SSL\n"
    )
    for expected in (
        "topic.filter.class = com.example.Mine: topics are chosen by `topics`",
        "A->B.sync.topic.acls.enabled = true: ACLs are not mirrored",
        "transforms = Mask: batches are mirrored as bytes",
        "transforms.Mask.type = com.example.Mask: batches are mirrored as bytes",
        "B.producer.compression.type = zstd: batches keep the codec of the source",
        "A->B.consumer.isolation.level belongs to the cluster that is read",
        "security.protocol=SASL_SSL is not available yet",
    ):
        assert expected in found
    assert "did you mean" not in found


def test_each_cluster_has_its_own_way_to_be_reached() -> None:
    config = parse(
        MINIMAL
        + "ssl.truststore.location = /all.pem\nA.security.protocol = SSL\nA.consumer.ssl.keystore.location = /a.pem\n"
        + "B.ssl.key.password = x\n"
    )
    assert dict(config.clusters["A"].security) == {
        "ssl.truststore.location": "/all.pem",
        "security.protocol": "SSL",
        "ssl.keystore.location": "/a.pem",
    }
    assert config.without_effect == ("B.ssl.key.password",)  # it is not encrypted
    assert "/a.pem" not in repr(config)


def test_settings_of_encryption_that_contradict_one_another() -> None:
    found = problems(
        MINIMAL
        + "A.security.protocol = SSL\nA.ssl.truststore.location = /1\nA.producer.ssl.truststore.location = /2\n"
        + "A.ssl.keystore.type = JKS\nA->B.ssl.truststore.location = /3\n"
    )
    for expected in (
        "A.producer.ssl.truststore.location contradicts another: every client of A is the same here",
        "ssl.keystore.type: only PEM is read",
        "A->B.ssl.truststore.location belongs to a cluster: write it as <alias>.ssl.truststore.location",
    ):
        assert expected in found


def test_nothing_far_fetched_is_suggested() -> None:
    assert problems(MINIMAL + "retention.hours = 3\n") == "Unknown configuration 'retention.hours'"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "at least two clusters"),
        ("clusters = A", "at least two clusters"),
        ("clusters = A, A", "names one twice"),
        ("clusters = A, B\nA.bootstrap.servers = a:1\n", "B.bootstrap.servers is missing"),
        (MINIMAL.replace("b:9092", "b"), "expected host:port, got 'b'"),
        (MINIMAL + "topics = *.log\n", "is not a regular expression"),
        (MINIMAL + "replication.policy.class = com.example.Mine\n", "com.example.Mine is not one of"),
    ],
)
def test_bad_files_say_what_is_wrong(text: str, expected: str) -> None:
    assert expected in problems(text)


def test_a_circle_of_flows_that_keep_names_is_refused() -> None:
    text = MINIMAL + f"B->A.enabled = true\nreplication.policy.class = {IDENTITY}\n"
    assert "A->B->A" in problems(text)
    one_way = parse(text + "B->A.replication.policy.class = default\n")
    assert one_way.flow("A", "B").policy == IdentityPolicy(source_alias="A")


def test_a_ring_of_three_is_refused() -> None:
    text = "clusters=A,B,C\nreplication.policy.class=identity\n" + "".join(
        f"{alias}.bootstrap.servers={alias}:1\n" for alias in "ABC"
    )
    ring = text + "A->B.enabled=true\nB->C.enabled=true\nC->A.enabled=true\n"
    assert "A->B->C->A" in problems(ring)
    assert len(parse(text + "A->B.enabled=true\nB->C.enabled=true\nA->C.enabled=true\n").enabled_flows()) == 3


def test_flows_can_be_chosen_by_their_target() -> None:
    config = parse(MINIMAL + "B->A.enabled = true\n")
    assert [flow.name for flow in config.enabled_flows()] == ["A->B", "B->A"]
    assert [flow.name for flow in config.enabled_flows(["A"])] == ["B->A"]


def test_every_key_is_documented() -> None:
    assert all(key.doc for key in FLOW_TABLE)
