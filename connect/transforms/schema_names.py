"""Names of schemas that a serialisation accepts

Debezium's `schema.name.adjustment.mode`: a name as it is, or one of Avro's, in which whatever Avro does not allow is an
underscore (`avro`) or its code (`avro_unicode`, where the underscore has one, too, so that names stay apart).
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

_REST: Final = re.compile(r"[^a-zA-Z0-9_.]")
_CODED: Final = re.compile(r"[^a-zA-Z0-9.]")
_DIGIT: Final = re.compile(r"^[0-9.]")


def _avro(name: str) -> str:
    return _DIGIT.sub(lambda found: "_" + found[0], _REST.sub("_", name))


def _avro_unicode(name: str) -> str:
    return _DIGIT.sub(_code, _CODED.sub(_code, name))


def _code(found: re.Match[str]) -> str:
    return f"_u{ord(found[0]):04x}"


ADJUSTERS: Final[Mapping[str, Callable[[str], str]]] = {
    "none": lambda name: name,
    "avro": _avro,
    "avro_unicode": _avro_unicode,
}
