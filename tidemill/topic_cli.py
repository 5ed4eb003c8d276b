"""`tidemill topic`: list, create, describe, change and delete topics

The admin client of confluent-kafka does the work, so the commands manage any Kafka cluster. Tables are for people;
`--json` prints one JSON document for programs.
"""

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Annotated, Any

import typer
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package re-exports without saying so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
    TopicMetadata,
)

from tidemill.bootstrap import connect_admin, reason_of
from tidemill.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, CommandConfig
from tidemill.output import complain, fail, nearest_hint, new_table, print_json, print_table

ANSWER_TIMEOUT_S = 30.0

app = typer.Typer(help="List, create, describe, change and delete topics.", no_args_is_help=True, add_completion=False)


@app.command(name="list")
def list_topics(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    internal: Annotated[bool, typer.Option("--internal", help="Also the cluster's own topics.")] = False,
    as_json: AsJson = False,
) -> None:
    """Names, partitions and replicas of all topics."""
    _, metadata = connect_admin(bootstrap, command_config)
    topics = [topic for name, topic in sorted(metadata.topics.items()) if internal or not name.startswith("__")]
    if as_json:
        print_json([{"name": topic.topic, "partitions": len(topic.partitions)} for topic in topics])
        return
    table = new_table("topic", "partitions", "replicas")
    for topic in topics:
        replicas = max((len(partition.replicas) for partition in topic.partitions.values()), default=0)
        table.add_row(topic.topic, str(len(topic.partitions)), str(replicas))
    print_table(table, empty="no topics: make one with 'tidemill topic create NAME'")


@app.command()
def create(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Topics to create.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    partitions: Annotated[int, typer.Option(help="-1 takes the cluster's default.")] = -1,
    replication_factor: Annotated[int, typer.Option(help="-1 takes the cluster's default.")] = -1,
    config: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A topic setting; repeatable.")] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="A topic that is there is no error.")] = False,
) -> None:
    """Create topics."""
    settings = _settings(config or [])
    admin, _ = connect_admin(bootstrap, command_config)
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
    command_config: CommandConfig = None,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="A topic that is not there is no error.")] = False,
) -> None:
    """Delete topics and everything in them."""
    admin, _ = connect_admin(bootstrap, command_config)
    accepted = {KafkaError.UNKNOWN_TOPIC_OR_PART} if if_exists else set()
    _finish(admin.delete_topics(names, operation_timeout=ANSWER_TIMEOUT_S), "deleted", accepted)


@app.command()
def describe(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME...]", help="All topics if none is named.")] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Partitions, leaders, replicas and the settings that differ from the defaults."""
    admin, metadata = connect_admin(bootstrap, command_config)
    wanted = names or sorted(name for name in metadata.topics if not name.startswith("__"))
    for name in wanted:
        _known(metadata.topics, name)
    described = [_described(admin, metadata.topics[name]) for name in wanted]
    if as_json:
        print_json(described)
        return
    for topic in described:
        settings = " ".join(f"{key}={value}" for key, value in topic["configs"].items())
        table = new_table("partition", "leader", "replicas", "in sync")
        table.title_justify = "left"
        table.title = f"{topic['name']}  {settings}"
        for row in topic["partitions"]:
            cells = (row["partition"], row["leader"], _numbers(row["replicas"]), _numbers(row["isr"]))
            table.add_row(*(str(cell) for cell in cells))
        print_table(table)


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


@app.command()
def alter(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The topic.", show_default=False)],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    config: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="Set a setting; repeatable.")] = None,
    delete_config: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Take a setting back to its default; repeatable.")
    ] = None,
    partitions: Annotated[
        int | None, typer.Option(help="So many partitions from now on; keys then map to other partitions.")
    ] = None,
) -> None:
    """Change a topic's settings, or add partitions."""
    settings = _settings(config or [])
    removed = delete_config or []
    if not settings and not removed and partitions is None:
        fail("nothing to change: give --config KEY=VALUE, --delete-config KEY or --partitions NUMBER", 2)
    if both := sorted(settings.keys() & set(removed)):
        fail(f"{both[0]} is both set and deleted", 2)
    admin, metadata = connect_admin(bootstrap, command_config)
    _known(metadata.topics, name)
    changed = _alter_configs(admin, name, settings, removed) if settings or removed else True
    if partitions is not None and changed:
        _finish(admin.create_partitions([NewPartitions(name, partitions)]), f"now {partitions} partitions:", set())
    if not changed:
        raise typer.Exit(1)


def _alter_configs(admin: AdminClient, name: str, settings: Mapping[str, str], removed: list[str]) -> bool:
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in settings.items()]
    entries += [ConfigEntry(key, "", incremental_operation=AlterConfigOpType.DELETE) for key in removed]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    (answer,) = admin.incremental_alter_configs([resource]).values()
    try:
        answer.result(timeout=ANSWER_TIMEOUT_S)
    except KafkaException as error:
        complain(f"{name}: {reason_of(error)}")
        return False
    done = [f"{key}={value}" for key, value in settings.items()] + [f"{key} is the default" for key in removed]
    print(f"changed {name}: {', '.join(done)}")
    return True


def _known(topics: Mapping[str, TopicMetadata], name: str) -> None:
    """End the command where there is no such topic, with the nearest name."""
    if name in topics and topics[name].error is None:
        return
    fail(f"there is no topic {name!r}{nearest_hint(name, topics)}: 'tidemill topic list' shows those that are")


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
            complain(f"{name}: {reason_of(error)}")
            failed = True
    if failed:
        raise typer.Exit(1)


def _numbers(values: list[int]) -> str:
    return ",".join(str(value) for value in values)
