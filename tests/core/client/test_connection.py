"""A connection against a scripted server: negotiation, pipelining, and every way to end."""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from tidemill.core.client.connection import (
    Address,
    ApiNotSupported,
    Connection,
    ConnectionFailed,
    RequestTimedOut,
    parse_addresses,
)
from tidemill.core.error_code import ErrorCode
from tidemill.core.runtime.net import TcpDialer
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.framing import decode_request_header, encode_response
from tidemill.core.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from tidemill.core.wire.messages.metadata import MetadataRequest, MetadataResponse

VERSIONS = ApiVersionsResponse(
    api_keys=(
        ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=3),
        ApiVersion(api_key=ApiKey.METADATA, min_version=4, max_version=7),
        ApiVersion(api_key=ApiKey.PRODUCE, min_version=100, max_version=101),
    )
)

Reply = Callable[[int, int, int], bytes | None]
"""(api key, version, correlation id) -> bytes to send; None to stay silent."""


def answer(key: int, version: int, correlation_id: int) -> bytes | None:
    if key == ApiKey.API_VERSIONS:
        return b"".join(encode_response(key, version, correlation_id, VERSIONS))
    response = MetadataResponse(cluster_id=f"c{correlation_id}")
    return b"".join(encode_response(key, version, correlation_id, response))


@asynccontextmanager
async def server(reply: Reply) -> AsyncIterator[Address]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = struct.unpack(">i", await reader.readexactly(4))[0]
                header, _ = decode_request_header(await reader.readexactly(size))
                data = reply(header.api_key, header.api_version, header.correlation_id)
                if data == b"":
                    return
                if data is not None:
                    writer.write(data)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listener:
        host, port = listener.sockets[0].getsockname()
        yield Address(host, port)


async def opened(address: Address, **limits: int) -> Connection:
    return await Connection.open(address, client_id="test", dialer=TcpDialer(), **limits)


def metadata(connection: Connection) -> Awaitable[MetadataResponse]:
    return connection.request(ApiKey.METADATA, MetadataRequest(), MetadataResponse)


async def test_versions_are_negotiated() -> None:
    async with server(answer) as address:
        connection = await opened(address)
        assert connection.version_of(ApiKey.METADATA) == 7
        assert connection.version_of(ApiKey.METADATA, cap=5) == 5
        assert connection.serves(ApiKey.METADATA)
        assert not connection.serves(ApiKey.FETCH)
        with pytest.raises(ApiNotSupported, match="serves no version of Fetch"):
            connection.version_of(ApiKey.FETCH)
        with pytest.raises(ApiNotSupported, match=r"serves versions 100 to 101 of Produce, needed is one of 3 to \d+"):
            connection.version_of(ApiKey.PRODUCE)
        with pytest.raises(ApiNotSupported, match="needed is one of 0 to 2"):
            connection.version_of(ApiKey.METADATA, cap=2)
        connection.close()


async def test_an_old_server_names_the_version_it_knows() -> None:
    asked: list[int] = []

    def old(key: int, version: int, correlation_id: int) -> bytes | None:
        if key == ApiKey.API_VERSIONS:
            asked.append(version)
        if key == ApiKey.API_VERSIONS and version > 1:
            refusal = ApiVersionsResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION,
                api_keys=(ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=1),),
            )
            return b"".join(encode_response(key, 0, correlation_id, refusal))
        return answer(key, version, correlation_id)

    async with server(old) as address:
        connection = await opened(address)
        assert (await metadata(connection)).cluster_id
        connection.close()
    assert asked == [3, 1]


async def test_requests_are_pipelined_and_answered_in_order() -> None:
    async with server(answer) as address:
        connection = await opened(address)
        answers = [connection.send(ApiKey.METADATA, MetadataRequest()) for _ in range(20)]
        assert connection.in_flight == 20
        found = [response.cluster_id for response in await asyncio.gather(*answers)]  # type: ignore[attr-defined]
        assert found == [f"c{number}" for number in range(1, 21)]
        assert connection.in_flight == 0
        connection.close()


async def test_a_cancelled_caller_does_not_shift_the_answers() -> None:
    async with server(answer) as address:
        connection = await opened(address)
        connection.send(ApiKey.METADATA, MetadataRequest()).cancel()
        assert (await metadata(connection)).cluster_id == "c2"
        connection.close()


async def test_silence_ends_the_connection_after_the_timeout() -> None:
    def silent(key: int, version: int, correlation_id: int) -> bytes | None:
        return answer(key, version, correlation_id) if key == ApiKey.API_VERSIONS else None

    async with server(silent) as address:
        connection = await opened(address, request_timeout_ms=50)
        with pytest.raises(RequestTimedOut, match=rf"{address}: no answer to METADATA within 50 ms"):
            await metadata(connection)
        assert not connection.usable
        with pytest.raises(ConnectionFailed):
            await metadata(connection)


async def test_the_timeout_of_a_later_request_is_kept() -> None:
    def second_only(key: int, version: int, correlation_id: int) -> bytes | None:
        return None if correlation_id == 2 else answer(key, version, correlation_id)

    async with server(second_only) as address:
        connection = await opened(address, request_timeout_ms=5_000)
        assert await metadata(connection)
        with pytest.raises(RequestTimedOut, match="within 40 ms"):
            await connection.request(ApiKey.METADATA, MetadataRequest(), MetadataResponse, timeout_ms=40)


@pytest.mark.parametrize(
    ("garbage", "words"),
    [
        (b"", "peer closed the connection"),
        (struct.pack(">ii", 4, 99), "correlation id 99"),
        (struct.pack(">i", 0), "unreadable answer"),
        (struct.pack(">ii", 8, 1) + b"\xff\xff\xff\xff", "unreadable answer to METADATA"),
        (b"HTTP/1.1 400", "is this a Kafka port"),
    ],
)
async def test_what_is_not_an_answer_fails_everything_in_flight(garbage: bytes, words: str) -> None:
    def broken(key: int, version: int, correlation_id: int) -> bytes | None:
        return answer(key, version, correlation_id) if key == ApiKey.API_VERSIONS else garbage

    async with server(broken) as address:
        connection = await opened(address)
        waiting = [connection.send(ApiKey.METADATA, MetadataRequest()) for _ in range(3)]
        for future in waiting:
            with pytest.raises(ConnectionFailed, match=str(address)) as caught:
                await asyncio.wait_for(future, 5)
        assert words in str(caught.value) or words in str(waiting[0].exception())
        assert not connection.usable


async def test_an_answer_nobody_asked_for_ends_the_connection() -> None:
    def chatty(key: int, version: int, correlation_id: int) -> bytes | None:
        return (answer(key, version, correlation_id) or b"") + struct.pack(">ii", 4, 7)

    async with server(chatty) as address:

        async def ask() -> None:
            connection = await opened(address)
            for _ in range(3):  # the first may overtake the surplus frame
                await metadata(connection)

        with pytest.raises(ConnectionFailed, match=str(address)):
            await ask()


async def test_an_unreachable_address_is_named() -> None:
    async with server(answer) as address:
        pass
    with pytest.raises(ConnectionFailed, match=f"{address}: cannot connect"):
        await opened(address)


async def test_a_server_that_does_not_negotiate_is_given_up() -> None:
    async with server(lambda *_: None) as address:
        with pytest.raises(RequestTimedOut, match="no answer within 50 ms"):
            await opened(address, connect_timeout_ms=50)


def test_addresses() -> None:
    assert parse_addresses("a:1, b:2,") == (Address("a", 1), Address("b", 2))
    assert str(Address("::1", 9092)) == "[::1]:9092"
    for bad in ("", "a", "a:", ":1", "a:0", "a:x", "a:70000"):
        with pytest.raises(ValueError):
            parse_addresses(bad)
