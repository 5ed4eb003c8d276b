"""Records through stages: order, predicates, failures, and what is read of bytes"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from tidemill.connect.transforms.chain import UNREAD, Chain, Encoded, Failure, OfBytes, OneByOne, Stage, Unread

read: list[bytes] = []


@pytest.fixture(autouse=True)
def nothing_read() -> None:
    read.clear()


def decode(data: bytes | None) -> tuple[Json, Schema | None]:
    assert data is not None
    read.append(data)
    return orjson.loads(data), None


class Each(Transform):
    """Calls a function per record."""

    def __init__(self, function: Callable[[Record], Record | None], *, uses_key: bool = True, uses_value: bool = True):
        self.function, self.uses_key, self.uses_value = function, uses_key, uses_value
        self.batches: list[int] = []
        self.closed = False

    def apply(self, records: Sequence[Record]) -> Sequence[Record | None]:
        self.batches.append(len(records))
        return [self.function(record) for record in records]

    def close(self) -> None:
        self.closed = True


class When(Predicate):
    """Asks a function."""

    def __init__(self, function: Callable[[Record], bool], *, uses_value: bool = False) -> None:
        self.function, self.uses_key, self.uses_value = function, False, uses_value

    def test(self, record: Record) -> bool:
        return self.function(record)


def stage(transform: Transform, predicate: Predicate | None = None, *, negate: bool = False) -> Stage:
    return Stage(alias="a", name="A", transform=transform, predicate=predicate, negate=negate)


def chain(*stages: Stage) -> Chain:
    return Chain(stages, decode, decode)


def adding(text: str) -> Transform:
    return Each(lambda record: replace(record, value=f"{record.value}{text}"))


def records(*values: Json) -> list[Record]:
    return [Record(topic="t", value=value) for value in values]


def test_stages_follow_one_another() -> None:
    out = chain(stage(adding("1")), stage(adding("2"))).apply(records("a", "b"))
    assert [each.value for each in out if isinstance(each, Record)] == ["a12", "b12"]


@pytest.mark.parametrize(("negate", "expected"), [(False, ["a!", "b", "a!"]), (True, ["a", "b!", "a"])])
def test_a_predicate_picks_and_places_are_kept(negate: bool, expected: list[str]) -> None:
    picked = stage(adding("!"), When(lambda record: record.value == "a"), negate=negate)
    out = chain(picked).apply(records("a", "b", "a"))
    assert [each.value for each in out if isinstance(each, Record)] == expected


def test_what_is_left_out_meets_no_further_stage() -> None:
    last = Each(lambda record: record)
    out = chain(stage(Each(lambda record: None if record.value == "b" else record)), stage(last)).apply(
        records("a", "b", "c")
    )
    assert [isinstance(each, Record) for each in out] == [True, False, True] and out[1] is None
    assert last.batches == [2]


def test_a_failure_is_told_of_its_record_alone() -> None:
    def half(record: Record) -> Record:
        return replace(record, value=1 / record.value)

    failing, last = Each(half), Each(lambda record: record)
    out = chain(stage(failing), stage(last)).apply(records(1, 0, 2))
    assert [each.value for each in out if isinstance(each, Record)] == [1.0, 0.5]
    failure = out[1]
    assert isinstance(failure, Failure) and isinstance(failure.error, ZeroDivisionError) and failure.stage.name == "A"
    assert failing.batches == [3, 1, 1, 1] and last.batches == [2]


def test_a_predicate_that_raises_fails_the_record() -> None:
    def odd(record: Record) -> bool:
        return bool(record.value["odd"])

    out = chain(stage(adding("!"), When(odd))).apply(records({"odd": False}, {}))
    assert isinstance(out[0], Record) and isinstance(out[1], Failure)


@pytest.mark.parametrize("error", [Fatal("no"), NotConnected("away")])
def test_what_speaks_of_the_task_is_raised(error: Exception) -> None:
    def broken(record: Record) -> Record:
        raise error

    for stages in ([stage(Each(broken))], [stage(adding("x"), When(lambda record: bool(broken(record))))]):
        with pytest.raises(type(error)):
            chain(*stages).apply(records(1, 2))


class Odd(Transform):
    """Returns what it should not."""

    def __init__(self, result: Sequence[object]) -> None:
        self.result = result

    def apply(self, records: Sequence[Record]) -> Sequence[Record | None]:
        return self.result  # type: ignore[return-value]


@pytest.mark.parametrize("result", [[], ["text"], records(1, 2)])
def test_rubbish_from_a_transform_is_a_failure(result: Sequence[object]) -> None:
    [out] = chain(stage(Odd(result))).apply(records(1))
    assert isinstance(out, Failure) and isinstance(out.error, TypeError)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"topic": b"x"}, "topic is a bytes, not a string"),
        ({"topic": ""}, "topic is empty"),
        ({"timestamp_ms": 1.5}, "timestamp_ms is a float, not an integer"),
        ({"kafka_partition": "1"}, "kafka_partition is a str, not an integer"),
        ({"headers": [("a", b"b")]}, "a list of headers"),
        ({"headers": (("a", "text"),)}, "header a is a str"),
        ({"headers": (("a", 1),)}, "header a is a int"),
        ({"headers": (("a",),)}, "the header ('a',)"),
        ({"headers": ((b"a", b"b"),)}, "the header (b'a', b'b')"),
        ({"headers": ("ab",)}, "the header 'ab'"),
    ],
)
def test_a_record_that_could_not_go_out_is_the_failure_of_its_stage(changed: dict[str, object], words: str) -> None:
    def rubbish(record: Record) -> Record:
        return replace(record, **changed) if record.value == 2 else record  # type: ignore[arg-type]

    last = Each(lambda record: record)
    out = chain(stage(Each(rubbish)), stage(last)).apply(records(1, 2, 3))
    failure = out[1]
    assert isinstance(failure, Failure) and words in str(failure.error) and str(failure.error).startswith("A returned")
    assert [isinstance(out[0], Record), isinstance(out[2], Record)] == [True, True] and last.batches == [2]


def test_what_may_go_out_passes() -> None:
    good = Each(lambda record: replace(record, topic=None, headers=(("a", None), ("b", b""))))
    [out] = chain(stage(good)).apply(records(1))
    assert isinstance(out, Record) and out.headers == (("a", None), ("b", b""))


# ----------------------------------------------------------------------- bytes

ROUTE = Each(lambda record: replace(record, topic="x"), uses_key=False, uses_value=False)
CHANGE = Each(lambda record: replace(record, value={**record.value, "b": 2}), uses_key=False)


def encoded(*values: bytes) -> list[Record]:
    return [Record(topic="t", key=Encoded(b"1"), value=Encoded(value)) for value in values]


def test_bytes_are_not_read_for_a_stage_that_has_no_use_for_them() -> None:
    out = chain(stage(ROUTE)).apply(encoded(b'{"a":1}', b"not json"))
    assert all(isinstance(each, Record) and type(each.value) is Encoded and each.topic == "x" for each in out)
    assert not read


def test_bytes_are_read_once_and_only_of_records_that_are_picked() -> None:
    first = When(lambda record: record.headers == ())
    given = encoded(b'{"a":1}', b'{"a":2}')
    given[1] = replace(given[1], headers=(("h", b""),))
    out = chain(stage(CHANGE, first), stage(CHANGE, first)).apply(given)
    assert isinstance(out[0], Record) and out[0].value == {"a": 1, "b": 2} and type(out[0].key) is Encoded
    assert isinstance(out[1], Record) and type(out[1].value) is Encoded
    assert read == [b'{"a":1}']


def test_a_predicate_may_look_at_values_too() -> None:
    large = When(lambda record: record.value["a"] > 1, uses_value=True)
    out = chain(stage(ROUTE, large)).apply(encoded(b'{"a":1}', b'{"a":2}'))
    assert [each.topic for each in out if isinstance(each, Record)] == ["t", "x"]


def test_bytes_that_cannot_be_read_fail_their_record() -> None:
    out = chain(stage(CHANGE)).apply(encoded(b"{}", b"rubbish"))
    assert isinstance(out[0], Record) and isinstance(out[1], Failure)


class Knowing(Each, OfBytes):
    """Knows its way in bytes that begin with a bracket."""

    def of_bytes(self, record: Record) -> Record | Unread | None:
        if record.value == b"[1]":
            return None
        if record.value == b"[2]":
            raise ValueError("no")
        return replace(record, value=Encoded(b"[]")) if record.value.startswith(b"[") else UNREAD


def test_who_knows_its_way_in_bytes_is_asked_before_they_are_read() -> None:
    knowing = Knowing(lambda record: replace(record, value=len(record.value)))
    out = chain(stage(knowing)).apply(encoded(b"[0]", b"[1]", b"[2]", b'{"a":1}'))
    assert isinstance(out[0], Record) and out[0].value == b"[]" and type(out[0].value) is Encoded
    assert out[1] is None and isinstance(out[2], Failure)
    assert isinstance(out[3], Record) and out[3].value == 1
    assert knowing.batches == [1] and b"[0]" not in read


def test_bytes_its_predicate_keeps_away_are_not_shown_to_it() -> None:
    knowing = Knowing(lambda record: record)
    [out] = chain(stage(knowing, When(lambda record: False))).apply(encoded(b"[1]"))
    assert isinstance(out, Record) and out.value == b"[1]"


def test_every_stage_is_closed_although_one_fails() -> None:
    class Stubborn(Each):
        def close(self) -> None:
            raise RuntimeError("no")

    last = Each(lambda record: record)
    with pytest.raises(RuntimeError):
        chain(stage(Stubborn(lambda record: record)), stage(last)).close()
    assert last.closed


# ------------------------------------------------- the same, one record at a time

OPERATIONS: list[Callable[[Record], Record | None]] = [
    lambda record: replace(record, value=record.value + 1),
    lambda record: None if record.value % 3 == 0 else record,
    lambda record: replace(record, value=12 // record.value),
    lambda record: replace(record, value=-record.value),
]
CONDITIONS: list[Callable[[Record], bool]] = [
    lambda record: record.value % 2 == 0,
    lambda record: 6 % record.value == 0,
]


@given(
    st.lists(
        st.tuples(st.sampled_from(OPERATIONS), st.one_of(st.none(), st.sampled_from(CONDITIONS)), st.booleans()),
        max_size=4,
    ),
    st.lists(st.integers(-5, 5), max_size=8),
)
def test_a_batch_is_what_its_records_are_alone(
    plan: list[tuple[Callable[[Record], Record | None], Callable[[Record], bool] | None, bool]], values: list[int]
) -> None:
    def alone(value: int) -> object:
        record: Record | None = Record(value=value)
        try:
            for operation, condition, negate in plan:
                assert record is not None
                if condition is None or condition(record) != negate:
                    record = operation(record)
                    if record is None:
                        return None
        except ZeroDivisionError:
            return ZeroDivisionError
        return record

    stages = [
        stage(Each(operation), None if condition is None else When(condition), negate=negate)
        for operation, condition, negate in plan
    ]
    out = chain(*stages).apply(records(*values))
    shown = [type(each.error) if isinstance(each, Failure) else each for each in out]
    assert [replace(each, topic=None) if isinstance(each, Record) else each for each in shown] == [
        alone(value) for value in values
    ]


# ------------------------------------------------------------- batches of values


class Values(ValueTransform):
    """Calls a function with all values."""

    def __init__(self, function: Callable[[list[Json]], Sequence[Json]]) -> None:
        self.function = function

    def of_values(self, values: list[Json]) -> Sequence[Json]:
        return self.function(values)


class Cutting(OfBytes):
    """Takes brackets off, and gives up at what has none."""

    def apply(self, records: Sequence[Record]) -> Sequence[Record | None]:
        return [record if record.value is None else replace(record, value=record.value[0]) for record in records]

    def of_bytes(self, record: Record) -> Record | Unread | None:
        return UNREAD

    def of_batch(self, batch: EncodedBatch) -> EncodedBatch | None:
        if any(data is not None and not data.startswith(b"[") for data in batch.values):
            return None
        return replace(batch, values=[data and data[1:-1] for data in batch.values])


def encode(value: Json, schema: Schema | None) -> bytes | None:
    assert schema is None
    return None if value is None else orjson.dumps(value)


def batch_of(*values: bytes | None, more: bool = False) -> EncodedBatch:
    keys = [b"%d" % number for number in range(len(values))]
    if not more:
        return EncodedBatch(topic="t", keys=keys, values=values, offset={"at": 1})
    headers = [(("n", key),) for key in keys]
    return EncodedBatch(topic="t", keys=keys, values=values, headers=headers, timestamps_ms=[*range(len(values))])


def whole(batch: EncodedBatch, *transforms: Transform) -> EncodedBatch | None:
    return Chain([stage(each) for each in transforms], decode, decode, OneByOne(decode, encode)).apply_encoded(batch)


def twice(values: list[Json]) -> list[Json]:
    return [2 * value for value in values]


def small(values: list[Json]) -> list[Json]:
    return [value if value < 5 else None for value in values]


def grown(values: list[Json]) -> list[Json]:
    values.append(None)
    return values


def test_values_are_read_once_for_all_that_follow_one_another() -> None:
    batch = batch_of(b"1", None, b"3")
    assert whole(batch, Values(twice), Values(twice)) == replace(batch, values=[b"4", None, b"12"])
    assert read == [b"1", b"3"]


def test_rows_that_are_left_out_are_so_in_every_column() -> None:
    out = whole(batch_of(b"1", b"7", None, b"2", more=True), Values(small), Values(twice))
    assert out is not None and list(out.values) == [b"2", None, b"4"]
    assert (out.keys, out.timestamps_ms) == ([b"0", b"2", b"3"], [0, 2, 3])
    assert out.headers == [(("n", b"0"),), (("n", b"2"),), (("n", b"3"),)]


def test_bytes_and_then_values() -> None:
    batch = batch_of(b"[[1]]", b"[[2]]")
    assert whole(batch, Cutting(), Cutting(), Values(twice)) == replace(batch, values=[b"2", b"4"])


def test_nothing_is_done_twice_where_another_stage_needs_records() -> None:
    asked: list[list[Json]] = []

    def listen(values: list[Json]) -> list[Json]:
        asked.append(values)
        return values

    for others in ([adding("!")], [Cutting(), Values(twice)]):
        assert whole(batch_of(b"1"), Values(listen), *others) is None
    assert not asked


class Overriding(Values):
    """What apply does is all that counts."""

    def apply(self, records: Sequence[Record]) -> Sequence[Record | None]:  # type: ignore[misc]
        return [replace(each, value="own") for each in records]


def test_values_that_are_changed_in_place_are_changed_once() -> None:
    """Those beside one that fails are given again."""

    def add(values: list[Json]) -> list[Json]:
        for value in values:
            value["n"] += 10
        return values

    out = chain(stage(Values(add))).apply(records({"n": 1}, {"n": None}, {"n": 2}))
    assert [each.value for each in out if isinstance(each, Record)] == [{"n": 11}, {"n": 12}]


@pytest.mark.parametrize(
    ("values", "transforms"),
    [
        ([b"1", b"null"], [Values(twice)]),  # nothing, though there are bytes: what the general way makes of it
        ([b"1", b"{"], [Values(twice)]),
        ([b"1"], [Values(lambda values: [])]),
        ([b"1"], [Values(lambda values: [{1, 2}])]),
        ([b"1"], [Values(grown)]),
        ([b"1"], [Values(twice), adding("!")]),
        ([b"1"], [Cutting(), Values(twice)]),
        ([b"1"], [Overriding(twice)]),
        ([b"1"], []),
    ],
    ids=["null", "rubbish", "fewer", "unwritable", "grown", "another", "uncut", "overridden", "none"],
)
def test_what_no_batch_can_be_told_of_goes_record_by_record(values: list[bytes], transforms: list[Transform]) -> None:
    assert whole(batch_of(*values), *transforms) is None


def test_a_predicate_needs_records() -> None:
    picked = stage(Values(twice), When(lambda record: True))
    assert Chain([picked], decode, decode, OneByOne(decode, encode)).apply_encoded(batch_of(b"1")) is None
    assert Chain([stage(Values(twice))], decode, decode).apply_encoded(batch_of(b"1")) is None, "nobody can write it"


@pytest.mark.parametrize("error", [Fatal, NotConnected])
def test_what_speaks_of_the_task_ends_a_batch_too(error: type[Exception]) -> None:
    def fails(values: list[Json]) -> list[Json]:
        raise error("now")

    with pytest.raises(error):
        whole(batch_of(b"1"), Values(fails))


def test_a_failure_is_told_of_its_value_alone() -> None:
    halves = Values(lambda values: [1 / value for value in values])
    out = chain(stage(halves)).apply(records(1, None, 0, 2))
    assert [each.value for each in out if isinstance(each, Record)] == [1.0, None, 0.5]
    assert isinstance(out[2], Failure) and isinstance(out[2].error, ZeroDivisionError)


@given(
    st.lists(st.sampled_from([twice, small, lambda values: [-value for value in values]]), min_size=1, max_size=3),
    st.lists(st.one_of(st.none(), st.integers(-9, 9)), max_size=8),
)
def test_a_batch_of_values_is_what_its_records_are(functions: list[Any], values: list[int | None]) -> None:
    batch = batch_of(*(None if value is None else b"%d" % value for value in values))
    out = whole(batch, *map(Values, functions))
    assert out is not None
    given = [Record(topic="t", key=key, value=value) for key, value in zip(batch.keys, values, strict=True)]
    alone = [each for each in chain(*(stage(Values(each)) for each in functions)).apply(given) if each is not None]
    assert [(each.key, encode(each.value, None)) for each in alone if isinstance(each, Record)] == list(
        zip(out.keys, out.values, strict=True)
    )
