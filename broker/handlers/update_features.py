"""UpdateFeatures (57): raise or lower the finalized level of a feature

versions: 0-2 (1: safe and unsafe downgrades, and trying without doing, KIP-778; 2: no list of results any more)

This broker lists no features (see `tidemill.broker.handlers.api_versions`), so none has a level that could be changed;
the first one of a request is refused and with it the whole request, as Kafka does it.
"""

from tidemill.broker.authorization import on_the_cluster
from tidemill.broker.dispatch import BrokerServices, RequestContext, Route
from tidemill.broker.operations import Operation
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import error_for_code
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse


def handle(broker: BrokerServices, request: UpdateFeaturesRequest, ctx: RequestContext) -> UpdateFeaturesResponse:
    """Nothing to do, or the reason why nothing is done."""
    if request.feature_updates:
        first = request.feature_updates[0]
        raise error_for_code(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"no feature is updated: {first.feature!r} is not supported here, so it cannot have the level "
            f"{first.max_version_level}",
        )
    return UpdateFeaturesResponse(error_message=None)


ROUTES = (
    Route(
        key=ApiKey.UPDATE_FEATURES,
        handle=handle,
        min_version=0,
        max_version=2,
        needs=(on_the_cluster(Operation.ALTER),),
    ),
)
