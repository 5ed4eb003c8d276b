"""How many fields a message has, counted before any of them is made

A field takes two bytes on the pipe at least, and in memory up to twenty times as much: a message of nothing but empty
batches that is just small enough to be read would take gigabytes before anybody could refuse it. So the fields of a
large message are counted first, by walking over its bytes. A small one cannot have too many and is not walked over.

What cannot be walked over is not judged: whoever decodes it says what is wrong.
"""

from functools import cache
from typing import Final, NamedTuple, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

FIELDS_MAX: Final = 1_000_000
"""Of a message: ten for each record of the largest answer that is taken."""

BYTES_MIN: Final = 2
"""Of a field: its number and type, and its value or length."""

PACKED_BYTES: Final = 4
"""Of numbers in a row that count as a field: each of them may be a single byte, and takes eight in memory."""

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
"""How a value stands there."""

VARINT_BYTES_MAX: Final = 10


class _Kind(NamedTuple):
    """What is in the fields of a message that have a length: other messages, or numbers in a row; else bytes."""

    messages: dict[int, Descriptor]
    packed: frozenset[int]


def has_too_many(data: bytes, kind: type[Message], most: int = FIELDS_MAX) -> bool:
    """Whether the message has more fields than that, with those of the messages in it."""
    return len(data) > most * BYTES_MIN and fields(data, kind, most) > most


def fields(data: bytes, kind: type[Message], most: int) -> int:
    """How many fields there are; of more than `most` only that they are more."""
    count, waiting = 0, [(0, len(data), cast("Descriptor", kind.DESCRIPTOR))]
    try:
        while waiting and count <= most:
            at, end, inside = waiting.pop()
            known = _kind(inside)
            while at < end and count <= most:
                count += 1
                key, at = _varint(data, at)
                number, form = key >> 3, key & 7
                if form == DELIMITED:
                    length, at = _varint(data, at)
                    if number in known.messages:
                        waiting.append((at, min(at + length, end), known.messages[number]))
                    elif number in known.packed:
                        count += length // PACKED_BYTES
                    at += length
                elif form == VARINT:
                    _, at = _varint(data, at)
                else:
                    at += {FIXED64: 8, FIXED32: 4}[form]
    except (IndexError, KeyError):
        return 0  # it is none
    return count


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends; raises IndexError where there is none."""
    value = 0
    for index in range(VARINT_BYTES_MAX):
        byte = data[at + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, at + index + 1
    raise IndexError


@cache
def _kind(descriptor: Descriptor) -> _Kind:
    messages = {field.number: field.message_type for field in descriptor.fields if field.message_type is not None}
    numbers = (field for field in descriptor.fields if field.number not in messages)
    bytes_or_text = (FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_STRING)
    return _Kind(messages, frozenset(field.number for field in numbers if field.type not in bytes_or_text))
