"""Kafka's metadata records, written as the frame and the schemas say: the other half of the reader under test."""

import struct
import uuid
from collections.abc import Iterable, Mapping

from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def text(value: str | None) -> bytes:
    return varint(0) if value is None else varint(len(value.encode()) + 1) + value.encode()


def int32(value: int) -> bytes:
    return struct.pack(">i", value)


def int32s(values: Iterable[int] | None) -> bytes:
    return varint(0) if values is None else varint(len(items := list(values)) + 1) + b"".join(map(int32, items))


def uuids(values: Iterable[uuid.UUID] | None) -> bytes:
    items = None if values is None else [value.bytes for value in values]
    return varint(0) if items is None else varint(len(items) + 1) + b"".join(items)


def tagged(fields: Mapping[int, bytes]) -> bytes:
    return varint(len(fields)) + b"".join(
        varint(tag) + varint(len(data)) + data for tag, data in sorted(fields.items())
    )


def frame(key: int, version: int, body: bytes) -> bytes:
    return varint(1) + varint(key) + varint(version) + body


def topic(name: str, topic_id: uuid.UUID) -> bytes:
    return frame(2, 0, text(name) + topic_id.bytes + tagged({}))


def partition(
    number: int,
    topic_id: uuid.UUID,
    replicas: Iterable[int] = (1,),
    *,
    leader: int = 1,
    leader_epoch: int = 0,
    partition_epoch: int = 0,
    directories: Iterable[uuid.UUID] = (),
    isr: Iterable[int] | None = None,
    version: int = 2,
) -> bytes:
    nodes = list(replicas)
    body = int32(number) + topic_id.bytes + int32s(nodes) + int32s(nodes if isr is None else isr)
    body += int32s(()) + int32s(())
    body += int32(leader) + int32(leader_epoch) + int32(partition_epoch)
    if version >= 1:
        body += uuids(directories)
    return frame(3, version, body + tagged({0: b"\0"} if version else {}))


def change(number: int, topic_id: uuid.UUID, fields: Mapping[int, bytes], version: int = 2) -> bytes:
    return frame(5, version, int32(number) + topic_id.bytes + tagged(fields))


def removed(topic_id: uuid.UUID) -> bytes:
    return frame(9, 0, topic_id.bytes + tagged({}))


def config(kind: int, resource: str, name: str, value: str | None) -> bytes:
    return frame(4, 0, struct.pack(">b", kind) + text(resource) + text(name) + text(value) + tagged({}))


def producer_ids(following: int) -> bytes:
    return frame(15, 0, struct.pack(">iqq", 1, 7, following) + tagged({}))


def broker(node_id: int, epoch: int = 0, version: int = 4) -> bytes:
    """A registration as far as it is read: id, whether it comes from ZooKeeper, incarnation, epoch."""
    migrating = b"\0" if version >= 2 else b""
    return frame(
        0, version, int32(node_id) + migrating + bytes(16) + struct.pack(">q", epoch) + b"whatever comes behind"
    )


def broker_gone(node_id: int) -> bytes:
    return frame(1, 0, int32(node_id) + struct.pack(">q", 3) + tagged({}))


def batch(values: Iterable[bytes], offset: int = 0, epoch: int = -1) -> bytes:
    records = [NewRecord(timestamp=0, key=None, value=value) for value in values]
    return build_batch(records, base_offset=offset, leader_epoch=epoch)


def control_batch(kind: int, offset: int = 0) -> bytes:
    record = NewRecord(timestamp=0, key=struct.pack(">hh", 0, kind), value=b"\0\0")
    return build_batch([record], base_offset=offset, control=True)


def snapshot(values: Iterable[bytes]) -> bytes:
    """Header, one batch, footer: the offsets in a snapshot are its own."""
    items = list(values)
    return control_batch(3) + batch(items, 1) + control_batch(4, 1 + len(items))
