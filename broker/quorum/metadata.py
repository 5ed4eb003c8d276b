"""The metadata machine: requests in, records out, nothing changed

`decide` reads the image and the rules and returns the records to commit with the answer to give once they are;
`apply` (from `tidemill.broker.quorum.image`) is the only mutator. Every entry of a request is judged on its own, in
order, against the image as the entries before it leave it, so two topics of one request cannot both take the last free
partition.

Random topic ids come in with the request: the machine has no randomness, so replaying a request repeats its records.

Not here: appending, waiting, telling the node (`tidemill.broker.quorum.controller`); wire messages
(`tidemill.broker.handlers`).
"""

import enum
import re
import uuid
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from tidemill.broker.config import BROKER_CONFIG, NO_EFFECT
from tidemill.broker.listeners import is_prefixed
from tidemill.broker.quorum.image import (
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    BrokerImage,
    ClusterImage,
    Draft,
    ImageError,
    PartitionImage,
    TopicImage,
    apply,
    apply_batch,
    dotted_name,
)
from tidemill.broker.quorum.leadership import (
    AlterReassignments,
    ElectLeaders,
    PartitionResult,
    alter_reassignments,
    changed,
    elect_leaders,
    is_unclean,
    min_in_sync,
)
from tidemill.broker.quorum.placement import place
from tidemill.broker.quorum.records import (
    BrokerEndpoint,
    BrokerFeature,
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tidemill.broker.quorum.rules import COMMON_KEYS, MIN_IN_SYNC_KEY, Rules
from tidemill.broker.topic_config import TOPIC_CONFIG, text_of, topic_problems
from tidemill.core.config import REQUIRED, ConfigError, ConfigTable, ConfigType
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError, StaleBrokerEpoch, error_for_code
from tidemill.core.types import ZERO_UUID

if TYPE_CHECKING:
    from tidemill.broker.quorum.node_requests import NodeRequest, NodeResponse

__all__ = [
    "BrokerImage", "ClusterImage", "ImageError", "PartitionImage", "Rules", "TopicImage", "apply", "apply_batch",
    "decide",
]  # fmt: skip

TOPIC_NAME_LENGTH_MAX: Final = 249
"""Kafka's limit: a file name of 255 bytes less a dash and a partition number of five digits."""

PRODUCER_ID_BLOCK: Final = 1000
"""Producer ids handed out per record, as in Kafka: one fsync serves a thousand producers."""

KeyT = TypeVar("KeyT", bound=Hashable)

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_RESERVED_NAMES = frozenset({".", "..", "__cluster_metadata"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create; -1 takes the cluster's default."""

    name: str
    topic_id: uuid.UUID = ZERO_UUID
    partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopics:
    """Create these topics."""

    topics: tuple[NewTopic, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicResult:
    """What became of one topic of a request."""

    name: str | None
    topic_id: uuid.UUID = ZERO_UUID
    error: KafkaError | None = None
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRef:
    """A topic named by its name or by its id."""

    name: str | None = None
    topic_id: uuid.UUID = ZERO_UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopics:
    """Delete these topics."""

    topics: tuple[TopicRef, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionIncrease:
    """Grow a topic to `count` partitions."""

    name: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitions:
    """Grow these topics."""

    topics: tuple[PartitionIncrease, ...]
    validate_only: bool = False


class ConfigOp(enum.IntEnum):
    """How IncrementalAlterConfigs changes one key."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """One key to change."""

    name: str
    op: int
    value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceChange:
    """The keys to change on one topic or broker; with `replace` every key that is not among them goes too."""

    resource_type: int
    resource_name: str
    changes: tuple[ConfigChange, ...]
    replace: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigs:
    """Change settings; each resource changes as a whole or not at all."""

    resources: tuple[ResourceChange, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceResult:
    """What became of one resource of a request."""

    resource_type: int
    resource_name: str
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProducerIds:
    """Hand a block of producer ids to a broker; `broker_epoch` is the incarnation that asks, None for this process."""

    broker_id: int
    broker_epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdBlock:
    """The ids `first .. first + count - 1`."""

    first: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBroker:
    """A broker process came up.

    One that is to be `fenced` until it has caught up is a member of a cluster of several, and everything is judged; a
    quorum of one takes itself in at once.
    """

    broker_id: int
    incarnation_id: uuid.UUID
    end_points: tuple[BrokerEndpoint, ...]
    rack: str | None = None
    fenced: bool = False
    cluster_id: str = ""
    features: tuple[BrokerFeature, ...] = ()
    previous_broker_epoch: int = -1
    """The epoch of the incarnation whose logs these are, if that one stopped in order; -1 is not known."""
    loses_nothing: bool = False
    """An incarnation that does not stop in order leaves all it acknowledged behind (`flush.policy=group`), and these
    are the logs of one: nobody may say so whose folder was never registered before, for a new disk is empty."""
    session_live: bool = False
    """Somebody has been heard of by this id lately, as `sessions` says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The epoch that fences earlier incarnations of the broker.

    `unfinished` says that more partitions have to be told of it than go into one decision: the same request has to
    come again, until it is not, and there is no epoch before.
    """

    broker_epoch: int
    unfinished: bool = False
    error: KafkaError | None = None


Request: TypeAlias = (
    "CreateTopics"
    " | DeleteTopics"
    " | CreatePartitions"
    " | AlterConfigs"
    " | AllocateProducerIds"
    " | RegisterBroker"
    " | ElectLeaders"
    " | AlterReassignments"
    " | NodeRequest"
)
Response: TypeAlias = (
    "tuple[TopicResult, ...] | tuple[ResourceResult, ...] | tuple[PartitionResult, ...] | ProducerIdBlock"
    " | Registration | NodeResponse"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UncleanElection:
    """A decision that whoever makes it writes to the log of the broker: acknowledged records may be lost by it."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    isr_before: tuple[int, ...]
    eligible_before: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Commit `records` as one batch, then give `response`."""

    records: tuple[MetadataRecord, ...]
    response: Response
    unclean: tuple[UncleanElection, ...] = ()


def decide(image: ClusterImage, request: Request, rules: Rules) -> Result:
    """Judge `request` against `image`; changes nothing."""
    match request:
        case CreateTopics():
            return _create_topics(image, request, rules)
        case DeleteTopics():
            return _delete_topics(image, request, rules)
        case CreatePartitions():
            return _create_partitions(image, request, rules)
        case AlterConfigs():
            return _alter_configs(image, request, rules)
        case AllocateProducerIds():
            return _allocate_producer_ids(image, request)
        case RegisterBroker() if not request.fenced:
            return _register_broker(image, request)
        case ElectLeaders():
            changes, results = elect_leaders(image, request, rules)
        case AlterReassignments():
            changes, results = alter_reassignments(image, request, rules)
        case _:  # of a cluster of several: a quorum of one never loads what judges these
            from tidemill.broker.quorum.node_requests import judge

            return judge(image, request, rules)
    return Result(records=tuple(changes), response=tuple(results), unclean=unclean_elections(image, changes))


def unclean_elections(image: ClusterImage, changes: Iterable[PartitionChangeRecord]) -> tuple[UncleanElection, ...]:
    """Those among `changes`, which are one for each partition."""
    found: list[UncleanElection] = []
    for record in changes:
        topic = image.topic_by_id(record.topic_id) if record.leader >= 0 else None
        if topic is not None and is_unclean(before := topic.partitions[record.partition_id], record):
            found.append(
                UncleanElection(
                    topic=topic.name,
                    partition=record.partition_id,
                    leader=record.leader,
                    leader_epoch=before.leader_epoch + 1,
                    isr_before=before.isr,
                    eligible_before=before.eligible_leader_replicas,
                )
            )
    return tuple(found)


# --- topics


def _create_topics(image: ClusterImage, request: CreateTopics, rules: Rules) -> Result:
    repeated = _repeated(topic.name for topic in request.topics)
    draft = Draft(image)
    records: list[MetadataRecord] = []
    results: list[TopicResult] = []
    for topic in {topic.name: topic for topic in request.topics}.values():
        try:
            _refuse_repeated(topic.name, repeated)
            made = _new_topic(draft, topic, rules)
        except KafkaError as error:
            results.append(TopicResult(name=topic.name, error=error))
            continue
        for record in made:
            draft.apply(record)
        records += made
        partitions = [record for record in made if isinstance(record, PartitionRecord)]
        results.append(
            TopicResult(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=len(partitions),
                replication_factor=len(partitions[0].replicas),
                configs=draft.topics[topic.name].configs,
            )
        )
    return Result(records=() if request.validate_only else tuple(records), response=tuple(results))


def _repeated(keys: Iterable[KeyT]) -> frozenset[KeyT]:
    return frozenset(key for key, count in Counter(keys).items() if count > 1)


def _refuse_repeated(name: str, repeated: frozenset[str]) -> None:
    if name in repeated:
        raise _error(ErrorCode.INVALID_REQUEST, f"topic {name!r} is named more than once")


def _new_topic(image: ClusterImage | Draft, topic: NewTopic, rules: Rules) -> list[MetadataRecord]:
    check_topic_name(topic.name)
    if topic.name in image.topics:
        raise _error(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {topic.name!r} exists already")
    rival = _rival(topic.name, image)
    if rival is not None:
        raise _error(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic {topic.name!r} differs from {rival!r} in nothing but '.' and '_', which metrics cannot tell apart",
        )
    if len(image.topics) >= rules.max_topics:
        raise _error(ErrorCode.POLICY_VIOLATION, f"the cluster holds max.topics={rules.max_topics} topics already")
    configs = _checked_topic_configs(topic.configs)
    replicas = _chosen_replicas(image, topic, rules)
    enough = rules.min_in_sync_of_new(configs, image.broker_configs.get("", {}), len(replicas[0]))
    if enough is not None:
        configs[MIN_IN_SYNC_KEY] = enough
    return [
        TopicRecord(name=topic.name, topic_id=topic.topic_id),
        *(_partition_record(image, topic.topic_id, index, nodes) for index, nodes in enumerate(replicas)),
        *(_topic_config(topic.name, name, value) for name, value in configs.items()),
    ]


def check_topic_name(name: str) -> None:
    """Raise InvalidTopicException unless `name` is one that Kafka accepts."""
    if not name:
        raise _error(ErrorCode.INVALID_TOPIC_EXCEPTION, "a topic name must not be empty")
    if name in _RESERVED_NAMES:
        raise _error(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is reserved and cannot be a topic name")
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        raise _error(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"a topic name has at most {TOPIC_NAME_LENGTH_MAX} characters, this one has {len(name)}",
        )
    if not _TOPIC_NAME.fullmatch(name):
        raise _error(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic name {name!r} has a character other than ASCII letters, digits, '.', '_' and '-'",
        )


def _rival(name: str, image: ClusterImage | Draft) -> str | None:
    """A topic that Kafka takes for the same as `name`, because only dots and underscores differ."""
    dotted = dotted_name(name)
    return dotted if dotted in image.topics else image.underscored.get(dotted)


def _checked_topic_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    given = {name: value for name, value in configs.items() if value is not None}
    if len(given) != len(configs):
        empty = next(name for name, value in configs.items() if value is None)
        raise _error(ErrorCode.INVALID_CONFIG, f"configuration {empty!r} has no value")
    problems = topic_problems(given)
    if problems:
        raise _error(ErrorCode.INVALID_CONFIG, "; ".join(problems))
    return given


def _chosen_replicas(image: ClusterImage | Draft, topic: NewTopic, rules: Rules) -> Sequence[tuple[int, ...]]:
    if topic.assignments:
        if topic.partitions != -1 or topic.replication_factor != -1:
            raise _error(
                ErrorCode.INVALID_REQUEST, "give either replica assignments or a partition count and replication factor"
            )
        if sorted(topic.assignments) != list(range(len(topic.assignments))):
            raise _error(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions have to be numbered from 0 without a gap")
        _check_room(image, len(topic.assignments), rules)
        return _checked_assignments(image, [topic.assignments[index] for index in sorted(topic.assignments)])
    count = rules.num_partitions if topic.partitions == -1 else topic.partitions
    if count < 1:
        raise _error(ErrorCode.INVALID_PARTITIONS, f"a topic needs at least one partition, not {count}")
    _check_room(image, count, rules)
    factor = rules.default_replication_factor if topic.replication_factor == -1 else topic.replication_factor
    return place(image.brokers, topic.topic_id, first=0, count=count, factor=factor)


def _check_room(image: ClusterImage | Draft, count: int, rules: Rules) -> None:
    if image.partition_count + count > rules.max_partitions:
        raise _error(
            ErrorCode.POLICY_VIOLATION,
            f"{count} more partitions would exceed max.partitions={rules.max_partitions} "
            f"({image.partition_count} exist)",
        )


def _checked_assignments(image: ClusterImage | Draft, assignments: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    factor = len(assignments[0]) if assignments else 0
    for nodes in assignments:
        if not nodes or len(set(nodes)) != len(nodes):
            raise _error(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"replicas {list(nodes)} are empty or name a broker twice"
            )
        if len(nodes) != factor:
            raise _error(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "all partitions need the same number of replicas")
        for node in nodes:
            if node not in image.brokers:
                raise _error(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"no broker has the id {node}")
    return [tuple(nodes) for nodes in assignments]


def _partition_record(
    image: ClusterImage | Draft, topic_id: uuid.UUID, index: int, replicas: tuple[int, ...]
) -> PartitionRecord:
    isr = tuple(node for node in replicas if image.brokers[node].active)
    if not isr:
        raise _error(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"none of the brokers {list(replicas)} is there to lead a partition"
        )
    return PartitionRecord(partition_id=index, topic_id=topic_id, replicas=replicas, isr=isr, leader=isr[0])


def _topic_config(topic: str, name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=RESOURCE_TOPIC, resource_name=topic, name=name, value=value)


def _delete_topics(image: ClusterImage, request: DeleteTopics, rules: Rules) -> Result:
    repeated = _repeated(request.topics)
    draft = Draft(image)
    records: list[MetadataRecord] = []
    results: list[TopicResult] = []
    for ref in dict.fromkeys(request.topics):
        try:
            if ref in repeated:
                raise _error(ErrorCode.INVALID_REQUEST, "the topic is named more than once")
            if (ref.name is None) == (ref.topic_id == ZERO_UUID):
                raise _error(ErrorCode.INVALID_REQUEST, "name a topic by its name or by its id")
            topic = _existing(draft, ref)
            if not rules.delete_topic_enable:
                raise _error(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
            if topic.internal:
                raise _error(ErrorCode.POLICY_VIOLATION, f"topic {topic.name!r} belongs to the cluster")
        except KafkaError as error:
            results.append(TopicResult(name=ref.name, topic_id=ref.topic_id, error=error))
            continue
        record = RemoveTopicRecord(topic_id=topic.topic_id)
        draft.apply(record)
        records.append(record)
        results.append(TopicResult(name=topic.name, topic_id=topic.topic_id))
    return Result(records=tuple(records), response=tuple(results))


def _existing(image: ClusterImage | Draft, ref: TopicRef) -> TopicImage:
    if ref.name is not None:
        topic = image.topics.get(ref.name)
        if topic is None:
            raise _error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {ref.name!r}")
        return topic
    topic = image.topic_by_id(ref.topic_id)
    if topic is None:
        raise _error(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {ref.topic_id}")
    return topic


def _create_partitions(image: ClusterImage, request: CreatePartitions, rules: Rules) -> Result:
    repeated = _repeated(topic.name for topic in request.topics)
    draft = Draft(image)
    records: list[MetadataRecord] = []
    results: list[TopicResult] = []
    for increase in {topic.name: topic for topic in request.topics}.values():
        try:
            _refuse_repeated(increase.name, repeated)
            added = _more_partitions(draft, increase, rules)
        except KafkaError as error:
            results.append(TopicResult(name=increase.name, error=error))
            continue
        for record in added:
            draft.apply(record)
        records += added
        results.append(TopicResult(name=increase.name, partitions=increase.count))
    return Result(records=() if request.validate_only else tuple(records), response=tuple(results))


def _more_partitions(image: ClusterImage | Draft, increase: PartitionIncrease, rules: Rules) -> list[MetadataRecord]:
    topic = _existing(image, TopicRef(name=increase.name))
    first = len(topic.partitions)
    extra = increase.count - first
    if extra <= 0:
        raise _error(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name!r} has {first} partitions already; {increase.count} would not be more",
        )
    if topic.internal:
        raise _error(
            ErrorCode.POLICY_VIOLATION, f"topic {topic.name!r} belongs to the cluster; keys are placed by its size"
        )
    _check_room(image, extra, rules)
    factor = len(topic.partitions[0].replicas)
    if increase.assignments is None:
        replicas = place(image.brokers, topic.topic_id, first=first, count=extra, factor=factor)
    else:
        if len(increase.assignments) != extra or any(len(nodes) != factor for nodes in increase.assignments):
            raise _error(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{extra} new partitions with {factor} replicas each need as many assignments",
            )
        replicas = _checked_assignments(image, increase.assignments)
    return [_partition_record(image, topic.topic_id, first + index, nodes) for index, nodes in enumerate(replicas)]


# --- settings


def _alter_configs(image: ClusterImage, request: AlterConfigs, rules: Rules) -> Result:
    repeated = _repeated((item.resource_type, item.resource_name) for item in request.resources)
    records: list[MetadataRecord] = []
    results: list[ResourceResult] = []
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        error: KafkaError | None = None
        try:
            if (kind, name) in repeated:
                raise _error(ErrorCode.INVALID_REQUEST, f"resource {name!r} is named more than once")
            records += _changed_configs(image, resource)
        except KafkaError as problem:
            error = problem
        results.append(ResourceResult(resource_type=kind, resource_name=name, error=error))
    if request.validate_only:
        records = []
    records += eligible_no_more(image, records, rules)
    return Result(records=tuple(records), response=tuple(results))


def eligible_no_more(
    image: ClusterImage, configs: Sequence[MetadataRecord], rules: Rules
) -> Iterator[PartitionChangeRecord]:
    """Who is no eligible leader replica any more, because the ISR is large enough for another min.insync.replicas.

    Its leader moves HW on as soon as it hears of the setting, so this has to be in the same batch.
    """
    names = {each.resource_name for each in configs if isinstance(each, ConfigRecord) and each.name == MIN_IN_SYNC_KEY}
    if not names:
        return
    after = apply_batch(image, configs)
    for topic in (
        after.topics.values() if "" in names else [after.topics[name] for name in names if name in after.topics]
    ):
        for partition in topic.partitions:
            if partition.eligible_leader_replicas:
                enough = min_in_sync(after, topic, rules)
                record = changed(topic, partition, after.brokers, min_in_sync=enough)
                if record is not None:
                    yield record


def _changed_configs(image: ClusterImage, resource: ResourceChange) -> list[ConfigRecord]:
    table, before = _current_configs(image, resource)
    names = [change.name for change in resource.changes]
    for name in sorted(_repeated(names)):
        raise _error(ErrorCode.INVALID_REQUEST, f"configuration {name!r} is changed more than once")
    if resource.replace:
        names += [name for name in before if name not in names]
    after = {} if resource.replace else dict(before)
    for change in resource.changes:
        if change.name not in table and change.op != ConfigOp.DELETE:  # tools delete what may never have been set
            raise _error(ErrorCode.INVALID_CONFIG, _why_unknown(table, change.name))
        value = _changed_value(table, change, before.get(change.name))
        if value is None:
            after.pop(change.name, None)
        else:
            after[change.name] = value
    _check_values(table, after)
    return [
        ConfigRecord(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            name=name,
            value=after.get(name),
        )
        for name in names
        if before.get(name) != after.get(name)
    ]


def _current_configs(image: ClusterImage, resource: ResourceChange) -> tuple[ConfigTable, Mapping[str, str]]:
    if resource.resource_type == RESOURCE_TOPIC:
        if not resource.resource_name:
            raise _error(ErrorCode.INVALID_REQUEST, "topics have no cluster-wide default: name a topic")
        return TOPIC_CONFIG, _existing(image, TopicRef(name=resource.resource_name)).configs
    if resource.resource_type != RESOURCE_BROKER:
        raise _error(
            ErrorCode.INVALID_REQUEST, f"resource type {resource.resource_type} has no settings on this cluster"
        )
    name = resource.resource_name
    if name and not any(name == str(node) for node in image.brokers):  # 02 is no name of broker 2: nobody reads it
        raise _error(ErrorCode.INVALID_REQUEST, f"no broker has the id {name!r}")
    fixed = sorted(
        change.name
        for change in resource.changes
        if change.name in BROKER_CONFIG and not BROKER_CONFIG[change.name].dynamic and change.op != ConfigOp.DELETE
    )
    if fixed:
        raise _error(
            ErrorCode.INVALID_REQUEST,
            f"Cannot update these configs dynamically: [{', '.join(fixed)}] (set them in the file and restart)",
        )
    common = [change.name for change in resource.changes if change.name in COMMON_KEYS and change.op != ConfigOp.DELETE]
    if name and common:
        raise _error(
            ErrorCode.INVALID_CONFIG,
            f"Broker-level {common[0]} cannot be altered: controller and leader go by it both, so set it for all "
            "brokers (the cluster-wide default) or for topics",
        )
    return BROKER_CONFIG, image.broker_configs.get(name, {})


def _why_unknown(table: ConfigTable, name: str) -> str:
    if table is BROKER_CONFIG and name in NO_EFFECT:
        return f"Configuration {name!r} has no effect here: {NO_EFFECT[name]}"
    if table is BROKER_CONFIG and is_prefixed(name):
        return (
            f"Cannot update {name!r} dynamically: set it in the file and restart; new certificates are read by itself"
        )
    return table.unknown(name)


def _changed_value(table: ConfigTable, change: ConfigChange, before: str | None) -> str | None:
    if change.op == ConfigOp.DELETE:
        return None
    if change.value is None:
        raise _error(ErrorCode.INVALID_REQUEST, f"configuration {change.name!r} has no value")
    if change.op == ConfigOp.SET:
        return change.value
    key = table[change.name]
    if change.op not in (ConfigOp.APPEND, ConfigOp.SUBTRACT):
        raise _error(ErrorCode.INVALID_REQUEST, f"{change.op} is no way to change configuration {change.name!r}")
    if key.type is not ConfigType.LIST:
        raise _error(ErrorCode.INVALID_CONFIG, f"configuration {change.name!r} is not a list: use SET")
    default = "" if key.default is REQUIRED else text_of(key.default)
    current = [item for item in (before if before is not None else default or "").split(",") if item]
    given = [item.strip() for item in change.value.split(",") if item.strip()]
    if change.op == ConfigOp.APPEND:
        return ",".join([*current, *(item for item in given if item not in current)])
    return ",".join(item for item in current if item not in given)


def _check_values(table: ConfigTable, configs: Mapping[str, str]) -> None:
    known = {name: value for name, value in configs.items() if name in table}  # else kept from another version
    problems: list[str] = []
    for name, value in known.items():
        try:
            table[name].parse(value)
        except ConfigError as error:
            problems.extend(error.problems)
    if table is TOPIC_CONFIG and not problems:
        problems.extend(topic_problems(known))
    if problems:  # Kafka tells the two apart: a broker judges its own settings before the controller does
        code = ErrorCode.INVALID_REQUEST if table is BROKER_CONFIG else ErrorCode.INVALID_CONFIG
        raise _error(code, "; ".join(problems))


# --- brokers and producer ids


def _allocate_producer_ids(image: ClusterImage, request: AllocateProducerIds) -> Result:
    first = image.next_producer_id
    broker = image.brokers.get(request.broker_id)
    if request.broker_epoch is not None and (broker is None or broker.epoch != request.broker_epoch):
        raise StaleBrokerEpoch(f"epoch {request.broker_epoch} of broker {request.broker_id} is over")
    record = ProducerIdsRecord(
        broker_id=request.broker_id,
        broker_epoch=broker.epoch if broker else -1,
        next_producer_id=first + PRODUCER_ID_BLOCK,
    )
    return Result(records=(record,), response=ProducerIdBlock(first=first, count=PRODUCER_ID_BLOCK))


def _register_broker(image: ClusterImage, request: RegisterBroker) -> Result:
    return Result(
        records=(registration_record(request, epoch=image.offset),), response=Registration(broker_epoch=image.offset)
    )


def registration_record(request: RegisterBroker, *, epoch: int) -> RegisterBrokerRecord:
    """What the log is to hold of a new incarnation of a broker."""
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=epoch,
        end_points=request.end_points,
        features=request.features,
        rack=request.rack,
        fenced=request.fenced,
    )


def new_leaderships(image: ClusterImage, broker_id: int) -> Iterator[PartitionChangeRecord]:
    """A new leadership of every partition that a broker leads: what it asks for after it stopped out of order.

    Records that were in memory only are lost, and others will get their offsets; not their leader epoch.
    """
    for topic in image.topics.values():
        for partition in topic.partitions:
            if partition.leader == broker_id:
                yield PartitionChangeRecord(partition_id=partition.partition, topic_id=topic.topic_id, leader=broker_id)


def _error(code: ErrorCode, message: str) -> KafkaError:
    return error_for_code(code, message)


def with_topic_ids(request: CreateTopics, ids: Sequence[uuid.UUID]) -> CreateTopics:
    """The request with an id for every topic; the caller owns the randomness."""
    topics = tuple(replace(topic, topic_id=topic_id) for topic, topic_id in zip(request.topics, ids, strict=True))
    return replace(request, topics=topics)
