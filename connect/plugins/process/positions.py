"""Source partitions and offsets as the protocol has them

JSON objects, flat, in text."""

import json
from collections.abc import Mapping

import orjson

from tidemill.connect.api import SourceOffset, SourcePartition

TEXT_MAX = 64 << 10
"""Characters of one: both go into a record of the offsets topic."""


def written(position: Mapping[str, object]) -> str:
    """A partition or offset as text, the same for equal ones."""
    return orjson.dumps(dict(position), option=orjson.OPT_SORT_KEYS).decode()


def read_partition(text: str) -> SourcePartition:
    """A source partition; raises ValueError."""
    return _read(text, "source partition")


def read_offset(text: str) -> SourceOffset:
    """A source offset; raises ValueError."""
    return _read(text, "source offset")


def _read(text: str, what: str) -> Mapping[str, object]:
    if len(text) > TEXT_MAX:
        raise ValueError(f"a {what} of {len(text)} characters, of {TEXT_MAX} at most")
    try:
        found = orjson.loads(text)
    except ValueError as error:
        raise ValueError(f"a {what} is no JSON ({error}): {text[:200]!r}") from error
    if not isinstance(found, dict):
        raise ValueError(f"a {what} is a JSON object, not {text[:200]}")
    for name, value in found.items():
        if isinstance(value, (dict, list)):
            raise ValueError(f"a {what} is flat: {name!r} is {'an object' if isinstance(value, dict) else 'a list'}")
    if any(isinstance(value, float) for value in found.values()):
        _refuse_rounded(text, what)
    return found


def _refuse_rounded(text: str, what: str) -> None:
    """A whole number of more than 64 bits was read as the nearest fraction, which is another place."""
    for name, value in json.loads(text).items():
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
            raise ValueError(f"in a {what} {name!r} is a number beyond 64 bits, which has to be text")
