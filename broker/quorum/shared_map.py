"""A mapping that never changes and shares what did not change

An image of the cluster holds every topic, and each decision makes a new image. A `SharedMap` keeps its entries in many
small dictionaries, its shards; a `MapDraft` copies only the shards that it writes to, so the next image costs as much
as what became different and shares the rest with the one before. A small map is one shard and keeps the order in which
its keys came; a large one has an order that follows from what was done to it, in every process: texts find their shard
by a CRC, for Python's hash of them is another one in each process.

A draft that writes to one shard again and again copies it once: a whole log is replayed into one draft.
"""

from collections.abc import Collection, ItemsView, Iterator, Mapping, ValuesView
from itertools import chain
from typing import Any, Final, Generic, TypeVar, overload
from zlib import crc32

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")
DefaultT = TypeVar("DefaultT")

SHARD_ENTRIES: Final = 64
"""Entries per shard, on average, from which on there are twice as many shards."""


def _place(key: object) -> int:
    """What says in which shard a key is."""
    return crc32(key.encode()) if isinstance(key, str) else hash(key)


class SharedMap(Mapping[KeyT, ValueT]):
    """Reads like a dictionary; made anew by `draft().freeze()`."""

    __slots__ = ("_count", "_mask", "_shards")

    def __init__(self, entries: Mapping[KeyT, ValueT] | None = None) -> None:
        self._shards: tuple[dict[KeyT, ValueT], ...] = ({},)
        self._mask = self._count = 0
        if entries:
            draft = self.draft()
            for key, value in entries.items():
                draft[key] = value
            self._take(draft)

    @classmethod
    def _of(cls, draft: "MapDraft[KeyT, ValueT]") -> "SharedMap[KeyT, ValueT]":
        made = cls.__new__(cls)
        made._take(draft)
        return made

    def _take(self, draft: "MapDraft[KeyT, ValueT]") -> None:
        self._shards, self._count = tuple(draft._shards), draft._count
        self._mask = len(self._shards) - 1

    def draft(self) -> "MapDraft[KeyT, ValueT]":
        """A copy that can be written to, as cheap as its shards are few."""
        return MapDraft(self)

    def changed_since(self, before: "SharedMap[KeyT, ValueT]") -> set[KeyT]:
        """Keys whose values are not those of `before`, went or came; looks only at the shards that are not shared."""
        if len(before._shards) == len(self._shards):
            pairs = [(old, new) for old, new in zip(before._shards, self._shards, strict=True) if old is not new]
        else:
            pairs = [(dict(before), dict(self))]
        missing = object()
        return {
            key
            for old, new in pairs
            for key in old.keys() | new.keys()
            if old.get(key, missing) is not new.get(key, missing)
        }

    def __getitem__(self, key: KeyT) -> ValueT:
        return self._shards[(crc32(key.encode()) if isinstance(key, str) else hash(key)) & self._mask][key]

    @overload
    def get(self, key: KeyT, /) -> ValueT | None: ...
    @overload
    def get(self, key: KeyT, /, default: ValueT | DefaultT) -> ValueT | DefaultT: ...
    def get(self, key: KeyT, /, default: Any = None) -> Any:  # `Mapping` would raise and catch KeyError
        """The value of `key`, or `default`."""
        return self._shards[(crc32(key.encode()) if isinstance(key, str) else hash(key)) & self._mask].get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._shards[(crc32(key.encode()) if isinstance(key, str) else hash(key)) & self._mask]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[KeyT]:
        return chain.from_iterable(self._shards)

    def items(self) -> ItemsView[KeyT, ValueT]:
        """Keys with their values."""
        return _Items(self)

    def values(self) -> ValuesView[ValueT]:
        """Values alone."""
        return _Values(self)

    def __hash__(self) -> int:
        raise TypeError("unhashable type: 'SharedMap'")

    def __repr__(self) -> str:
        return f"SharedMap({dict(self)!r})"


class _Items(ItemsView[KeyT, ValueT]):
    """Walks over the shards instead of looking up each key."""

    _mapping: SharedMap[KeyT, ValueT]

    def __iter__(self) -> Iterator[tuple[KeyT, ValueT]]:
        return chain.from_iterable(map(dict.items, self._mapping._shards))


class _Values(ValuesView[ValueT]):
    """Walks over the shards instead of looking up each key."""

    _mapping: SharedMap[Any, ValueT]

    def __iter__(self) -> Iterator[ValueT]:
        return chain.from_iterable(map(dict.values, self._mapping._shards))


class MapDraft(Collection[KeyT], Generic[KeyT, ValueT]):
    """A map while it is written to; `freeze` may be called more than once."""

    __slots__ = ("_count", "_mask", "_owned", "_shards")

    def __init__(self, base: SharedMap[KeyT, ValueT]) -> None:
        self._shards = list(base._shards)
        self._mask, self._count = base._mask, base._count
        self._owned: set[int] = set()  # shards that no frozen map shares

    def freeze(self) -> SharedMap[KeyT, ValueT]:
        """The map as it is now."""
        self._owned.clear()
        return SharedMap._of(self)

    def get(self, key: KeyT) -> ValueT | None:
        """The value of `key`, if there is one."""
        return self._shards[_place(key) & self._mask].get(key)

    def __getitem__(self, key: KeyT) -> ValueT:
        return self._shards[_place(key) & self._mask][key]

    def __contains__(self, key: object) -> bool:
        return key in self._shards[_place(key) & self._mask]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[KeyT]:
        return chain.from_iterable(self._shards)

    def __setitem__(self, key: KeyT, value: ValueT) -> None:
        shard = self._own(_place(key) & self._mask)
        before = len(shard)
        shard[key] = value
        self._count += len(shard) - before
        if self._count > SHARD_ENTRIES * len(self._shards):
            self._split()

    def __delitem__(self, key: KeyT) -> None:
        del self._own(_place(key) & self._mask)[key]
        self._count -= 1

    def _own(self, number: int) -> dict[KeyT, ValueT]:
        if number not in self._owned:
            self._owned.add(number)
            self._shards[number] = self._shards[number].copy()
        return self._shards[number]

    def _split(self) -> None:
        """Twice as many shards: each goes to itself and to one behind all that there are."""
        high = len(self._shards)
        upper: list[dict[KeyT, ValueT]] = []
        for number, shard in enumerate(self._shards):
            moved = {key: value for key, value in shard.items() if _place(key) & high}
            self._shards[number] = {key: value for key, value in shard.items() if key not in moved}
            upper.append(moved)
        self._shards += upper
        self._mask = len(self._shards) - 1
        self._owned = set(range(len(self._shards)))
