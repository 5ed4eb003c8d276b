"""Words of workers: what is written is read, and whatever else comes is refused in a sentence"""

from types import MappingProxyType

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.connect.group.words import (
    BadWords,
    Resolution,
    decode_resolution,
    decode_says,
    encode_resolution,
    encode_says,
)
from tidemill.connect.herder.placement import CONNECTOR, Holder, Instance, Plan, WorkerSays

texts = st.text(st.characters(codec="utf-8"), max_size=20)
instances = st.builds(Instance, texts, st.integers(CONNECTOR, 2**31 - 1))
several = st.frozensets(instances, max_size=8)
holders = st.builds(Holder, texts, texts)
held = st.dictionaries(instances, holders, max_size=8).map(MappingProxyType)
numbers = st.integers(-1, 2**62)

says = st.builds(
    WorkerSays,
    holder=holders,
    config_offset=numbers,
    holds=several,
    stale=several,
    leaving=st.booleans(),
    gone=st.frozensets(texts, max_size=3),
    topics=st.lists(texts, max_size=3).map(tuple),
    heard=st.integers(-1, 2**31),
)
plans = st.builds(
    Plan,
    generation=st.integers(-1, 2**31),
    base=st.integers(0, 2**31),
    config_offset=numbers,
    assigned=held,
    holders=held,
    releasing=st.dictionaries(texts, several, max_size=3).map(MappingProxyType),
    left=st.frozensets(texts, max_size=3),
)
resolutions = st.builds(
    Resolution,
    plan=plans,
    workers=st.dictionaries(texts, texts, max_size=3).map(MappingProxyType),
    namesakes=st.frozensets(texts, max_size=3),
    strangers=st.frozensets(texts, max_size=3),
    topics=st.lists(texts, max_size=3).map(tuple),
    again_in_ms=st.none() | st.integers(0, 2**31),
)


@given(says)
def test_what_a_worker_says_is_read_as_it_was_said(said: WorkerSays) -> None:
    assert decode_says(said.holder.member_id, encode_says(said)) == said


@given(resolutions)
def test_a_resolution_is_read_as_it_was_made(resolution: Resolution) -> None:
    assert decode_resolution(encode_resolution(resolution)) == resolution


@given(resolutions)
def test_equal_things_are_equal_bytes(resolution: Resolution) -> None:
    assert encode_resolution(decode_resolution(encode_resolution(resolution))) == encode_resolution(resolution)


def test_what_a_later_version_adds_is_left() -> None:
    said = WorkerSays(holder=Holder("m", "u"), config_offset=3)
    content = orjson.loads(encode_says(said)) | {"mood": "good"}
    assert decode_says("m", orjson.dumps(content)) == said


def test_what_an_earlier_version_did_not_say_is_not_missed() -> None:
    said = WorkerSays(holder=Holder("m", "u"), config_offset=3)
    content = orjson.loads(encode_says(said))
    del content["heard"]
    assert decode_says("m", orjson.dumps(content)) == said
    resolution = Resolution(plan=Plan(generation=4), again_in_ms=None)
    content = orjson.loads(encode_resolution(resolution))
    del content["again_in_ms"]
    assert decode_resolution(orjson.dumps(content)) == resolution


def with_changes(**changes: object) -> bytes:
    plan = Plan(generation=1, config_offset=2, assigned=MappingProxyType({Instance("c", 0): Holder("m", "u")}))
    return orjson.dumps(orjson.loads(encode_resolution(Resolution(plan=plan))) | changes)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not JSON"),
        (b"\x00\x01\xff", "not JSON"),
        (b"[]", "not an object"),
        (b"{}", "version None"),
        (with_changes(version=2), "of version 2; this worker understands 1"),
        (with_changes(generation="1"), "generation is not a number"),
        (with_changes(generation=True), "generation is not a number"),
        (with_changes(base=-1), "base is not a number"),
        (with_changes(known=[["m"]]), "a member and its address"),
        (with_changes(known=[]), "a holder that nobody knows"),
        (with_changes(assigned={"c": [[0, -1]]}), "a holder that nobody knows"),
        (with_changes(assigned={"c": [[-2, 0]]}), "number of a task"),
        (with_changes(assigned={"c": [[0]]}), "tasks and holders"),
        (with_changes(assigned=[]), "assigned is not an object"),
        (with_changes(releasing={"m": []}), "not by connector"),
        (with_changes(left=[1]), "not a text"),
        (with_changes(workers={"m": 1}), "not a text"),
        (with_changes(again_in_ms=-1), "again_in_ms is not a number"),
    ],
)
def test_garbage_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(BadWords, match=reason):
        decode_resolution(data)


@given(st.binary(max_size=64))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    for read in (decode_resolution, lambda each: decode_says("m", each)):
        with pytest.raises(BadWords):
            read(data)


@pytest.mark.parametrize("changes", [{"url": None}, {"offset": 2**63}, {"holds": {"c": ["0"]}}, {"gone": "m"}])
def test_a_worker_whose_words_are_not_right_is_not_read(changes: dict[str, object]) -> None:
    content = orjson.loads(encode_says(WorkerSays(holder=Holder("m", "u"), config_offset=3)))
    with pytest.raises(BadWords):
        decode_says("m", orjson.dumps(content | changes))
