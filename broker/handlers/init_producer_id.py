"""InitProducerId (22): an identity for an idempotent producer

versions: 0-5
  2  flexible
  3  producer id and epoch of a producer that wants a new epoch
  4  PRODUCER_FENCED for INVALID_PRODUCER_EPOCH
  5  transactions of the second kind (not served)

Every idempotent producer gets a fresh id with epoch 0; a client that sends its old id gets a fresh one too, as on
Apache Kafka. A transactional id is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED: every client takes that for
final and shows it to its user at once, while a retriable error would make it wait for a coordinator that does not
come.

Whoever may write to some topic may have an id; IDEMPOTENT_WRITE on the cluster will do as well (KIP-679).
"""

import structlog

from tidemill.broker.authorization import THE_CLUSTER, Resource, ResourceKind, on_each, permit
from tidemill.broker.dispatch import BrokerServices, RequestContext, Route
from tidemill.broker.operations import Operation
from tidemill.core.errors import InvalidRequest, TransactionalIdAuthorizationFailed
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

log = structlog.get_logger("tidemill.broker.producers")


async def handle(broker: BrokerServices, request: InitProducerIdRequest, ctx: RequestContext) -> InitProducerIdResponse:
    """A producer id that nobody else has."""
    if request.transactional_id == "":
        raise InvalidRequest("a transactional id cannot be empty")
    if request.transactional_id is not None:
        wanted = Resource(ResourceKind.TRANSACTIONAL_ID, request.transactional_id)
        permit(broker.authorizer, ctx, Operation.WRITE, wanted)
        log.warning(
            "transactions are not available: producer refused",
            transactional_id=request.transactional_id,
            client_id=ctx.client_id,
        )
        raise TransactionalIdAuthorizationFailed("transactions are not available on this broker")
    if not broker.authorizer.allows_some(ctx, Operation.WRITE, ResourceKind.TOPIC):
        permit(broker.authorizer, ctx, Operation.IDEMPOTENT_WRITE, THE_CLUSTER)
    return InitProducerIdResponse(producer_id=await broker.producer_ids.take(), producer_epoch=0)


ROUTES = (
    Route(
        key=ApiKey.INIT_PRODUCER_ID,
        handle=handle,
        min_version=0,
        max_version=5,
        needs=(
            on_each(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID),
            on_each(Operation.WRITE, ResourceKind.TOPIC),
            on_each(Operation.IDEMPOTENT_WRITE, ResourceKind.CLUSTER),
        ),
    ),
)
