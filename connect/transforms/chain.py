"""A chain of transforms, applied to a batch

Every stage takes the records for which its predicate holds and puts what becomes of them in their places, so what comes
out has one entry per record that went in: the record, None if a stage left it out, or a `Failure` with the stage that
could not do with it. What is left out or has failed meets no further stage. What to do about failures is for the caller
and the connector's error policy.

A stage is given its records as one batch. If it raises, it is given them again one by one, so that the one to blame is
known and its neighbours pass.

A source may have serialised its records: such keys and values are `Encoded`, and are read only for the first stage that
uses them, of the records its predicate lets through. What is still `Encoded` at the end goes out as the same bytes. A
transform that knows its way in the bytes of some records is asked for those before they are read (`OfBytes`).

Where the first stages can do with a batch of bytes and the others with its values, no record is made of any row
(`apply_encoded`).
"""

import enum
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Final, NamedTuple, Protocol, TypeAlias

from tidemill.connect.api import (
    EncodedBatch,
    Fatal,
    Json,
    NotConnected,
    Predicate,
    Record,
    Schema,
    Transform,
    ValueTransform,
)


class Encoded(bytes):
    """A key or value that its source has serialised."""

    __slots__ = ()


class Unread(enum.Enum):
    """The answer to bytes that are to be read after all."""

    UNREAD = enum.auto()


UNREAD: Final = Unread.UNREAD


class OfBytes(Transform):
    """A transform that makes what it makes of some records out of the bytes of their values, too."""

    @abstractmethod
    def of_bytes(self, record: Record) -> Record | Unread | None:
        """What becomes of a record whose value is `Encoded`, the same as `apply` makes of it read; or `UNREAD`."""

    def of_batch(self, batch: EncodedBatch) -> EncodedBatch | None:
        """What becomes of what a source has serialised, the same as of its records one by one; or None."""
        return None


class Severity(enum.StrEnum):
    """How bad it is."""

    WARNING = "warning"
    ERROR = "error"


class Telling(Transform):
    """A transform that has something to say about records it can do with: what, and how often since it was asked."""

    notices: Counter[tuple[Severity, str]]


Decode: TypeAlias = Callable[[bytes | None], tuple[Json, Schema | None]]
Encode: TypeAlias = Callable[[Json, Schema | None], bytes | None]


class ColumnConverter(Protocol):
    """Reads and writes many values at once, each as it would alone; raises if there is one it cannot do with.

    The column of schemas is empty where no value has one.
    """

    def decode_all(self, data: Sequence[bytes]) -> tuple[Sequence[Json], Sequence[Schema | None]]:
        """The values and their schemas."""

    def encode_all(self, values: Sequence[Json], schemas: Sequence[Schema | None]) -> Sequence[bytes | None]:
        """The bytes of values, none of which is None."""


@dataclass(frozen=True, slots=True)
class OneByOne:
    """The converters that know no better way."""

    decode: Decode
    encode: Encode

    def decode_all(self, data: Sequence[bytes]) -> tuple[Sequence[Json], Sequence[Schema | None]]:
        """Read each."""
        read = [self.decode(each) for each in data]
        return [value for value, _ in read], [schema for _, schema in read]

    def encode_all(self, values: Sequence[Json], schemas: Sequence[Schema | None]) -> Sequence[bytes | None]:
        """Write each."""
        return [*map(self.encode, values, schemas or repeat(None))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A transform with what it applies to; `name` is the class people know it by."""

    alias: str
    name: str
    transform: Transform
    predicate: Predicate | None = None
    negate: bool = False


class Failure(NamedTuple):
    """A record that a stage could not do with."""

    stage: Stage
    error: Exception


Outcome: TypeAlias = Record | Failure | None


class Chain:
    """The stages of one connector, in order."""

    def __init__(
        self, stages: Sequence[Stage], decode_key: Decode, decode_value: Decode, columns: ColumnConverter | None = None
    ) -> None:
        self._stages = tuple(stages)
        self._decode_key = decode_key
        self._decode_value = decode_value
        self._columns = columns
        self._of_batches = _of_batches(self._stages)

    def apply(self, records: Sequence[Record]) -> list[Outcome]:
        """What becomes of each record."""
        outcomes: list[Outcome] = list(records)
        for stage in self._stages:
            picked, batch = self._pick(stage, outcomes)
            if batch:
                for index, outcome in zip(picked, _applied(stage, batch), strict=True):
                    outcomes[index] = outcome
        return outcomes

    def apply_encoded(self, batch: EncodedBatch) -> EncodedBatch | None:
        """What becomes of a batch as a whole, without a record being made of a row; None if that cannot be told.

        It can where every stage takes everything, first those that take bytes and then those of values. Whatever goes
        wrong is for `apply` to find out, record by record.
        """
        if self._of_batches is None:
            return None
        of_bytes, of_values = self._of_batches
        try:
            whole: EncodedBatch | None = batch
            for transform in of_bytes:
                whole = None if whole is None else transform.of_batch(whole)
            return None if whole is None else self._read_and_written(whole, of_values)
        except (Fatal, NotConnected):
            raise
        except Exception:
            return None

    def _read_and_written(self, batch: EncodedBatch, transforms: Sequence[ValueTransform]) -> EncodedBatch | None:
        """A batch whose values have been through these; None where a value that is there is nothing when it is read."""
        if not transforms:
            return batch
        if self._columns is None:
            return None
        places = [place for place, data in enumerate(batch.values) if data is not None]
        values, schemas = self._columns.decode_all([data for data in batch.values if data is not None])
        if len(_there(values)) < len(values):
            return None
        kept = places
        for transform in transforms:
            values = transform.made_of(list(values))
            left = _there(values)
            if len(left) < len(values):
                kept, values = [kept[each] for each in left], [values[each] for each in left]
                schemas = [schemas[each] for each in left] if schemas else ()
        became: list[bytes | None] = [None] * len(batch.values)
        for place, data in zip(kept, self._columns.encode_all(values, schemas), strict=True):
            became[place] = data
        whole = replace(batch, values=became)
        return whole if kept is places else without(whole, set(places).difference(kept))

    def notices(self) -> Counter[tuple[Severity, str]]:
        """What the stages have to say since this was asked for the last time."""
        said: Counter[tuple[Severity, str]] = Counter()
        for stage in self._stages:
            if isinstance(stage.transform, Telling):
                for (severity, text), count in stage.transform.notices.items():
                    said[severity, f"{stage.alias}: {text}"] += count
                stage.transform.notices.clear()
        return said

    def close(self) -> None:
        """Release every stage; raises the first error, after all of them."""
        failures = []
        for stage in self._stages:
            for part in (stage.transform, stage.predicate):
                try:
                    if part is not None:
                        part.close()
                except Exception as error:
                    failures.append(error)
        if failures:
            raise failures[0]

    def _pick(self, stage: Stage, outcomes: list[Outcome]) -> tuple[list[int], list[Record]]:
        """The records the stage applies to, read as far as it needs, and their places."""
        picked, batch = [], []
        of_bytes = stage.transform.of_bytes if isinstance(stage.transform, OfBytes) else None
        for index, record in enumerate(outcomes):
            if not isinstance(record, Record):
                continue
            try:
                if stage.predicate is not None:
                    record = outcomes[index] = self._read(record, stage.predicate)
                    if stage.predicate.test(record) == stage.negate:
                        continue
                if of_bytes is not None and type(record.value) is Encoded:
                    made = of_bytes(record)
                    if made is not UNREAD:
                        outcomes[index] = made
                        continue
                record = self._read(record, stage.transform)
            except (Fatal, NotConnected):
                raise
            except Exception as error:
                outcomes[index] = Failure(stage, error)
                continue
            picked.append(index)
            batch.append(record)
        return picked, batch

    def _read(self, record: Record, reader: Transform | Predicate) -> Record:
        if reader.uses_key and type(record.key) is Encoded:
            key, schema = self._decode_key(bytes(record.key))
            record = replace(record, key=key, key_schema=schema)
        if reader.uses_value and type(record.value) is Encoded:
            value, schema = self._decode_value(bytes(record.value))
            record = replace(record, value=value, value_schema=schema)
        return record


def _of_batches(stages: Sequence[Stage]) -> tuple[Sequence[OfBytes], Sequence[ValueTransform]] | None:
    """The transforms, if all of them can do with batches and take everything."""
    of_bytes: list[OfBytes] = []
    of_values: list[ValueTransform] = []
    for stage in stages:
        transform = stage.transform
        if isinstance(transform, OfBytes) and not of_values:
            of_bytes.append(transform)
        elif isinstance(transform, ValueTransform) and type(transform).apply is ValueTransform.apply:
            of_values.append(transform)
        else:
            return None
    return (of_bytes, of_values) if stages and all(stage.predicate is None for stage in stages) else None


def _there(values: Sequence[Json]) -> list[int]:
    return [place for place, value in enumerate(values) if value is not None]


def without(batch: EncodedBatch, left_out: Collection[int]) -> EncodedBatch:
    """A batch without the rows at these places; where it ends stays the same."""
    places = [place for place in range(len(batch.values)) if place not in left_out]
    return replace(
        batch,
        keys=[batch.keys[place] for place in places],
        values=[batch.values[place] for place in places],
        headers=[batch.headers[place] for place in places] if batch.headers else (),
        timestamps_ms=[batch.timestamps_ms[place] for place in places] if batch.timestamps_ms else (),
    )


def _applied(stage: Stage, batch: list[Record]) -> Sequence[Outcome]:
    try:
        return _checked(stage, batch)
    except (Fatal, NotConnected):
        raise
    except Exception as error:
        if len(batch) == 1:
            return [Failure(stage, error)]
    return [outcome for record in batch for outcome in _applied(stage, [record])]


def _checked(stage: Stage, batch: list[Record]) -> Sequence[Record | None]:
    results = stage.transform.apply(batch)
    if len(results) != len(batch):
        raise TypeError(f"{stage.name} returned {len(results)} entries for {len(batch)} records")
    for given, each in zip(batch, results, strict=True):
        if each is not None and each is not given:
            _check(stage, given, each)
    return results


def _check(stage: Stage, given: Record, made: object) -> None:
    """What a stage makes goes out as it is: rubbish is found here, where it is known whose it is."""
    if not isinstance(made, Record):
        raise TypeError(f"{stage.name} returned a {type(made).__name__}, not a Record or None")
    if made.topic is not None and not isinstance(made.topic, str):
        raise TypeError(f"{stage.name} returned a record whose topic is a {type(made.topic).__name__}, not a string")
    if made.topic == "":
        raise TypeError(f"{stage.name} returned a record whose topic is empty")
    for name in ("timestamp_ms", "kafka_partition"):
        number = getattr(made, name)
        if number is not None and type(number) is not int:
            raise TypeError(f"{stage.name} returned a record whose {name} is a {type(number).__name__}, not an integer")
    if made.headers is not given.headers:
        _check_headers(stage, made.headers)


def _check_headers(stage: Stage, headers: object) -> None:
    wanted = "headers are a tuple of pairs, each a string and bytes or None"
    if type(headers) is not tuple:
        raise TypeError(f"{stage.name} returned a record with a {type(headers).__name__} of headers; {wanted}")
    for pair in headers:
        if type(pair) is not tuple or len(pair) != 2 or not isinstance(pair[0], str):
            raise TypeError(f"{stage.name} returned a record with the header {_short(pair)}; {wanted}")
        if pair[1] is not None and not isinstance(pair[1], bytes):
            found = type(pair[1]).__name__
            raise TypeError(f"{stage.name} returned a record whose header {pair[0]} is a {found}; {wanted}")


def _short(thing: object) -> str:
    return repr(thing)[:60]
