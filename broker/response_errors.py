"""The error codes in a response, wherever its schema has them

Found by walking the message classes once for each kind of response: only what can hold an `error_code` is looked at
afterwards, so a response of ten thousand partitions costs a fraction of what encoding it does.
"""

from collections.abc import Callable
from typing import Any, Final, get_args, get_origin, get_type_hints

from tidemill.core.wire.message import Message

_Walk = Callable[[Any, list[int]], None]
_CODE = "error_code"
_KNOWN: Final[dict[Any, _Walk | None]] = {}  # by message class


def error_codes(response: Any) -> list[int]:
    """Every error code in `response` that is not 0, once for each place it stands at."""
    found: list[int] = []
    kind = type(response)
    walk = _KNOWN[kind] if kind in _KNOWN else _walk(kind)
    if walk is not None:
        walk(response, found)
    return found


def _walk(message: type[Any]) -> _Walk | None:
    """What collects the codes of one message; None if it can have none."""
    found = _KNOWN[message] = _made(message)
    return found


def _made(message: type[Any]) -> _Walk | None:
    hints = get_type_hints(message)
    has_code = _CODE in hints
    inside = [(name, *found) for name, hint in hints.items() if (found := _message_in(hint)) is not None]
    nested = [(name, walk, several) for name, inner, several in inside if (walk := _walk(inner)) is not None]
    if not has_code and not nested:
        return None

    def collect(value: Any, found: list[int]) -> None:
        if has_code and value.error_code:
            found.append(value.error_code)
        for name, walk, several in nested:
            held = getattr(value, name)
            if several:
                for each in held or ():
                    walk(each, found)
            elif held is not None:
                walk(held, found)

    return collect


def _message_in(hint: Any) -> tuple[type[Any], bool] | None:
    """The message that a field holds, and whether it holds several."""
    if isinstance(hint, type) and (issubclass(hint, Message) or hasattr(hint, "_fields")):  # the latter are rows
        return hint, False
    for part in get_args(hint):
        found = _message_in(part)
        if found is not None:
            return found[0], found[1] or get_origin(hint) is tuple
    return None
