"""ApiVersions over the wire"""

from pathlib import Path

import pytest

from tests.broker.broker_world import broker_and_client
from tidemill.broker.routes import ROUTES
from tidemill.core.error_code import ErrorCode
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.framing import decode_response, encode_request
from tidemill.core.wire.messages.api_versions import ApiVersionsRequest


@pytest.mark.parametrize("version", range(5))
async def test_every_version_lists_what_is_served(tmp_path: Path, version: int) -> None:
    async with broker_and_client(tmp_path) as (_, client):
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        response = await client.ask(ApiKey.API_VERSIONS, version, request)
        assert response.error_code == 0
        listed = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
        assert set(listed) == {route.key for route in ROUTES}
        assert listed[ApiKey.PRODUCE] == (0, 13), "old librdkafka stops compressing unless version 0 is listed"


async def test_a_version_from_the_future_steps_down_on_the_same_connection(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (_, client):
        frame = bytearray(encode_request(ApiKey.API_VERSIONS, 3, 1, "c", ApiVersionsRequest()))
        frame[6:8] = (77).to_bytes(2, "big")
        client.send(frame)
        correlation_id, response = decode_response(ApiKey.API_VERSIONS, 0, await client.receive())
        assert correlation_id == 1
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert any(row.api_key == ApiKey.API_VERSIONS and row.max_version == 4 for row in response.api_keys)
        assert (await client.ask(ApiKey.API_VERSIONS, 4, ApiVersionsRequest())).error_code == 0
