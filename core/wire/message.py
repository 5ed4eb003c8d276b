"""What every generated message has

A message is a frozen slotted dataclass, so its value never changes after it is built. Building one through the ordinary
frozen `__init__` costs a guarded attribute store per field; the generated classes instead fill an unfrozen twin of the
same slot layout and then give it its real class, which is what makes decoding cheap. Outside the generated modules
nobody sees a twin.

The class variables tell the codec how to read and write the message; structs inside messages leave them empty.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeAlias

Buffer: TypeAlias = bytes | memoryview
Reader: TypeAlias = Callable[[Any, int], tuple[Any, int]]
"""`(buffer, offset) -> (message, offset behind it)`"""
Writer: TypeAlias = Callable[[Any, bytearray, list[Any]], bytearray]
"""`(message, out, chunks) -> out`: appends to `out`; moves `out` to `chunks` before each uncopied records field."""


class Message:
    """Base of all structs on the wire: value semantics over `__slots__`."""

    __slots__: ClassVar[tuple[str, ...]] = ()

    READERS: ClassVar[Mapping[int, Reader]] = {}
    WRITERS: ClassVar[Mapping[int, Writer]] = {}

    def _values(self) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in self.__slots__])

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return self is other or self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self), self._values()))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({fields})"


def unfrozen_twin(cls: type[Message]) -> Any:
    """Return a class of the same slot layout whose instances can be filled and then become `cls`."""
    return type(f"_{cls.__name__}", (Message,), {"__slots__": cls.__slots__})
