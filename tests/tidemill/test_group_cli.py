"""`tidemill group` against a real broker and a real consumer."""

import json
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner, Result

from tidemill.group_cli import PartitionLag, app

if TYPE_CHECKING:
    from tidemill.services import Service


@pytest.mark.parametrize(
    ("committed", "end", "lag"), [(2, 5, 3), (5, 5, 0), (7, 5, 0), (None, 5, None), (2, None, None)]
)
def test_lag_is_told_only_where_it_is_known(committed: int | None, end: int | None, lag: int | None) -> None:
    assert PartitionLag("t", 0, committed, end).lag == lag


class Groups:
    """The command, and a group that has read 3 of the 5 records of partition 0 of a topic of two partitions."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.topic = f"groups-{uuid.uuid4().hex[:8]}"
        self.name = f"{self.topic}-readers"
        from tidemill.topic_cli import app as topics

        CliRunner().invoke(topics, ["create", self.topic, "--partitions", "2", "-b", address])
        producer = Producer({"bootstrap.servers": address})
        for number in range(5):
            producer.produce(self.topic, value=b"%d" % number, partition=0, timestamp=1_700_000_000_000 + number)
        assert producer.flush(30) == 0
        self.consumer = Consumer({"bootstrap.servers": address, "group.id": self.name, "client.id": "reader-1"})
        self.consumer.commit(offsets=[TopicPartition(self.topic, 0, 3)], asynchronous=False)

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, "--bootstrap-server", self.address])

    def json(self, *arguments: str) -> Any:
        result = self(*arguments, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def committed(self) -> list[int]:
        wanted = [TopicPartition(self.topic, number) for number in range(2)]
        return [each.offset for each in self.consumer.committed(wanted, timeout=30)]

    def join(self) -> None:
        self.consumer.subscribe([self.topic])
        while not self.consumer.assignment():
            self.consumer.poll(0.1)


@pytest.fixture
def groups(tidemill_broker: "Service") -> Iterator[Groups]:
    found = Groups(tidemill_broker.facts["address"])
    yield found
    found.consumer.close()


@pytest.mark.integration
def test_a_group_without_members(groups: Groups) -> None:
    assert {"group": groups.name, "type": "classic", "state": "empty"} in groups.json("list")
    described = groups.json("describe", groups.name)
    assert (described["state"], described["members"]) == ("empty", [])
    lag = groups.json("lag", groups.name)
    assert lag["lag"] == 2
    assert lag["partitions"] == [
        {"topic": groups.topic, "partition": 0, "committed": 3, "end": 5, "member": None, "lag": 2}
    ]
    shown = groups("lag", groups.name).stdout
    assert f"{groups.name} is 2 records behind" in shown


@pytest.mark.integration
def test_a_group_with_a_member(groups: Groups) -> None:
    groups.join()
    assert {"group": groups.name, "type": "classic", "state": "stable"} in groups.json("list")
    (member,) = groups.json("describe", groups.name)["members"]
    assert member["client"] == "reader-1"
    assert member["partitions"] == [f"{groups.topic}-0", f"{groups.topic}-1"]
    assert "reader-1" in groups("describe", groups.name).stdout
    first, second = groups.json("lag", groups.name)["partitions"]
    assert (first["lag"], first["member"]) == (2, "reader-1")
    assert (second["committed"], second["end"], second["lag"]) == (None, 0, None)
    shown = groups("lag", groups.name).stdout
    assert f"{groups.name} is 2 records behind where it has committed, which it has not in 1 partitions" in shown
    refused = groups("reset", groups.name, "--topic", groups.topic, "--to", "earliest")
    assert (refused.exit_code, "stop its members first" in refused.stderr) == (1, True)
    busy = groups("delete", groups.name)
    assert (busy.exit_code, busy.stderr.count("\n")) == (1, 1)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ("earliest", 0),
        ("latest", 5),
        ("2", 2),
        ("99", 5),
        ("2023-11-14T22:13:20.003+00:00", 3),
        ("2030-01-01T00:00:00Z", 5),
    ],
)
def test_positions_are_moved(groups: Groups, to: str, expected: int) -> None:
    tried = groups("reset", groups.name, "--topic", groups.topic, "--to", to, "--dry-run")
    assert f"would move {groups.topic}-0 to {expected}\n" in tried.stdout
    assert groups.committed()[0] == 3
    moved = groups("reset", groups.name, "--topic", groups.topic, "--to", to)
    assert (moved.exit_code, f"moved {groups.topic}-0 to {expected}\n" in moved.stdout) == (0, True), moved.output
    assert groups.committed() == [expected, 0]


@pytest.mark.integration
def test_a_position_is_not_moved_to_what_is_no_offset(groups: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a connection ends librdkafka answers so, and names no error."""

    def nothing_is_known(_: AdminClient, asked: Iterable[TopicPartition], **settings: object) -> dict[Any, Future[Any]]:
        answers: dict[Any, Future[Any]] = {partition: Future() for partition in asked}
        for each in answers.values():
            each.set_result(SimpleNamespace(offset=OFFSET_INVALID))
        return answers

    monkeypatch.setattr(AdminClient, "list_offsets", nothing_is_known)
    told = groups("reset", groups.name, "--topic", groups.topic, "--to", "earliest")
    assert f"{groups.topic}-0: no answer came" in told.stderr
    assert "2 of 2 partitions keep their position" in told.stderr
    assert (told.exit_code, told.stdout) == (1, "")
    assert groups.committed()[0] == 3


@pytest.mark.integration
def test_a_group_is_deleted_with_its_positions(groups: Groups) -> None:
    assert groups("delete", groups.name).stdout == f"deleted {groups.name}\n"
    assert groups.name not in groups("list").stdout
    assert groups.committed()[0] < 0


@pytest.mark.integration
@pytest.mark.parametrize("command", ["describe", "lag"])
def test_a_group_that_is_not_there(groups: Groups, command: str) -> None:
    result = groups(command, "nobody")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "there is no group 'nobody'" in result.stderr


@pytest.mark.integration
@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [(("--topic", "{topic}", "--to", "soon"), 2, "not 'soon'"), (("--topic", "gone", "--to", "1"), 1, "no topic")],
)
def test_a_reset_that_cannot_be(groups: Groups, arguments: tuple[str, ...], status: int, says: str) -> None:
    filled = [each.format(topic=groups.topic) for each in arguments]
    result = groups("reset", groups.name, *filled)
    assert (result.exit_code, says in result.stderr) == (status, True)
