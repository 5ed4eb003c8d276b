"""Controllers that speak TLS: who is let in, what a node says that is not, certificates that change"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.certificates import Authority, openssl
from tidemill.broker.quorum.grpc_tls import NodeTls
from tidemill.broker.quorum.grpc_transport import GrpcTransport
from tidemill.broker.quorum.transport import Unreachable
from tidemill.core.client.connection import Address
from tidemill.core.runtime.clock import SystemClock
from tidemill.core.runtime.tls import TlsProblem
from tidemill.core.security.tls_settings import ClientAuth, TlsSettings
from tidemill.core.wire.message import Message
from tidemill.core.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

ASK_S = 5.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"), "Another Authority")


def terms(store: Path, trusted: Path, client_auth: ClientAuth = ClientAuth.REQUIRED, **more: bool) -> TlsSettings:
    return TlsSettings(keystore_location=str(store), truststore_location=str(trusted), client_auth=client_auth, **more)


def node(settings: TlsSettings, *, serves: bool = True) -> NodeTls:
    return NodeTls("CONTROLLER", settings, SystemClock(), serves=serves)


async def heartbeats(_request: Message) -> Message:
    return BrokerHeartbeatResponse(is_caught_up=True)


@asynccontextmanager
async def listening(tls: NodeTls | None) -> AsyncIterator[Address]:
    there = GrpcTransport(tls)
    port = await there.serve(Address("127.0.0.1", 0), heartbeats)
    try:
        yield Address("127.0.0.1", port)
    finally:
        await there.close()


async def asked(tls: NodeTls, address: Address) -> None:
    here = GrpcTransport(tls)
    try:
        answer = await here.call(address, BrokerHeartbeatRequest(), timeout_s=ASK_S)
        assert isinstance(answer, BrokerHeartbeatResponse)
        assert answer.is_caught_up
    finally:
        await here.close()


async def test_nodes_of_one_authority_speak_to_each_other(authority: Authority) -> None:
    settings = terms(authority.signed().both, authority.certificate)
    async with listening(node(settings)) as address:
        await asked(node(settings), address)
        await asked(node(settings, serves=False), address)


async def test_a_node_of_another_authority_hears_that_it_is_not_let_in(
    authority: Authority, stranger: Authority
) -> None:
    ours = node(terms(authority.signed().both, authority.certificate))
    theirs = node(terms(stranger.signed().both, authority.certificate))
    async with listening(ours) as address:
        with capture_logs() as lines, pytest.raises(Unreachable, match=r"TLS: .*certificate") as refused:
            await asked(theirs, address)
        assert "wants another certificate" in str(refused.value) or "does not accept" in str(refused.value)
        assert [line["controller"] for line in lines if "TLS" in line["event"]] == [str(address)]


async def test_a_node_without_a_certificate_hears_that_it_needs_one(authority: Authority) -> None:
    bare = TlsSettings(truststore_location=str(authority.certificate))
    async with listening(node(terms(authority.signed().both, authority.certificate))) as address:
        with pytest.raises(Unreachable, match=r"ssl\.keystore\.location"):
            await asked(node(bare, serves=False), address)


async def test_one_whose_certificate_is_not_asked_for_needs_none(authority: Authority) -> None:
    bare = TlsSettings(truststore_location=str(authority.certificate))
    lax = terms(authority.signed().both, authority.certificate, ClientAuth.NONE)
    async with listening(node(lax)) as address:
        await asked(node(bare, serves=False), address)


async def test_a_stranger_that_serves_is_not_spoken_to(authority: Authority, stranger: Authority) -> None:
    async with listening(node(terms(stranger.signed().both, stranger.certificate))) as address:
        with pytest.raises(Unreachable, match=r"TLS: .*is not trusted .*: set ssl\.truststore\.location"):
            await asked(node(terms(authority.signed().both, authority.certificate)), address)


async def test_a_certificate_has_to_be_about_the_host_unless_that_is_turned_off(authority: Authority) -> None:
    there = node(terms(authority.signed("/CN=far", "DNS:*.far.example").both, authority.certificate))
    own = authority.signed().both
    async with listening(there) as address:
        with pytest.raises(Unreachable, match=r"TLS: .*is not about 127\.0\.0\.1"):
            await asked(node(terms(own, authority.certificate)), address)
        await asked(node(terms(own, authority.certificate, check_host=False)), address)


async def test_one_that_does_not_speak_tls_is_told_from_one_that_refuses(authority: Authority) -> None:
    async with listening(None) as address:
        with pytest.raises(Unreachable, match="does not speak TLS at this port"):
            await asked(node(terms(authority.signed().both, authority.certificate)), address)


@pytest.mark.parametrize("check_host", [True, False])
async def test_nobody_there_is_no_trouble_of_tls(authority: Authority, *, check_host: bool) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = Address("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(Unreachable, match="not reachable") as error:
        await asked(node(terms(authority.signed().both, authority.certificate, check_host=check_host)), address)
    assert error.value.refused


async def test_new_certificates_count_from_the_next_connection_on(
    authority: Authority, stranger: Authority, tmp_path: Path
) -> None:
    """Both sides change their authority while they run; the connection that there was goes on meanwhile."""
    store, trusted = tmp_path / "store.pem", tmp_path / "trusted.pem"

    def put(who: Authority) -> None:
        store.write_text(who.signed().both.read_text())
        trusted.write_text(who.certificate.read_text())

    put(authority)
    there, here = node(terms(store, trusted)), node(terms(store, trusted))
    async with listening(there) as address:
        transport = GrpcTransport(here)
        try:
            await transport.call(address, BrokerHeartbeatRequest(), timeout_s=ASK_S)
            put(stranger)
            await there.watch.refresh()
            await transport.call(address, BrokerHeartbeatRequest(), timeout_s=ASK_S)
            await here.watch.refresh()
            await transport.call(address, BrokerHeartbeatRequest(), timeout_s=ASK_S)
        finally:
            await transport.close()
        with pytest.raises(Unreachable, match="TLS: "):
            await asked(node(terms(authority.signed().both, authority.certificate)), address)


async def test_a_node_that_shows_another_name_by_now_is_spoken_to_where_names_do_not_matter(
    authority: Authority,
) -> None:
    here = GrpcTransport(node(terms(authority.signed().both, authority.certificate, check_host=False)))
    there = GrpcTransport(node(terms(authority.signed("/CN=old", "DNS:old.example").both, authority.certificate)))
    try:
        address = Address("127.0.0.1", await there.serve(Address("127.0.0.1", 0), heartbeats))
        await here.call(address, BrokerHeartbeatRequest(), timeout_s=ASK_S)
        await there.close()
        there = GrpcTransport(node(terms(authority.signed("/CN=new", "DNS:new.example").both, authority.certificate)))
        await there.serve(address, heartbeats)
        async with asyncio.timeout(ASK_S):
            while True:
                try:
                    await here.call(address, BrokerHeartbeatRequest(), timeout_s=ASK_S)
                except Unreachable:
                    await asyncio.sleep(0.05)
                else:
                    break
    finally:
        await here.close()
        await there.close()


async def test_a_file_that_cannot_be_used_changes_nothing(authority: Authority, tmp_path: Path) -> None:
    store = tmp_path / "store.pem"
    store.write_text(authority.signed().both.read_text())
    tls = node(terms(store, authority.certificate))
    before = tls.texts
    store.write_text("nonsense")
    await tls.watch.refresh()
    assert tls.texts is before
    assert "is not PEM" in str(tls.watch.stale)


async def test_calls_under_way_are_answered_when_the_certificate_changes(authority: Authority, tmp_path: Path) -> None:
    store, came, go = tmp_path / "store.pem", asyncio.Event(), asyncio.Event()
    store.write_text(authority.signed().both.read_text())

    async def wait(_request: Message) -> Message:
        came.set()
        await go.wait()
        return BrokerHeartbeatResponse()

    tls = node(terms(store, authority.certificate))
    there, here = GrpcTransport(tls), GrpcTransport(tls)
    try:
        address = Address("127.0.0.1", await there.serve(Address("127.0.0.1", 0), wait))
        async with asyncio.timeout(ASK_S), asyncio.TaskGroup() as group:
            group.create_task(here.call(address, BrokerHeartbeatRequest(), timeout_s=ASK_S))
            await came.wait()
            store.write_text(authority.signed().both.read_text() + "\n")
            await tls.watch.refresh()
            came.clear()
            group.create_task(here.call(address, BrokerHeartbeatRequest(), timeout_s=ASK_S))
            await came.wait()
            go.set()
    finally:
        await here.close()
        await there.close()


def test_an_encrypted_key_is_refused_with_what_to_do(authority: Authority) -> None:
    hidden = authority.signed(password="secret").both
    with pytest.raises(TlsProblem, match="openssl pkey"):
        node(terms(hidden, authority.certificate))


async def test_a_node_that_encrypts_nothing_is_told_that_others_may(authority: Authority) -> None:
    async with listening(node(terms(authority.signed().both, authority.certificate, ClientAuth.NONE))) as address:
        with pytest.raises(Unreachable, match="does it speak TLS there"):
            await GrpcTransport().call(address, BrokerHeartbeatRequest(), timeout_s=ASK_S)


@pytest.mark.parametrize(
    "kind", [("ed25519",), ("ec", "-pkeyopt", "ec_paramgen_curve:P-521")], ids=["Ed25519", "P-521"]
)
def test_a_key_that_grpc_does_not_take_is_refused_at_the_start(tmp_path: Path, kind: tuple[str, ...]) -> None:
    key, certificate, both = (tmp_path / name for name in ("key.pem", "certificate.pem", "both.pem"))
    openssl("req", "-x509", "-newkey", *kind, "-nodes", "-keyout", key, "-out", certificate, "-subj", "/CN=node")
    both.write_text(key.read_text() + certificate.read_text())
    for serves in (True, False):
        with pytest.raises(TlsProblem, match="the key of CN=node is none that controllers take"):
            node(terms(both, certificate), serves=serves)
