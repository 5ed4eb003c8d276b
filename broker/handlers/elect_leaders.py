"""ElectLeaders (43): let the preferred replica lead, or any at all

versions: 0-2 (0: preferred elections only; 1: unclean elections and an error for the whole answer, KIP-460; 2:
flexible)

A partition has one replica here, which leads as long as this broker runs: an election is never needed, and where one
would be, nobody could be elected. As on Kafka, partitions that need none are passed over in silence when all are asked
for.
"""

from collections.abc import Iterator
from typing import Final

from tidemill.broker.dispatch import BrokerServices, RequestContext, Route
from tidemill.broker.partitions import find_partition, find_topic
from tidemill.broker.quorum.image import PartitionImage
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import InvalidRequest, KafkaError, error_for_code
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

PREFERRED: Final = 0
UNCLEAN: Final = 1
NO_LEADER: Final = -1


def handle(broker: BrokerServices, request: ElectLeadersRequest, ctx: RequestContext) -> ElectLeadersResponse:
    """The outcome of each election, in the order of the request."""
    election = request.election_type if ctx.api_version >= 1 else PREFERRED
    if election not in (PREFERRED, UNCLEAN):
        raise InvalidRequest(f"there is no election type {election}: 0 is preferred, 1 unclean")
    if request.topic_partitions is None:
        return ElectLeadersResponse(replica_election_results=tuple(_needed(broker, election)))
    return ElectLeadersResponse(
        replica_election_results=tuple(
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=tuple(
                    _result(partition, _outcome(broker, topic.topic, partition, election))
                    for partition in topic.partitions
                ),
            )
            for topic in request.topic_partitions
        )
    )


def _needed(broker: BrokerServices, election: int) -> Iterator[ReplicaElectionResult]:
    for topic in sorted(broker.controller.image.topics.values(), key=lambda topic: topic.name):
        outcomes = [(partition.partition, elect(partition, election)) for partition in topic.partitions]
        yield ReplicaElectionResult(
            topic=topic.name,
            partition_result=tuple(
                _result(partition, outcome)
                for partition, outcome in outcomes
                if outcome.code != ErrorCode.ELECTION_NOT_NEEDED
            ),
        )


def _outcome(broker: BrokerServices, topic: str, partition: int, election: int) -> KafkaError:
    try:
        return elect(find_partition(find_topic(broker, topic), partition), election)
    except KafkaError as error:
        return error


def elect(partition: PartitionImage, election: int) -> KafkaError:
    """Why there is no new leader."""
    preferred = partition.replicas[0]
    if election == UNCLEAN and partition.leader == NO_LEADER:
        return error_for_code(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica of the partition is available")
    if election == PREFERRED and partition.leader != preferred:
        return error_for_code(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"broker {preferred}, the preferred leader, is not available"
        )
    return error_for_code(ErrorCode.ELECTION_NOT_NEEDED, f"broker {partition.leader} leads the partition already")


def _result(partition: int, error: KafkaError) -> PartitionResult:
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


ROUTES = (Route(key=ApiKey.ELECT_LEADERS, handle=handle, min_version=0, max_version=2, error_response=error_response),)
