"""`tidemill topic` against a real broker."""

import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner, Result

from tidemill.topic_cli import app

if TYPE_CHECKING:
    from tidemill.services import Service

pytestmark = pytest.mark.integration


class Topics:
    """The command with its bootstrap address."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.name = f"topics-{uuid.uuid4().hex[:8]}"

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, "--bootstrap", self.address])

    def described(self) -> Any:
        result = self("describe", self.name, "--json")
        assert result.exit_code == 0, result.output
        (topic,) = json.loads(result.stdout)
        return topic


@pytest.fixture
def topics(tidemill_broker: "Service") -> Topics:
    return Topics(tidemill_broker.facts["address"])


def test_the_cluster_may_be_named_as_kafkas_tools_name_it(topics: Topics) -> None:
    for option in ("--bootstrap", "--bootstrap-server", "-b"):
        assert CliRunner().invoke(app, ["list", option, topics.address]).exit_code == 0


def test_create_list_describe_delete(topics: Topics) -> None:
    created = topics("create", topics.name, "--partitions", "3", "--config", "retention.ms=1000")
    assert (created.exit_code, created.stdout) == (0, f"created {topics.name}\n")
    listed = json.loads(topics("list", "--json").stdout)
    assert {"name": topics.name, "partitions": 3} in listed
    assert topics.name in topics("list").stdout
    described = topics.described()
    assert described["configs"] == {"retention.ms": "1000"}
    assert described["partitions"][0] == {"partition": 0, "leader": 1, "replicas": [1], "isr": [1]}
    shown = topics("describe", topics.name).stdout
    assert "retention.ms=1000" in shown
    assert "in sync" in shown
    deleted = topics("delete", topics.name)
    assert (deleted.exit_code, deleted.stdout) == (0, f"deleted {topics.name}\n")
    assert topics.name not in topics("list").stdout


def test_settings_are_set_and_taken_back(topics: Topics) -> None:
    topics("create", topics.name, "--config", "retention.ms=1000")
    changed = topics("alter", topics.name, "--config", "segment.ms=60000", "--delete-config", "retention.ms")
    assert (changed.exit_code, changed.stdout) == (
        0,
        f"changed {topics.name}: segment.ms=60000, retention.ms is the default\n",
    )
    assert topics.described()["configs"] == {"segment.ms": "60000"}


def test_partitions_are_added(topics: Topics) -> None:
    topics("create", topics.name)
    assert topics("alter", topics.name, "--partitions", "4").stdout == f"now 4 partitions: {topics.name}\n"
    assert len(topics.described()["partitions"]) == 4
    fewer = topics("alter", topics.name, "--partitions", "2")
    assert (fewer.exit_code, fewer.stderr.count("\n")) == (1, 1)


def test_a_setting_that_is_refused_changes_nothing(topics: Topics) -> None:
    topics("create", topics.name)
    refused = topics("alter", topics.name, "--config", "retenton.ms=1", "--partitions", "4")
    assert refused.exit_code == 1
    assert "did you mean 'retention.ms'" in refused.stderr
    assert len(topics.described()["partitions"]) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [((), "nothing to change"), (("--config", "a=1", "--delete-config", "a"), "a is both set and deleted")],
)
def test_a_change_that_says_nothing_is_wrong_usage(topics: Topics, arguments: tuple[str, ...], says: str) -> None:
    result = topics("alter", topics.name, *arguments)
    assert (result.exit_code, says in result.stderr) == (2, True)


def test_a_mistyped_name_gets_the_nearest(topics: Topics) -> None:
    topics("create", topics.name)
    assert f"did you mean {topics.name!r}?" in topics("describe", topics.name[:-1]).stderr


def test_defaults_come_from_the_cluster(topics: Topics) -> None:
    assert topics("create", topics.name).exit_code == 0
    assert topics.described()["configs"] == {}


def test_internal_topics_only_when_asked_for(topics: Topics) -> None:
    topics("create", f"__{topics.name}")
    assert f"__{topics.name}" not in topics("list").stdout
    assert f"__{topics.name}" in topics("list", "--internal").stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("create", "bad name"), "has a character other than"),
        (("create", "t-x", "--replication-factor", "3"), "available brokers"),
        (("create", "t-x", "--config", "retenton.ms=1"), "did you mean 'retention.ms'"),
        (("delete", "not-there"), "there is no such topic"),
        (("describe", "not-there"), "there is no topic 'not-there'"),
        (("alter", "not-there", "--partitions", "3"), "there is no topic 'not-there'"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_status_1(topics: Topics, arguments: tuple[str, ...], says: str) -> None:
    result = topics(*arguments)
    assert result.exit_code == 1
    assert says in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_setting_without_a_value_is_wrong_usage(topics: Topics) -> None:
    result = topics("create", topics.name, "--config", "retention.ms")
    assert (result.exit_code, "KEY=VALUE" in result.stderr) == (2, True)


def test_what_is_there_or_gone_can_be_accepted(topics: Topics) -> None:
    assert topics("create", topics.name).exit_code == 0
    assert topics("create", topics.name).exit_code == 1
    assert topics("create", topics.name, "--if-not-exists").exit_code == 0
    assert topics("delete", topics.name).exit_code == 0
    assert topics("delete", topics.name).exit_code == 1
    assert topics("delete", topics.name, "--if-exists").exit_code == 0
