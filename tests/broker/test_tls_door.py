"""Who gets through the door of a TLS listener, and what the log says of the others"""

import asyncio
import contextlib
import itertools
import socket
import ssl
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from tests.broker.server_stage import LIMITS, Client, Stage, heartbeat, large, produce, until
from tests.broker.tls_stage import connected, settings, tls_server, trusting
from tests.certificates import Authority
from tidemill.broker import tls_door
from tidemill.broker.connection import NOT_PLAINTEXT
from tidemill.broker.server import Server
from tidemill.broker.tls_door import CROWDED, NOT_TLS, Turnstile
from tidemill.core.security.tls_settings import ClientAuth
from tidemill.core.wire.api import ApiKey


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def told() -> "Iterator[list[dict[str, object]]]":
    with capture_logs() as lines:
        yield lines  # type: ignore[misc]  # a mapping is what structlog says


def reasons(told: "list[dict[str, object]]") -> list[str]:
    return [str(line["reason"]) for line in told if line["event"] == "no connection: TLS"]


async def test_requests_large_and_small_are_answered(authority: Authority) -> None:
    async with tls_server(settings(authority, authority.signed().both)) as (server, _):
        client = await connected(server, trusting(authority))
        client.writer.write(heartbeat(1) + heartbeat(2))
        assert [(await client.response())[0] for _ in range(2)] == [1, 2]
        client.writer.write(large(produce(b"x" * 1000, 3), 150_000) + heartbeat(4))
        assert (await client.response(ApiKey.PRODUCE, 3))[0] == 3
        assert (await client.response())[0] == 4
        (connection,) = server.connections
        assert str(connection.peer.principal) == "User:ANONYMOUS"
        client.writer.close()
        await until(lambda: not server.connections)


async def test_a_client_is_called_what_the_rules_make_of_its_certificate(authority: Authority) -> None:
    alice = authority.signed("/O=Acme/CN=Alice", "")
    rules = "RULE:^CN=(.*?),O=Acme$/$1/L"
    async with tls_server(settings(authority, authority.signed().both), rules) as (server, _):
        client = await connected(server, trusting(authority, alice.both))
        client.writer.write(heartbeat(1))
        await client.response()
        (connection,) = server.connections
        assert str(connection.peer.principal) == "User:alice"
        client.writer.close()


async def test_whoever_no_rule_is_about_is_not_let_in(authority: Authority, told: "list[dict[str, object]]") -> None:
    eve = authority.signed("/CN=eve", "")
    async with tls_server(settings(authority, authority.signed().both), "RULE:^CN=alice$/a/") as (server, _):
        client = await connected(server, trusting(authority, eve.both))
        assert await client.is_closed()
        assert not server.connections
        assert server.refused == {"too_many": 0, "nobody": 1}
        client.writer.close()
    assert [line["reason"] for line in told if "nobody" in str(line["event"])] == [
        "no rule of ssl.principal.mapping.rules is about 'CN=eve'"
    ]


async def test_a_client_without_tls_is_told_from_one_whose_handshake_fails(
    authority: Authority, told: "list[dict[str, object]]"
) -> None:
    async with tls_server(settings(authority, authority.signed().both)) as (server, _):
        for _ in range(20):
            client = await Client.of(server)
            client.writer.write(heartbeat(1))
            assert await client.is_closed()
            client.writer.close()
        assert server.handshakes_failed == 20
    assert reasons(told) == [NOT_TLS]  # once, however often it tries


async def test_a_client_with_tls_is_told_from_garbage_where_nobody_speaks_it(
    authority: Authority, told: "list[dict[str, object]]"
) -> None:
    async with Server(Stage().dispatcher, host="127.0.0.1", port=0, limits=LIMITS) as server:
        for _ in range(5):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await connected(server, trusting(authority))
    assert [line["reason"] for line in told] == [NOT_PLAINTEXT]


async def test_a_certificate_is_asked_for_where_it_is_required(
    authority: Authority, told: "list[dict[str, object]]"
) -> None:
    asking = settings(authority, authority.signed().both, ClientAuth.REQUIRED)
    async with tls_server(asking) as (server, _):
        client = await connected(server, trusting(authority))
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
            await client.reader.read(1)
        await until(lambda: bool(reasons(told)))
        client.writer.close()
    assert "shows no certificate" in reasons(told)[0]


async def test_whoever_says_nothing_is_sent_away(
    authority: Authority, told: "list[dict[str, object]]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_door, "HANDSHAKE_S", 0.05)
    async with tls_server(settings(authority, authority.signed().both)) as (server, _):
        silent = await Client.of(server)
        assert await silent.is_closed()
        halfway = await Client.of(server)
        halfway.writer.write(b"\x16\x03\x01\x02\x00")  # the beginning of a handshake, and no more
        assert await halfway.is_closed()
        for client in (silent, halfway):
            client.writer.close()
        await until(lambda: len(reasons(told)) == 2)
    assert all("in time" in reason for reason in reasons(told))


async def test_one_connection_too_many_drives_out_the_one_that_was_silent_longest(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_door, "WAITING_MAX", 3)
    async with tls_server(settings(authority, authority.signed().both)) as (server, _):
        silent = [await Client.of(server) for _ in range(3)]
        client = await connected(server, trusting(authority))
        client.writer.write(heartbeat(1))
        assert (await client.response())[0] == 1
        assert await silent[0].is_closed()
        assert await silent[2].is_silent()
        for each in (*silent, client):
            each.writer.close()


async def test_one_too_many_drives_out_who_has_begun_and_does_not_go_on(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, told: "list[dict[str, object]]"
) -> None:
    monkeypatch.setattr(tls_door, "WAITING_MAX", 3)
    async with tls_server(settings(authority, authority.signed().both)) as (server, _):
        halfway = [await Client.of(server) for _ in range(3)]
        for each in halfway:
            each.writer.write(b"\x16")
        await asyncio.sleep(0.1)  # so that none of them is silent
        client = await connected(server, trusting(authority))
        client.writer.write(heartbeat(1))
        assert (await client.response())[0] == 1
        assert await halfway[0].is_closed()
        assert await halfway[2].is_silent()
        for each in (*halfway, client):
            each.writer.close()
    assert CROWDED in reasons(told)


@pytest.mark.parametrize("limits", [{"max_connections": 1}, {"max_connections_per_ip": 1}], ids=str)
async def test_where_there_are_too_many_no_handshake_is_begun(
    authority: Authority, limits: dict[str, int], told: "list[dict[str, object]]"
) -> None:
    async with tls_server(settings(authority, authority.signed().both)) as (server, _):
        client = await connected(server, trusting(authority))
        await until(lambda: len(server.connections) == 1)
        server.limits = replace(server.limits, **limits)
        refused = await Client.of(server)
        assert await refused.is_closed(), "without a word of its own"
        assert (server.refused["too_many"], server.handshakes_failed) == (1, 0)
        client.writer.write(heartbeat(1))
        assert (await client.response())[0] == 1
        client.writer.close()
        await until(lambda: not server.connections)
        again = await connected(server, trusting(authority))
        again.writer.write(heartbeat(1))
        assert (await again.response())[0] == 1
        for each in (refused, again):
            each.writer.close()
    assert [line["event"] for line in told if line["log_level"] == "warning"] == ["connection refused: too many"]


async def test_whoever_stands_at_the_door_counts_for_its_address(authority: Authority) -> None:
    async with tls_server(settings(authority, authority.signed().both)) as (server, _):
        server.limits = replace(server.limits, max_connections_per_ip=2)
        standing = [await Client.of(server) for _ in range(2)]
        refused = await Client.of(server)
        assert await refused.is_closed()
        elsewhere = await Client.of(server, local_addr=("127.0.0.2", 0))
        assert await elsewhere.is_silent()
        for each in standing:
            each.writer.close()
        await until(lambda: server.at_the_door == 1)
        client = await connected(server, trusting(authority))
        client.writer.write(heartbeat(1))
        assert (await client.response())[0] == 1
        for each in (refused, elsewhere, client):
            each.writer.close()


async def test_a_server_that_stops_leaves_nobody_hanging(authority: Authority) -> None:
    async with tls_server(settings(authority, authority.signed().both)) as (server, _):
        silent = await Client.of(server)
        client = await connected(server, trusting(authority))
        client.writer.write(heartbeat(1))
        await client.response()
    assert await silent.is_closed()
    assert await client.is_closed()
    for each in (silent, client):
        each.writer.close()
        with contextlib.suppress(OSError):
            await each.writer.wait_closed()


async def test_a_new_certificate_counts_from_the_next_connection_on(authority: Authority) -> None:
    store = authority.folder / "reload.pem"
    store.write_text(authority.signed("/CN=first").both.read_text())

    def shown(client: Client) -> str:
        found = client.writer.get_extra_info("peercert")["subject"]
        return str(dict(part[0] for part in found)["commonName"])

    async with tls_server(settings(authority, store)) as (server, tls):
        first = await connected(server, trusting(authority))
        store.write_text(authority.signed("/CN=second-one").both.read_text())
        await tls.refresh()
        second = await connected(server, trusting(authority))
        assert (shown(first), shown(second)) == ("first", "second-one")
        store.write_text("nonsense")
        await tls.refresh()
        third = await connected(server, trusting(authority))
        assert shown(third) == "second-one"
        for client in (first, second, third):
            client.writer.write(heartbeat(1))
            assert (await client.response())[0] == 1
            client.writer.close()


async def test_what_fails_unexpectedly_ends_one_connection_and_not_the_listener(
    authority: Authority, told: "list[dict[str, object]]", monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failures = tls_door.keeping_alerts, iter([RuntimeError("out of order")])

    def keeping_alerts() -> AbstractContextManager[list[bytes]]:
        for failure in failures:
            raise failure
        return real()

    monkeypatch.setattr(tls_door, "keeping_alerts", keeping_alerts)
    async with tls_server(settings(authority, authority.signed().both)) as (server, _):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await connected(server, trusting(authority))
        client = await connected(server, trusting(authority))
        client.writer.write(heartbeat(1))
        assert (await client.response())[0] == 1
        client.writer.close()
    assert reasons(told) == ["the handshake failed: out of order"]


async def test_so_many_pass_the_turnstile_in_one_turn_of_the_loop() -> None:
    turnstile, loop = Turnstile(per_turn=2), asyncio.get_running_loop()
    passed: list[int] = []
    seen: list[int] = []

    async def pass_through(number: int) -> None:
        await turnstile.passed()
        passed.append(number)

    def look() -> None:
        seen.append(len(passed))
        if len(passed) < 10:
            loop.call_soon(look)

    async with asyncio.TaskGroup() as tasks:
        for number in range(10):
            tasks.create_task(pass_through(number))
        gone = tasks.create_task(pass_through(99))
        await asyncio.sleep(0)
        gone.cancel()
        loop.call_soon(look)
    assert passed == list(range(10))
    assert max(after - before for before, after in itertools.pairwise(seen)) <= 2


async def test_nothing_is_left_open_by_those_who_fail(authority: Authority) -> None:
    async with tls_server(settings(authority, authority.signed().both)) as (server, _):
        for failed, data in enumerate((b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05nonse"), start=1):
            with socket.create_connection(("127.0.0.1", server.port)) as plain:
                plain.setblocking(False)
                plain.sendall(data)
                await until(lambda: server.handshakes_failed == failed)  # noqa: B023 - looked at in this round
        with socket.create_connection(("127.0.0.1", server.port)):
            await until(lambda: server.at_the_door == 1)  # it says nothing and leaves
        await until(lambda: server.at_the_door == 0)
        client = await connected(server, trusting(authority))
        await until(lambda: len(server.connections) == 1)
        assert server.at_the_door == 0
        client.writer.close()
