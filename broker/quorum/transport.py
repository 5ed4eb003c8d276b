"""Calls among the nodes of a cluster: Kafka's own messages

Voters, observers and brokers speak Kafka's requests to one another's controllers (Vote, Fetch, BrokerHeartbeat, ...),
so there is one set of types for what goes over a wire. How they get there is a `Transport`: gRPC between processes
(`tidemill.broker.quorum.grpc_transport`), a network in memory in a simulated world.

A call is sent in the newest version that both sides know. Who does not know a version says which it does, and the
caller remembers that of its address: so nodes of two releases understand each other while a cluster is upgraded.

Not here: who calls whom, and when again.
"""

import struct
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from tidemill.core.client.connection import Address
from tidemill.core.wire.api import ALL_APIS, Api, ApiKey, api_of
from tidemill.core.wire.codec import DecodeError, decode_exact, encode
from tidemill.core.wire.message import Message

_VERSION = struct.Struct(">h")

MESSAGE_BYTES_MAX: Final = 32 * 2**20
"""Longest request or answer: a fetch of 8 MiB and one batch that is larger than that fit in."""


class Unreachable(ConnectionError):
    """No answer came from `address`; the request may or may not have been carried out."""

    def __init__(self, address: Address, reason: str, *, refused: bool = False, lasting: bool = False) -> None:
        """`refused` where nobody listens at all; `lasting` where the same request would have no answer either."""
        super().__init__(f"{address}: {reason}")
        self.refused = refused
        self.lasting = lasting
        self.address = address
        self.reason = reason


class VersionUnknown(Exception):
    """The other side knows an API in these versions only."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__(f"{first}-{last}")
        self.first = first
        self.last = last

    @classmethod
    def parse(cls, text: str) -> "VersionUnknown":
        """Of the text that another node has sent; raises ValueError."""
        first, dash, last = text.partition("-")
        if not dash:
            raise ValueError(f"{text!r} is no range of versions")
        return cls(int(first), int(last))


Serve = Callable[[Message], Awaitable[Message]]
"""Answers one request; what it raises, the caller sees as a node that has not answered."""


class Transport(Protocol):
    """How requests get to other nodes, and theirs here."""

    async def call(self, address: Address, request: Message, *, timeout_s: float) -> Message:
        """The answer of the node at `address`; raises Unreachable."""

    async def serve(self, address: Address, serve: Serve) -> int:
        """Answer what comes to `address` until closed; returns the port. Raises OSError."""

    async def close(self) -> None:
        """Answer nothing more, and let go of all connections."""


class Call(NamedTuple):
    """One request as bytes: the name of its API, and its version with its body."""

    name: str
    data: bytes


_BY_NAME: Final[Mapping[str, Api]] = {entry.name: entry for entry in ALL_APIS}


def encode_call(request: Message, version: int) -> Call:
    """`request` in that version."""
    return Call(_api_of(request).name, _VERSION.pack(version) + encode(request, version))


def decode_call(call: Call) -> tuple[Message, int]:
    """The request and its version; raises VersionUnknown, and DecodeError for what is none."""
    found = _BY_NAME.get(call.name)
    if found is None or len(call.data) < _VERSION.size:
        raise DecodeError(f"{len(call.data)} bytes for {call.name!r} are no request")
    (version,) = _VERSION.unpack_from(call.data)
    if not found.serves(version):
        raise VersionUnknown(found.min_version, found.max_version)
    return decode_exact(found.request, version, memoryview(call.data)[_VERSION.size :]), version


def encode_answer(answer: Message, version: int) -> bytes:
    """The answer to a request of that version."""
    return encode(answer, version)


def decode_answer(request: Message, version: int, data: bytes) -> Message:
    """The answer to `request`; raises DecodeError."""
    return decode_exact(_api_of(request).response, version, data)


def _api_of(request: Message) -> Api:
    found = api_of(type(request))
    assert found is not None, f"{type(request).__name__} is no request"
    return found


class Versions:
    """Mutable: in which version each node is asked, as far as it had to say so."""

    def __init__(self) -> None:
        self._lower: dict[tuple[Address, ApiKey], int] = {}

    def of(self, address: Address, request: Message) -> int:
        """The version to send."""
        entry = _api_of(request)
        return self._lower.get((address, entry.key), entry.max_version)

    def take(self, address: Address, request: Message, known: VersionUnknown) -> None:
        """Heed what a node has said; raises Unreachable where there is no version that both know."""
        entry = _api_of(request)
        version = min(known.last, entry.max_version)
        if version < max(known.first, entry.min_version) or version == self._lower.get((address, entry.key)):
            self._lower.pop((address, entry.key), None)
            ours = f"{entry.min_version}-{entry.max_version}"
            raise Unreachable(address, f"it knows {entry.name} in versions {known}, this node in {ours}")
        self._lower[address, entry.key] = version

    def forget(self, addresses: Iterable[Address]) -> None:
        """Ask those in the newest version again: another program may answer there now."""
        gone = set(addresses)
        for key in [key for key in self._lower if key[0] in gone]:
            del self._lower[key]
