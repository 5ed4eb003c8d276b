"""`tidemill topic`: list, create, describe and delete topics

The admin client of confluent-kafka does the work, so the commands manage any Kafka cluster. Tables are for people;
`--json` prints one JSON document for programs.
"""

import json
import sys
from concurrent.futures import Future
from typing import Annotated, Any

import typer
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package re-exports without saying so
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
    TopicMetadata,
)
from rich.console import Console
from rich.table import Table

from tidemill.bootstrap import DEFAULT_BOOTSTRAP, Bootstrap, connect_admin, fail, reason_of

ANSWER_TIMEOUT_S = 30.0
TOPIC_SOURCE = "DYNAMIC_TOPIC_CONFIG"

app = typer.Typer(help="List, create, describe and delete topics.", no_args_is_help=True, add_completion=False)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command(name="list")
def list_topics(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    internal: Annotated[bool, typer.Option(help="Also the cluster's own topics.")] = False,
    as_json: AsJson = False,
) -> None:
    """Names, partitions and replicas of all topics."""
    _, metadata = connect_admin(bootstrap)
    topics = [topic for name, topic in sorted(metadata.topics.items()) if internal or not name.startswith("__")]
    if as_json:
        _print_json([{"name": topic.topic, "partitions": len(topic.partitions)} for topic in topics])
        return
    table = Table("topic", "partitions", "replicas", box=None, header_style="bold")
    for topic in topics:
        replicas = max((len(partition.replicas) for partition in topic.partitions.values()), default=0)
        table.add_row(topic.topic, str(len(topic.partitions)), str(replicas))
    _print_table(table, empty="no topics: make one with 'tidemill topic create NAME'", rows=len(topics))


@app.command()
def create(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Topics to create.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    partitions: Annotated[int, typer.Option(help="-1 takes the cluster's default.")] = -1,
    replication_factor: Annotated[int, typer.Option(help="-1 takes the cluster's default.")] = -1,
    config: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A topic setting; repeatable.")] = None,
    if_not_exists: Annotated[bool, typer.Option(help="A topic that is there is no error.")] = False,
) -> None:
    """Create topics."""
    settings = _settings(config or [])
    admin, _ = connect_admin(bootstrap)
    new = [
        NewTopic(name, num_partitions=partitions, replication_factor=replication_factor, config=settings)
        for name in names
    ]
    accepted = {KafkaError.TOPIC_ALREADY_EXISTS} if if_not_exists else set()
    _finish(admin.create_topics(new, operation_timeout=ANSWER_TIMEOUT_S), "created", accepted)


@app.command()
def delete(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Topics to delete, with all their records.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    if_exists: Annotated[bool, typer.Option(help="A topic that is not there is no error.")] = False,
) -> None:
    """Delete topics and everything in them."""
    admin, _ = connect_admin(bootstrap)
    accepted = {KafkaError.UNKNOWN_TOPIC_OR_PART} if if_exists else set()
    _finish(admin.delete_topics(names, operation_timeout=ANSWER_TIMEOUT_S), "deleted", accepted)


@app.command()
def describe(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME...]", help="All topics if none is named.")] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Partitions, leaders, replicas and the settings that differ from the defaults."""
    admin, metadata = connect_admin(bootstrap)
    wanted = names or sorted(name for name in metadata.topics if not name.startswith("__"))
    missing = [name for name in wanted if name not in metadata.topics or metadata.topics[name].error is not None]
    if missing:
        fail(f"there is no topic {missing[0]!r}: 'tidemill topic list' shows those that are")
    described = [_described(admin, metadata.topics[name]) for name in wanted]
    if as_json:
        _print_json(described)
        return
    for topic in described:
        settings = " ".join(f"{key}={value}" for key, value in topic["configs"].items())
        table = Table("partition", "leader", "replicas", "in sync", title_justify="left", box=None, header_style="bold")
        table.title = f"{topic['name']}  {settings}"
        for row in topic["partitions"]:
            cells = (row["partition"], row["leader"], _numbers(row["replicas"]), _numbers(row["isr"]))
            table.add_row(*(str(cell) for cell in cells))
        _print_table(table, empty="", rows=1)


def _described(admin: AdminClient, topic: TopicMetadata) -> dict[str, Any]:
    resource = ConfigResource(ResourceType.TOPIC, str(topic.topic))
    (answer,) = admin.describe_configs([resource]).values()
    try:
        configs = answer.result(timeout=ANSWER_TIMEOUT_S)
    except KafkaException as error:
        fail(f"settings of {topic.topic}: {reason_of(error)}")
    return {
        "name": topic.topic,
        "partitions": [
            {"partition": number, "leader": entry.leader, "replicas": entry.replicas, "isr": entry.isrs}
            for number, entry in sorted(topic.partitions.items())
        ],
        "configs": {
            name: entry.value for name, entry in sorted(configs.items()) if not entry.is_default and entry.source == 1
        },
    }


def _settings(pairs: list[str]) -> dict[str, str]:
    settings = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign:
            fail(f"--config takes KEY=VALUE, not {pair!r}", 2)
        settings[key.strip()] = value.strip()
    return settings


def _finish(answers: "dict[str, Future[None]]", done: str, accepted: set[int]) -> None:
    """Report every topic; the command fails if one of them did."""
    failed = False
    for name, answer in answers.items():
        try:
            answer.result(timeout=ANSWER_TIMEOUT_S)
            print(f"{done} {name}")
        except KafkaException as error:
            if error.args[0].code() in accepted:
                continue
            print(f"tidemill: {name}: {reason_of(error)}", file=sys.stderr)
            failed = True
    if failed:
        raise typer.Exit(1)


def _numbers(values: list[int]) -> str:
    return ",".join(str(value) for value in values)


def _print_table(table: Table, *, empty: str, rows: int) -> None:
    console = Console()
    if rows == 0:
        print(empty, file=sys.stderr)
        return
    if not console.is_terminal:
        console.width = 200  # a pipe has no edge: do not fold long names
    console.print(table)


def _print_json(value: Any) -> None:
    print(json.dumps(value))
