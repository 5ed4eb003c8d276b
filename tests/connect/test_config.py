"""Worker settings and the tables of connector settings"""

import pytest

from tidemill.connect.config import (
    CONNECTOR,
    SINK,
    SOURCE,
    WORKER,
    WORKER_REFUSED,
    WORKER_WITHOUT_EFFECT,
    Address,
    converter,
    groups,
    parse_worker,
)
from tidemill.core.config import ConfigError, parse_properties

APACHE_FILE = """
# what Apache's own sample says
bootstrap.servers=kafka-1:9092,kafka-2:9092
group.id=connect-cluster
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
key.converter.schemas.enable=true
value.converter.schemas.enable=false
offset.storage.topic=connect-offsets
offset.storage.replication.factor=1
offset.storage.partitions=7
config.storage.topic=connect-configs
config.storage.replication.factor=1
status.storage.topic=connect-status
status.storage.replication.factor=1
status.storage.segment.bytes=1000000
offset.flush.interval.ms=10000
listeners=HTTP://:8083
rest.advertised.host.name=worker-1
plugin.path=/usr/local/share/java
producer.linger.ms=7
consumer.max.poll.records=10
security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";
session.timeout.ms=10000
exactly.once.source.support=disabled
header.converter=org.apache.kafka.connect.storage.SimpleHeaderConverter
"""


def test_everything_has_a_default() -> None:
    worker = parse_worker({})
    assert worker.bootstrap_servers == "localhost:9092"
    assert worker.group_id == "connect-cluster"
    topics = [worker.config_topic, worker.offset_topic, worker.status_topic]
    assert [(topic.name, topic.partitions, topic.replication_factor) for topic in topics] == [
        ("connect-configs", 1, 3),
        ("connect-offsets", 25, 3),
        ("connect-status", 5, 3),
    ]
    assert worker.listener == Address("127.0.0.1", 8083)  # whoever reaches the API may do anything
    assert all(topic.at_most for topic in topics)
    assert (worker.key_converter.kind, worker.value_converter.kind) == ("json", "json")
    assert worker.offset_flush_interval_ms == 60_000
    assert worker.notes == ()


def test_the_file_of_apaches_worker_is_taken_as_it_is() -> None:
    worker = parse_worker(parse_properties(APACHE_FILE))
    assert worker.bootstrap_servers == "kafka-1:9092,kafka-2:9092"
    assert worker.value_converter.kind == "string"
    assert not worker.value_converter.flag("schemas.enable", True)
    assert worker.key_converter.flag("schemas.enable", False)
    assert worker.offset_topic.partitions == 7
    assert (worker.offset_topic.replication_factor, worker.offset_topic.at_most) == (1, False)
    assert worker.status_topic.config == {"segment.bytes": "1000000"}
    assert worker.client["sasl.username"] == "u"
    assert worker.client["bootstrap.servers"] == "kafka-1:9092,kafka-2:9092"
    assert worker.producer == {"linger.ms": "7"}
    assert worker.advertised_host == "worker-1"
    assert worker.session_timeout_ms == 10_000
    assert "plugin.path has no effect" in worker.notes


def test_header_converters_that_change_nothing_are_told() -> None:
    storage = "org.apache.kafka.connect.storage"
    for name in (f"{storage}.SimpleHeaderConverter", f"{storage}.StringConverter", "ByteArrayConverter"):
        assert parse_worker({"header.converter": name}).notes == ()
    told = parse_worker({"header.converter": "JsonConverter", "header.converter.schemas.enable": "false"}).notes
    assert told == (
        "header.converter has no effect: headers pass as they are, not as JSON",
        "header.converter.schemas.enable has no effect: headers pass as they are",
    )


def test_signs_of_life_come_before_the_session_ends() -> None:
    with pytest.raises(ConfigError, match=r"heartbeat\.interval\.ms=6000 must be below session\.timeout\.ms=6000"):
        parse_worker({"heartbeat.interval.ms": "6000"})


def test_every_problem_is_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_worker({"grup.id": "x", "offset.flush.interval.ms": "soon", "listeners": "https://:1"})
    problems = "\n".join(caught.value.problems)
    assert "did you mean 'group.id'" in problems
    assert "offset.flush.interval.ms" in problems
    assert "https://:1 is not an http:// address" in problems


REFUSED = [
    ("rest.extension.classes", "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"),
    ("listeners.https.ssl.keystore.location", "/etc/keys"),
    ("rest.advertised.listener", "https"),
    ("admin.listeners", "http://127.0.0.1:9999"),
    ("admin.listeners", ""),  # in Apache's worker: no admin endpoints at all
    ("access.control.allow.origin", "*"),
    ("response.http.headers.config", "add X-Frame-Options: DENY"),
    ("config.providers", "file"),
    ("config.providers.file.class", "org.apache.kafka.common.config.provider.FileConfigProvider"),
    ("exactly.once.source.support", "enabled"),
    ("header.converter", "org.example.Headers"),
]


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_what_would_change_what_people_get_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_worker({name: value})
    (problem,) = caught.value.problems
    assert problem.startswith(name) and "not supported: " in problem


def test_a_reference_to_a_secret_is_refused_and_not_used_as_the_secret() -> None:
    with pytest.raises(ConfigError, match=r"'sasl\.password' refers to the config provider 'file'") as caught:
        parse_worker({"sasl.password": "${file:/run/secrets/kafka:password}"})
    assert "/run/secrets" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("None", "None"),
        ("org.apache.kafka.connect.connector.policy.PrincipalConnectorClientConfigOverridePolicy", "Principal"),
    ],
)
def test_the_override_policy_has_two_spellings(given: str, meant: str) -> None:
    assert parse_worker({"connector.client.config.override.policy": given}).override_policy == meant


def test_an_unknown_override_policy_allows_nothing_but_an_error() -> None:
    with pytest.raises(ConfigError, match="Allowlist"):
        parse_worker({"connector.client.config.override.policy": "Allowlist"})


def test_of_two_listeners_none_is_left_out_in_silence() -> None:
    with pytest.raises(ConfigError, match="one address only"):
        parse_worker({"listeners": "http://127.0.0.1:1,http://127.0.0.1:2"})


@pytest.mark.parametrize("value", ["org.example.AvroConverter", ""])
def test_an_unknown_converter_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="could not be found"):
        parse_worker({"key.converter": value})


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:0", Address("127.0.0.1", 0)),
        (":8083", Address("", 8083)),
        ("http://[::1]:80/", Address("::1", 80)),
        ("http://connect:1", Address("connect", 1)),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert Address.parse(text) == address


@pytest.mark.parametrize("text", ["localhost", "localhost:http", "a:70000", "http://a:1/path", ""])
def test_no_addresses(text: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        Address.parse(text)


def test_a_connectors_own_converter_comes_with_its_options() -> None:
    config = {"key.converter": "StringConverter", "key.converter.encoding": "UTF-16", "value.converter.x": "1"}
    spec = converter(config, "key")
    assert spec is not None and (spec.kind, spec.options) == ("string", {"encoding": "UTF-16"})
    assert converter(config, "value") is None


def test_tables_name_every_key_once() -> None:
    known = [*(key.name for key in WORKER), *WORKER_WITHOUT_EFFECT, *WORKER_REFUSED]
    assert len(known) == len(set(known))
    for rows in (CONNECTOR + SOURCE, CONNECTOR + SINK):
        names = [row.key.name for row in rows]
        assert len(names) == len(set(names))


def test_groups_are_connects() -> None:
    assert groups(CONNECTOR + SOURCE) == [
        "Common",
        "Transforms",
        "Predicates",
        "Error Handling",
        "Topic Creation",
        "Exactly Once Support",
        "offsets.topic",
    ]
    assert groups(CONNECTOR + SINK) == ["Common", "Transforms", "Predicates", "Error Handling"]
