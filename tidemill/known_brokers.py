"""Whom a broker names when it is asked for the cluster

Each broker answers from what it has read of the metadata log, so one that has just come is known to some before it is
to others. Asked without an event loop, for the programs that start a cluster and wait.
"""

import socket
import struct

from tidemill.core.client.connection import parse_addresses
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.framing import decode_response, encode_request
from tidemill.core.wire.messages.metadata import MetadataRequest, MetadataResponse

_VERSION = 12  # of Metadata: what every broker here knows
_SIZE = struct.Struct(">i")


def known_brokers(address: str, timeout_s: float = 10) -> frozenset[int]:
    """The ids of the brokers that clients of the PLAINTEXT listener at `address` are told of; raises OSError."""
    (bootstrap,) = parse_addresses(address)
    with socket.create_connection(bootstrap, timeout_s) as way, way.makefile("rb") as answers:
        way.sendall(encode_request(ApiKey.METADATA, _VERSION, 0, "tidemill", MetadataRequest(topics=())))
        size = answers.read(_SIZE.size)
        frame = answers.read(*_SIZE.unpack(size)) if len(size) == _SIZE.size else b""
    if not frame:
        raise ConnectionResetError(f"{address} closed the connection before it told who is in the cluster")
    _, answer = decode_response(ApiKey.METADATA, _VERSION, frame)
    assert isinstance(answer, MetadataResponse)
    return frozenset(broker.node_id for broker in answer.brokers)
