"""The base class of all messages, and what makes them cheap to build

A message is a frozen slotted dataclass, so its value never changes after it is built. Building one through the ordinary
frozen `__init__` costs a guarded attribute store per field; the generated classes instead fill an unfrozen twin of the
same slot layout and then give it its real class, which is what makes decoding cheap. Outside the generated modules
nobody sees a twin.

There are two hundred classes, and most processes need most of them at their start. So what can be said once is said
here: `dataclass` would compile a guard against changes for every class, which takes more than everything else about it.

The class variables tell the codec how to read and write the message, by version. They have what has been asked for so
far (`compiled`); structs inside messages leave them empty.
"""

from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError, dataclass
from typing import Any, ClassVar, Never, TypeAlias, TypeVar, dataclass_transform

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

    def __setattr__(self, name: str, value: object) -> Never:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> Never:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __getstate__(self) -> tuple[Any, ...]:
        return self._values()

    def __setstate__(self, values: tuple[Any, ...]) -> None:
        for name, value in zip(self.__slots__, values, strict=True):
            object.__setattr__(self, name, value)

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


MessageT = TypeVar("MessageT", bound=Message)


@dataclass_transform(kw_only_default=True, frozen_default=True)
def wire_struct(cls: type[MessageT]) -> type[MessageT]:
    """Make a dataclass of one generated class; `Message` brings what all of them share."""
    return dataclass(init=False, repr=False, eq=False, slots=True, kw_only=True)(cls)


def unfrozen_twin(cls: type[Message]) -> Any:
    """Return a class of the same slot layout whose instances can be filled and then become `cls`."""
    unfrozen = {"__setattr__": object.__setattr__, "__delattr__": object.__delattr__}
    return type(f"_{cls.__name__}", (Message,), {"__slots__": cls.__slots__, **unfrozen})
