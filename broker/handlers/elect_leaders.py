"""ElectLeaders (43): let the preferred replica lead, or any at all

versions: 0-2 (0: preferred elections only; 1: unclean elections and an error for the whole answer, KIP-460; 2:
flexible)

The answer is the same for any cluster: it follows from the image and comes when the new leaderships are durable. As on
Kafka, partitions that need no election are passed over in silence when all are asked for, and an election that finds
another leader than the preferred one, where there was none, has succeeded.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from tidemill.broker import administration_log
from tidemill.broker.authorization import on_the_cluster
from tidemill.broker.dispatch import BrokerServices, RequestContext, Route
from tidemill.broker.operations import Operation
from tidemill.broker.quorum.leadership import ElectLeaders
from tidemill.broker.quorum.leadership import PartitionResult as Outcome
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import InvalidRequest, KafkaError
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)

PREFERRED: Final = 0
UNCLEAN: Final = 1


async def handle(broker: BrokerServices, request: ElectLeadersRequest, ctx: RequestContext) -> ElectLeadersResponse:
    """The outcome of each election, in the order of the request."""
    election = request.election_type if ctx.api_version >= 1 else PREFERRED
    if election not in (PREFERRED, UNCLEAN):
        raise InvalidRequest(f"there is no election type {election}: 0 is preferred, 1 unclean")
    asked = request.topic_partitions
    partitions = None if asked is None else tuple((topic.topic, topic.partitions) for topic in asked)
    results = await broker.controller.elect_leaders(ElectLeaders(partitions=partitions, unclean=election == UNCLEAN))
    elected = (f"{each.topic}-{each.partition}" for each in results if each.error is None)
    administration_log.tell("leaders elected uncleanly" if election == UNCLEAN else "leaders elected", elected, ctx)
    return ElectLeadersResponse(
        replica_election_results=_of_all(broker, results) if asked is None else _of_named(asked, results)
    )


def _of_named(asked: Sequence[TopicPartitions], results: Sequence[Outcome]) -> tuple[ReplicaElectionResult, ...]:
    following = iter(results)
    return tuple(
        ReplicaElectionResult(
            topic=topic.topic, partition_result=tuple(_result(each, next(following).error) for each in topic.partitions)
        )
        for topic in asked
    )


def _of_all(broker: BrokerServices, results: Sequence[Outcome]) -> tuple[ReplicaElectionResult, ...]:
    """A row for every topic, also where none of its partitions needs an election."""
    rows = {
        topic: tuple(_result(each.partition, each.error) for each in some)
        for topic, some in groupby(results, key=lambda each: each.topic)
    }
    topics = sorted(rows.keys() | broker.controller.image.topics.keys())
    return tuple(ReplicaElectionResult(topic=topic, partition_result=rows.get(topic, ())) for topic in topics)


def _result(partition: int, error: KafkaError | None) -> PartitionResult:
    if error is None:
        return PartitionResult(partition_id=partition, error_code=ErrorCode.NONE, error_message=None)
    return PartitionResult(partition_id=partition, error_code=error.code, error_message=str(error))


def error_response(request: ElectLeadersRequest, error: KafkaError, api_version: int) -> ElectLeadersResponse:
    """The same error for everything: version 0 has no other place for it."""
    return ElectLeadersResponse(
        error_code=error.code,
        replica_election_results=tuple(
            ReplicaElectionResult(
                topic=topic.topic, partition_result=tuple(_result(partition, error) for partition in topic.partitions)
            )
            for topic in request.topic_partitions or ()
        ),
    )


ROUTES = (
    Route(
        key=ApiKey.ELECT_LEADERS,
        handle=handle,
        min_version=0,
        max_version=2,
        needs=(on_the_cluster(Operation.ALTER),),
        error_response=error_response,
    ),
)
