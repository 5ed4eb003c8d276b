"""The life of a broker, as the active controller decides it

A broker registers and is fenced: it may neither lead nor be in sync. When its heartbeat says that it has taken in its
own registration, it is unfenced. When nobody has heard of it for a session, or it wants that, it is fenced again. One
that is about to stop in order leads nothing from the first heartbeat that says so, and may go when all others know.

Whatever happens to a broker, `mended` draws the conclusion for partitions: whoever is not active leaves the ISR and
leads no more, and what has no leader gets one if somebody may be. It looks at the state alone and not at what
happened, so it can be asked again at any time. One decision changes at most `Rules.changes_max` partitions; where there
are more it is `unfinished`, and whoever asked asks `MendPartitions` until it is not. Nothing that was promised hangs on
the time between: a broker that is fenced and still in an ISR holds HW back.

An incarnation that cannot say that the one before it stopped in order, or that nothing is lost by it (`loses_nothing`),
may lack what was acknowledged. It leaves ISR and ELR of all partitions before its registration holds (KIP-966): a
registration alone would not tell the next decision whose logs those are.

Pure. Not here: who was heard of, and when (`tidemill.broker.quorum.sessions`).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, NamedTuple

from tidemill.broker.quorum.image import BrokerImage, ClusterImage, PartitionImage
from tidemill.broker.quorum.leadership import changed
from tidemill.broker.quorum.metadata import (
    RegisterBroker,
    Registration,
    Result,
    UncleanElection,
    registration_record,
    unclean_elections,
)
from tidemill.broker.quorum.records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from tidemill.broker.quorum.rules import Rules
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError, StaleBrokerEpoch, error_for_code

FENCE: Final = 1
UNFENCE: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeat:
    """A broker is there; `metadata_offset` is the last offset of metadata that it has taken in.

    `others_know` says that all other brokers have taken in that it leads nothing any more, as `sessions` says.
    """

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False
    others_know: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResult:
    """How a broker stands. `left_at` is an offset from which on it leads nothing, for one that is about to stop."""

    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False
    left_at: int | None = None
    unfinished: bool = False
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceBrokers:
    """Nobody has heard of these brokers for a session; with the epochs of those who were heard last."""

    brokers: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MendPartitions:
    """Go on with what was unfinished; also for a controller that becomes active, as the one before may have left it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """Who was fenced, and whether partitions are left to be mended."""

    fenced: tuple[int, ...] = ()
    unfinished: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBroker:
    """Forget a broker that is gone for good."""

    broker_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unregistration:
    """What became of it."""

    error: KafkaError | None = None


class Mending(NamedTuple):
    """Changes of partitions, those among them that may lose records, and whether there are more to make."""

    changes: tuple[PartitionChangeRecord, ...] = ()
    unclean: tuple[UncleanElection, ...] = ()
    unfinished: bool = False


# --- partitions follow


def mended(
    image: ClusterImage,
    brokers: Mapping[int, BrokerImage],
    rules: Rules,
    *,
    lost: Collection[int] = (),
) -> Mending:
    """What becomes of partitions with these `brokers`; those in `lost` may lack what they have acknowledged."""
    active = frozenset(node for node, broker in brokers.items() if broker.active)
    defaults = image.broker_configs.get("", {})
    changes: list[PartitionChangeRecord] = []
    unfinished = False
    for topic in image.topics.values():
        due = [each for each in topic.partitions if not (each.leader in active and active.issuperset(each.isr))]
        eligible = [each for each in topic.partitions if each.eligible_leader_replicas]
        if eligible:
            enough = rules.min_in_sync(topic.configs, defaults)
            known = {each.partition for each in due}
            due += [each for each in eligible if each.partition not in known and _doubtful(each, lost, enough)]
        if not due:
            continue
        if len(changes) >= rules.changes_max:
            unfinished = True
            break
        unclean = rules.may_lose(topic.configs, defaults)
        enough = rules.min_in_sync(topic.configs, defaults)
        for partition in due:
            if len(changes) > rules.changes_max:
                break
            if not lost and _must_wait(partition, active, unclean=unclean):
                continue
            isr = tuple(node for node in partition.isr if node in active)
            record = changed(topic, partition, brokers, min_in_sync=enough, isr=isr, lost=lost, unclean=unclean)
            if record is not None:
                changes.append(record)
    if len(changes) > rules.changes_max:
        del changes[rules.changes_max :]
        unfinished = True
    return Mending(tuple(changes), unclean_elections(image, changes), unfinished)


def _doubtful(partition: PartitionImage, lost: Collection[int], enough: int) -> bool:
    """Whether an eligible leader of it is not to be one: it has lost records, or the ISR is enough without.

    The second is so where this controller's file has another min.insync.replicas than that of the one before.
    """
    is_enough = len(partition.isr) >= min(enough, len(partition.replicas))
    return is_enough or not set(partition.eligible_leader_replicas).isdisjoint(lost)


def _must_wait(partition: PartitionImage, active: frozenset[int], *, unclean: bool) -> bool:
    """Whether nobody is there who could lead; in a cluster that starts, that is nearly all of them."""
    if partition.leader >= 0 or partition.isr:
        return False
    who = partition.replicas if unclean else (*partition.eligible_leader_replicas, *partition.last_known_elr)
    return active.isdisjoint(who)


def _with(image: ClusterImage, *brokers: BrokerImage) -> dict[int, BrokerImage]:
    """The brokers, with some as they are about to be."""
    return {**image.brokers, **{broker.node_id: broker for broker in brokers}}


def _changed_broker(broker: BrokerImage, *, fenced: int = 0, in_controlled_shutdown: int = 0) -> MetadataRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=broker.node_id,
        broker_epoch=broker.epoch,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
    )


# --- registration


def register_broker(image: ClusterImage, request: RegisterBroker, rules: Rules) -> Result:
    """Take in a new incarnation, fenced; one that is known keeps its epoch."""
    before = image.brokers.get(request.broker_id)
    refusal = _refusal(image, request, before, rules)
    if refusal is not None:
        return Result(records=(), response=Registration(broker_epoch=-1, error=refusal))
    if before is not None and before.incarnation_id == request.incarnation_id:
        return _registered_again(request, before)
    lost = () if before is not None and _holds_all(request, before) else (request.broker_id,)
    record = registration_record(request, epoch=image.offset)
    mending = mended(image, _with(image, _broker(record)), rules, lost=lost)
    if mending.unfinished:
        ends = () if before is None or before.fenced else (_changed_broker(before, fenced=FENCE),)
        return Result(
            records=(*ends, *mending.changes),
            response=Registration(broker_epoch=-1, unfinished=True),
            unclean=mending.unclean,
        )
    return Result(
        records=(record, *mending.changes),
        response=Registration(broker_epoch=record.broker_epoch),
        unclean=mending.unclean,
    )


def _broker(record: RegisterBrokerRecord) -> BrokerImage:
    return BrokerImage(
        node_id=record.broker_id,
        epoch=record.broker_epoch,
        incarnation_id=record.incarnation_id,
        end_points=record.end_points,
        rack=record.rack,
        fenced=record.fenced,
    )


def _refusal(
    image: ClusterImage, request: RegisterBroker, before: BrokerImage | None, rules: Rules
) -> KafkaError | None:
    if rules.cluster_id and request.cluster_id != rules.cluster_id:
        return error_for_code(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"broker {request.broker_id} belongs to cluster {request.cluster_id!r}, this is {rules.cluster_id!r}",
        )
    if before is not None and request.session_live and not _may_follow(request, before):
        return error_for_code(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"another process was heard of as broker {request.broker_id} a moment ago: if that one is gone, its "
            "session will be over soon",
        )
    ranges = {each.name: (each.min_supported_version, each.max_supported_version) for each in request.features}
    for name, level in image.features.items():
        low, high = ranges.get(name, (0, 0))
        if not low <= level <= high:
            return error_for_code(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the cluster runs {name} at level {level}, broker {request.broker_id} can run {low} to {high}",
            )
    return None


def _may_follow(request: RegisterBroker, before: BrokerImage) -> bool:
    """Whether this is the process before, or that one is known to be gone though it was heard of a moment ago.

    A folder is one process's at a time: who has the one in which that epoch is written has it after that process.
    """
    same = before.incarnation_id == request.incarnation_id
    return same or before.in_controlled_shutdown or request.previous_broker_epoch == before.epoch


def _holds_all(request: RegisterBroker, before: BrokerImage) -> bool:
    """Whether the logs of this incarnation have all that the ones before it acknowledged."""
    return request.previous_broker_epoch == before.epoch or request.loses_nothing


def _registered_again(request: RegisterBroker, before: BrokerImage) -> Result:
    """The same process once more, which may not have got the answer, or has other addresses."""
    record = replace(registration_record(request, epoch=before.epoch), fenced=before.fenced,
                     in_controlled_shutdown=before.in_controlled_shutdown)  # fmt: skip
    same = (before.end_points, before.rack, before.features) == (record.end_points, record.rack, record.features)
    return Result(records=() if same else (record,), response=Registration(broker_epoch=before.epoch))


# --- heartbeats and their absence


def heartbeat(image: ClusterImage, request: BrokerHeartbeat, rules: Rules) -> Result:
    """How a broker stands from now on."""
    broker = image.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        known = "not registered" if broker is None else f"registered with epoch {broker.epoch}"
        error = StaleBrokerEpoch(f"broker {request.broker_id} is {known}, not with epoch {request.broker_epoch}")
        return Result(records=(), response=HeartbeatResult(error=error))
    caught_up = request.metadata_offset >= broker.epoch
    if request.want_shut_down:
        return _shut_down(image, broker, request, rules, caught_up=caught_up)
    fences = request.want_fence and not broker.fenced
    unfences = broker.fenced and caught_up and not request.want_fence and not broker.in_controlled_shutdown
    if not fences and not unfences:
        return Result(records=(), response=HeartbeatResult(is_caught_up=caught_up, is_fenced=broker.fenced))
    mending = mended(image, _with(image, replace(broker, fenced=fences)), rules)
    return Result(
        records=(_changed_broker(broker, fenced=FENCE if fences else UNFENCE), *mending.changes),
        response=HeartbeatResult(is_caught_up=caught_up, is_fenced=fences, unfinished=mending.unfinished),
        unclean=mending.unclean,
    )


def _shut_down(
    image: ClusterImage, broker: BrokerImage, request: BrokerHeartbeat, rules: Rules, *, caught_up: bool
) -> Result:
    """Leaderships move first; then the others have to hear of it; then it may go, and is fenced."""
    if broker.fenced:
        return Result(records=(), response=HeartbeatResult(is_caught_up=caught_up, should_shut_down=True))
    records: tuple[MetadataRecord, ...] = ()
    if not broker.in_controlled_shutdown:
        records = (_changed_broker(broker, in_controlled_shutdown=1),)
    mending = mended(image, _with(image, replace(broker, in_controlled_shutdown=True)), rules)
    records = (*records, *mending.changes)
    goes = not records and request.others_know
    if goes:
        records = (_changed_broker(broker, fenced=FENCE),)
    return Result(
        records=records,
        response=HeartbeatResult(
            is_caught_up=caught_up,
            is_fenced=goes,
            should_shut_down=goes,
            left_at=None if mending.unfinished else image.offset + len(records),
            unfinished=mending.unfinished,
        ),
        unclean=mending.unclean,
    )


def fence_brokers(image: ClusterImage, request: FenceBrokers, rules: Rules) -> Result:
    """Fence those whose sessions are over, if they are still who they were."""
    gone = [
        broker
        for node, epoch in request.brokers
        if (broker := image.brokers.get(node)) is not None and broker.epoch == epoch and not broker.fenced
    ]
    mending = mended(image, _with(image, *(replace(broker, fenced=True) for broker in gone)), rules)
    return Result(
        records=tuple(chain((_changed_broker(broker, fenced=FENCE) for broker in gone), mending.changes)),
        response=Mended(fenced=tuple(broker.node_id for broker in gone), unfinished=mending.unfinished),
        unclean=mending.unclean,
    )


def mend_partitions(image: ClusterImage, rules: Rules) -> Result:
    """Draw the conclusions that are left."""
    mending = mended(image, image.brokers, rules)
    return Result(records=mending.changes, response=Mended(unfinished=mending.unfinished), unclean=mending.unclean)


def unregister_broker(image: ClusterImage, request: UnregisterBroker) -> Result:
    """Forget a broker, if it is fenced; what it was to hold it still is, until somebody moves that."""
    broker = image.brokers.get(request.broker_id)
    error: KafkaError | None = None
    if broker is None:
        error = error_for_code(ErrorCode.BROKER_ID_NOT_REGISTERED, f"no broker has the id {request.broker_id}")
    elif not broker.fenced:
        error = error_for_code(
            ErrorCode.INVALID_REQUEST, f"broker {request.broker_id} is running: only one that is gone can be forgotten"
        )
    if broker is None or error is not None:
        return Result(records=(), response=Unregistration(error=error))
    record = UnregisterBrokerRecord(broker_id=broker.node_id, broker_epoch=broker.epoch)
    return Result(records=(record,), response=Unregistration())
