"""Every administrative act is one line in the log."""

from dataclasses import replace
from pathlib import Path

from structlog.testing import capture_logs

from tests.broker.broker_world import broker_and_client
from tidemill.broker.administration_log import NAMES_SHOWN, tell
from tidemill.broker.dispatch import RequestContext
from tidemill.broker.principals import Principal
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tidemill.core.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidemill.core.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tidemill.core.wire.messages.delete_topics import DeleteTopicsRequest
from tidemill.core.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

CONTEXT = RequestContext(
    api_version=0, client_id="c" * 1000, client_host="10.0.0.1", listener="PLAINTEXT", connection_id="x"
)


def test_a_line_names_the_first_few_and_counts_the_rest() -> None:
    with capture_logs() as lines:
        tell("topics created", (f"t{number}" for number in range(100_000)), CONTEXT)
    (line,) = lines
    assert line["names"].endswith(f"t{NAMES_SHOWN - 1} and {100_000 - NAMES_SHOWN} more")
    assert len(str(line)) < 500


def test_who_has_shown_a_certificate_is_told_by_name() -> None:
    with capture_logs() as lines:
        tell("topics deleted", ["a"], CONTEXT)
        tell("topics deleted", ["a"], replace(CONTEXT, principal=Principal("User", "alice")))
    assert [line.get("principal") for line in lines] == [None, "User:alice"]


def test_nothing_done_is_no_line() -> None:
    with capture_logs() as lines:
        tell("topics created", (), CONTEXT)
    assert not lines


async def test_what_was_done_is_told_and_what_was_refused_is_not(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (_, client):
        topics = tuple(CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("a", "bad name"))
        retention = AlterableConfig(name="retention.ms", config_operation=0, value="77777")
        change = AlterConfigsResource(resource_type=2, resource_name="a", configs=(retention,))
        records = DeleteRecordsTopic(name="a", partitions=(DeleteRecordsPartition(partition_index=0, offset=0),))
        acts = (
            (ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics=topics, validate_only=True)),
            (ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics=topics)),
            (
                ApiKey.CREATE_PARTITIONS,
                2,
                CreatePartitionsRequest(topics=(CreatePartitionsTopic(name="a", count=3, assignments=None),)),
            ),
            (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest(resources=(change,))),
            (ApiKey.DELETE_RECORDS, 2, DeleteRecordsRequest(topics=(records,))),
            (ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=("a", "gone"))),
        )
        with capture_logs() as lines:
            for key, version, request in acts:
                await client.ask(key, version, request)
        told = [(line["event"], line["names"]) for line in lines if "names" in line]
        assert told == [
            ("topics created", "a"),
            ("partitions added", "a (now 3)"),
            ("settings changed", "topic a (retention.ms)"),
            ("records deleted", "a-0 (before 0)"),
            ("topics deleted", "a"),
        ]
        assert not any("77777" in str(line) for line in lines), "values may be secrets"
