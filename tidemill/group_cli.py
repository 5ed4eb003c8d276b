"""`tidemill group`: consumer groups and how far behind they are

The admin client of confluent-kafka does the work, so the commands look at the groups of any Kafka cluster. Lag is the
log's end minus the committed position, in records, as Kafka's own tool counts it; a partition without a committed
position has no lag that anybody could tell, and shows "-".
"""

import datetime
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from typing import Annotated, Any, TypeVar

import typer
from confluent_kafka import (
    OFFSET_INVALID,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package re-exports without saying so
    AdminClient,
    OffsetSpec,
)

from tidemill.bootstrap import connect_admin, reason_of
from tidemill.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, CommandConfig
from tidemill.output import complain, fail, nearest_hint, new_table, print_json, print_table

ANSWER_TIMEOUT_S = 30.0

AnswerT = TypeVar("AnswerT")

_specs: Any = OffsetSpec  # the package does not say what its makers return
EARLIEST: OffsetSpec = _specs.earliest()
LATEST: OffsetSpec = _specs.latest()

app = typer.Typer(help="Look at consumer groups and move them.", no_args_is_help=True, add_completion=False)

Group = Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.", show_default=False)]


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a group is in one partition: offsets, and the member that reads it."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    member: str | None = None

    @property
    def lag(self) -> int | None:
        """Records between the committed position and the end; None where one of them is not known."""
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)


@app.command(name="list")
def list_groups(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, command_config: CommandConfig = None, as_json: AsJson = False
) -> None:
    """All groups and their states."""
    admin, _ = connect_admin(bootstrap, command_config)
    found = _answer(admin.list_consumer_groups(request_timeout=ANSWER_TIMEOUT_S))
    for problem in found.errors:
        complain(f"not all groups are listed: {reason_of(problem)}")
    rows = sorted(
        ({"group": each.group_id, "type": each.type.name.lower(), "state": _state(each.state)} for each in found.valid),
        key=lambda row: row["group"],
    )
    if as_json:
        print_json(rows)
    else:
        table = new_table("group", "type", "state")
        for row in rows:
            table.add_row(row["group"], row["type"], row["state"])
        print_table(table, empty="no groups: a consumer with a group.id makes one")
    if found.errors:
        raise typer.Exit(1)


@app.command()
def describe(
    group: Group,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """State, coordinator, members and what each of them reads."""
    admin, _ = connect_admin(bootstrap, command_config)
    found = _described(admin, group)
    members = [
        {
            "member": member.member_id,
            "client": member.client_id,
            "host": member.host,
            "partitions": sorted(_named(each) for each in member.assignment.topic_partitions),
        }
        for member in sorted(found.members, key=lambda member: str(member.member_id))
    ]
    described = {
        "group": group,
        "state": _state(found.state),
        "assignor": found.partition_assignor,
        "coordinator": found.coordinator.id if found.coordinator else None,
        "members": members,
    }
    if as_json:
        print_json(described)
        return
    print(
        f"{group}: {described['state']}, {len(members)} members, assignor {found.partition_assignor or '-'}, "
        f"coordinator {described['coordinator']}"
    )
    table = new_table("member", "client", "host", "partitions")
    for row in members:
        table.add_row(row["member"], row["client"], row["host"], " ".join(row["partitions"]) or "-")
    if members:
        print_table(table)


@app.command()
def lag(
    group: Group,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Committed position, end and lag of every partition the group has a position in or reads."""
    admin, _ = connect_admin(bootstrap, command_config)
    rows = _lags(admin, group)
    total = sum(row.lag or 0 for row in rows)
    if as_json:
        print_json({"group": group, "lag": total, "partitions": [{**asdict(row), "lag": row.lag} for row in rows]})
        return
    table = new_table("topic", "partition", "committed", "end", "lag", "member")
    for row in rows:
        cells = (row.topic, row.partition, row.committed, row.end, row.lag, row.member)
        table.add_row(*("-" if cell is None else str(cell) for cell in cells))
    print_table(table, empty=f"{group} has no positions and reads nothing")
    if rows:
        unknown = sum(row.committed is None for row in rows)
        where = f" where it has committed, which it has not in {unknown} partitions" if unknown else ""
        print(f"{group} is {total} records behind{where}")


@app.command()
def reset(
    group: Group,
    topic: Annotated[str, typer.Option(metavar="TOPIC", help="All partitions of it.", show_default=False)],
    to: Annotated[
        str,
        typer.Option(
            metavar="earliest|latest|OFFSET|TIME",
            help="Where the group goes on; a time such as 2026-01-31T12:00:00Z takes the first record from then on.",
            show_default=False,
        ),
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
) -> None:
    """Move the group's position in a topic; its members must be stopped."""
    spec = _spec(to)
    admin, metadata = connect_admin(bootstrap, command_config)
    found = metadata.topics.get(topic)
    if found is None or found.error is not None:
        hint = nearest_hint(topic, metadata.topics)
        fail(f"there is no topic {topic!r}{hint}: 'tidemill topic list' shows those that are")
    if (state := _state(_described(admin, group, missing_ok=True).state)) not in ("empty", "dead"):
        fail(f"{group} is {state}: stop its members first, they would go on from where they are")
    positions = [TopicPartition(topic, number) for number in sorted(found.partitions)]
    starts, ends = _offsets(admin, positions, EARLIEST), _offsets(admin, positions, LATEST)
    targets = _offsets(admin, positions, spec) if isinstance(spec, OffsetSpec) else dict.fromkeys(starts, spec)
    moved = []
    for key in sorted(targets.keys() & starts.keys() & ends.keys()):
        target = targets[key]
        at = ends[key] if target < 0 else min(max(target, starts[key]), ends[key])  # -1: nothing so late, hence the end
        moved.append(TopicPartition(topic, key[1], at))
        print(f"{'would move' if dry_run else 'moved'} {_named(moved[-1])} to {at}")
    if moved and not dry_run:
        (answer,) = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, moved)]).values()
        for each in _answer(answer).topic_partitions:
            if each.error is not None:
                fail(f"{_named(each)} was not moved: {each.error.str()}")
    if len(moved) < len(positions):
        fail(f"{len(positions) - len(moved)} of {len(positions)} partitions keep their position, see above: try again")


@app.command()
def delete(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP...", help="Groups to delete, with their positions.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Delete groups that have no members, and their positions."""
    admin, _ = connect_admin(bootstrap, command_config)
    failed = False
    for group, answer in admin.delete_consumer_groups(groups, request_timeout=ANSWER_TIMEOUT_S).items():
        try:
            answer.result(timeout=ANSWER_TIMEOUT_S)
            print(f"deleted {group}")
        except KafkaException as error:
            complain(f"{group}: {reason_of(error)}")
            failed = True
    if failed:
        raise typer.Exit(1)


def _lags(admin: AdminClient, group: str) -> list[PartitionLag]:
    described = _described(admin, group)
    readers = {
        (each.topic, each.partition): str(member.client_id)
        for member in described.members
        for each in member.assignment.topic_partitions
    }
    (answer,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    committed = {
        (each.topic, each.partition): each.offset
        for each in _answer(answer).topic_partitions
        if each.offset != OFFSET_INVALID
    }
    keys = sorted(committed.keys() | readers.keys())
    ends = _offsets(admin, [TopicPartition(*key) for key in keys], LATEST)
    return [PartitionLag(*key, committed.get(key), ends.get(key), readers.get(key)) for key in keys]


def _offsets(admin: AdminClient, positions: Sequence[TopicPartition], spec: OffsetSpec) -> dict[tuple[str, int], int]:
    """Offsets that the cluster can tell; a partition that is gone is left out."""
    if not positions:
        return {}
    answers = admin.list_offsets(
        dict.fromkeys(positions, spec),
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
        request_timeout=ANSWER_TIMEOUT_S,
    )
    found = {}
    for position, answer in answers.items():
        try:
            offset = answer.result(timeout=ANSWER_TIMEOUT_S).offset
        except KafkaException as error:
            complain(f"{_named(position)}: {reason_of(error)}")
            continue
        if offset == OFFSET_INVALID:  # librdkafka's word, and no error, where a connection ended
            complain(f"{_named(position)}: no answer came")
            continue
        found[(position.topic, position.partition)] = offset
    return found


def _described(admin: AdminClient, group: str, *, missing_ok: bool = False) -> Any:
    (answer,) = admin.describe_consumer_groups([group], request_timeout=ANSWER_TIMEOUT_S).values()
    found = _answer(answer, group)
    if _state(found.state) == "dead" and not missing_ok:
        fail(f"there is no group {group!r}: 'tidemill group list' shows those that are")
    return found


def _spec(to: str) -> OffsetSpec | int:
    if to in ("earliest", "latest"):
        return EARLIEST if to == "earliest" else LATEST
    if to.isascii() and to.isdigit():
        return int(to)
    try:
        at = datetime.datetime.fromisoformat(to)
    except ValueError:
        fail(f"--to takes earliest, latest, an offset or a time such as 2026-01-31T12:00:00Z, not {to!r}", 2)
    found: OffsetSpec = _specs.for_timestamp(int(at.astimezone().timestamp() * 1000))
    return found


def _answer(future: "Future[AnswerT]", what: str = "") -> AnswerT:
    try:
        return future.result(timeout=ANSWER_TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            fail(f"there is no group {what!r}: 'tidemill group list' shows those that are")
        fail(f"{what}: {reason_of(error)}" if what else reason_of(error))


def _state(state: Any) -> str:
    return str(state.name).lower().replace("_", " ")


def _named(position: TopicPartition) -> str:
    return f"{position.topic}-{position.partition}"
