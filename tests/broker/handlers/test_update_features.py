"""UpdateFeatures on the wire, in every version."""

from pathlib import Path

import pytest

from tests.broker.broker_world import broker_and_client
from tidemill.core.error_code import ErrorCode
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.api_versions import ApiVersionsRequest
from tidemill.core.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest


@pytest.mark.parametrize("version", range(3))
async def test_a_feature_that_is_not_listed_has_no_level_to_change(tmp_path: Path, version: int) -> None:
    async with broker_and_client(tmp_path) as (_, client):
        listed = await client.ask(ApiKey.API_VERSIONS, 4, ApiVersionsRequest())
        assert listed.supported_features == listed.finalized_features == ()
        update = FeatureUpdateKey(feature="metadata.version", max_version_level=20)
        response = await client.ask(ApiKey.UPDATE_FEATURES, version, UpdateFeaturesRequest(feature_updates=(update,)))
        assert (response.error_code, response.results) == (ErrorCode.INVALID_UPDATE_VERSION, ())
        assert "'metadata.version' is not supported" in response.error_message
        response = await client.ask(ApiKey.UPDATE_FEATURES, version, UpdateFeaturesRequest())
        assert (response.error_code, response.error_message) == (0, None)
