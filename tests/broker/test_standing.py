"""Before a client has logged in it may ask for versions and say who it is, and nothing else"""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.broker.server_stage import LIMITS, Client, heartbeat, until
from tidemill.broker.authorization import ALLOW_ALL
from tidemill.broker.dispatch import BrokerServices, Dispatcher, RequestContext, Route
from tidemill.broker.handlers import api_versions
from tidemill.broker.listeners import ListenerSpec, SecurityProtocol
from tidemill.broker.principals import ANONYMOUS, Principal
from tidemill.broker.quotas import UNLIMITED
from tidemill.broker.refusals import Refusal
from tidemill.broker.request_meter import RequestMeter
from tidemill.broker.server import Server
from tidemill.broker.standing import Standing
from tidemill.core.runtime.clock import ManualClock
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.framing import encode_request
from tidemill.core.wire.messages.api_versions import ApiVersionsRequest
from tidemill.core.wire.messages.heartbeat import HeartbeatResponse


@pytest.mark.parametrize("key", ApiKey, ids=lambda key: key.name)
def test_what_may_be_asked(key: ApiKey) -> None:
    assert Standing.KNOWN.may_ask(key)
    first = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
    assert Standing.UNKNOWN.may_ask(key) == (key in first)


class Door:
    """A server that tells who has asked."""

    def __init__(self, protocol: SecurityProtocol) -> None:
        self.seen: list[RequestContext] = []
        route = Route(key=ApiKey.HEARTBEAT, handle=self.handle, min_version=0, max_version=0, needs=())
        broker = SimpleNamespace(authorizer=ALLOW_ALL, quotas=UNLIMITED, served_apis={ApiKey.HEARTBEAT: (0, 0)})
        dispatcher = Dispatcher(cast(BrokerServices, broker), (route, *api_versions.ROUTES))
        self.meter = RequestMeter(ManualClock().monotonic)
        spec = ListenerSpec(name="DOOR", protocol=protocol)
        self.server = Server(dispatcher, host="127.0.0.1", port=0, spec=spec, limits=LIMITS, meter=self.meter)

    def handle(self, _broker: Any, _request: Any, ctx: RequestContext) -> HeartbeatResponse:
        self.seen.append(ctx)
        return HeartbeatResponse()


async def test_a_listener_without_login_lets_everybody_ask() -> None:
    door = Door(SecurityProtocol.PLAINTEXT)
    async with door.server as server:
        client = await Client.of(server)
        client.writer.write(heartbeat(1))
        await client.response()
        (ctx,) = door.seen
        assert (ctx.principal, ctx.client_host, ctx.listener) == (ANONYMOUS, "127.0.0.1", "DOOR")
        client.writer.close()


async def test_whoever_asks_before_logging_in_is_hung_up_on() -> None:
    door = Door(SecurityProtocol.SASL_PLAINTEXT)
    async with door.server as server:
        client = await Client.of(server)
        versions = ApiVersionsRequest(client_software_name="c", client_software_version="1")
        client.writer.write(encode_request(ApiKey.API_VERSIONS, 3, 5, "c", versions))
        assert (await client.response(ApiKey.API_VERSIONS, 3))[0] == 5
        client.writer.write(heartbeat(1))
        assert await client.is_closed()
        assert door.seen == []
        assert door.meter.refused[Refusal.NOT_LOGGED_IN] == 1
        client.writer.close()


async def test_after_that_it_is_whoever_it_has_said() -> None:
    door = Door(SecurityProtocol.SASL_PLAINTEXT)
    async with door.server as server:
        client = await Client.of(server)
        await until(lambda: bool(server.connections))
        (connection,) = server.connections
        connection.logged_in(Principal("User", "alice"))
        client.writer.write(heartbeat(1))
        await client.response()
        assert str(door.seen[0].principal) == "User:alice"
        client.writer.close()
