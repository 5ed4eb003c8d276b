"""ApiVersions (18): what this broker serves

versions: 0-4
  1  throttle time
  3  flexible; client software name and version; features as tagged fields
  4  features may have the minimum version 0

A version that is not served is answered in version 0 with UNSUPPORTED_VERSION and the table all the same, so that the
client can step down. Produce is advertised from version 0 although 0-2 are refused: older librdkafka takes their
absence for "no compression". No features are listed: a listed feature is a promise about APIs that are not served
yet.
"""

from tidemill.broker.dispatch import UNSUPPORTED_VERSION, BrokerServices, RequestContext, Route
from tidemill.core.error_code import ErrorCode
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse


def handle(broker: BrokerServices, _request: ApiVersionsRequest | None, ctx: RequestContext) -> ApiVersionsResponse:
    """The table of served APIs."""
    unsupported = ctx.api_version == UNSUPPORTED_VERSION
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION if unsupported else ErrorCode.NONE,
        api_keys=tuple(
            ApiVersion(api_key=key, min_version=first, max_version=last)
            for key, (first, last) in broker.served_apis.items()
        ),
    )


ROUTES = (Route(key=ApiKey.API_VERSIONS, handle=handle, min_version=0, max_version=4, needs=()),)
