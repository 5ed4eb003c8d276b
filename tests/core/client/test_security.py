"""Our own client at a listener that speaks TLS, and at one that does not"""

from pathlib import Path

import pytest

from tests.broker.server_stage import LIMITS, Stage
from tests.broker.tls_stage import settings, tls_server
from tests.certificates import Authority
from tidemill.broker.server import Server
from tidemill.core.client.connection import Address, Connection, ConnectionFailed
from tidemill.core.client.security import dialer_of
from tidemill.core.config import ConfigError
from tidemill.core.security.tls_settings import ClientAuth


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


async def reason(port: int, host: str = "localhost", **given: str) -> str:
    """Why there is no connection; the stage serves no ApiVersions, so one that gets through is hung up on."""
    dialer = dialer_of({name.replace("_", "."): value for name, value in given.items()})
    with pytest.raises(ConnectionFailed) as caught:
        await Connection.open(Address(host, port), client_id="test", dialer=dialer)
    return caught.value.reason


async def test_the_reason_says_what_to_do(authority: Authority, tmp_path: Path) -> None:
    ca = str(authority.certificate)
    async with tls_server(settings(authority, authority.signed().both)) as (server, _):
        trusting = {"security_protocol": "SSL", "ssl_truststore_location": ca}
        assert "peer closed the connection" in await reason(server.port, **trusting)
        assert "set ssl.truststore.location" in await reason(server.port, security_protocol="SSL")
        assert "see security.protocol" in await reason(server.port)
    async with Server(Stage().dispatcher, host="127.0.0.1", port=0, limits=LIMITS) as plain:
        assert "security.protocol" in await reason(plain.port, **trusting)
    async with tls_server(settings(authority, authority.signed(days=-1).both)) as (server, _):
        assert "has expired: renew it" in await reason(server.port, **trusting)
    async with tls_server(settings(authority, authority.signed(names="DNS:other.example").both)) as (server, _):
        assert "is not about localhost" in await reason(server.port, **trusting)
    asking = settings(authority, authority.signed().both, ClientAuth.REQUIRED)
    async with tls_server(asking) as (server, _):
        assert "the broker wants a certificate" in await reason(server.port, **trusting)


async def test_new_files_count_from_the_next_connection_on(authority: Authority, tmp_path: Path) -> None:
    trusted = tmp_path / "ca.pem"
    stranger = Authority(tmp_path / "stranger", "Stranger")
    trusted.write_text(stranger.certificate.read_text())
    dialer = dialer_of({"security.protocol": "SSL", "ssl.truststore.location": str(trusted)})
    async with tls_server(settings(authority, authority.signed().both)) as (server, _):
        for text in (None, authority.certificate.read_text(), "nonsense"):
            if text is not None:
                trusted.write_text(text)
            with pytest.raises(ConnectionFailed) as caught:
                await Connection.open(Address("localhost", server.port), client_id="test", dialer=dialer)
            assert ("is not trusted" in caught.value.reason) is (text is None)


def test_files_that_cannot_be_used_are_mistakes_in_the_settings(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        dialer_of({"security.protocol": "SSL", "ssl.truststore.location": str(tmp_path / "none.pem")})
