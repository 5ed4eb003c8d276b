"""The words of Apache's workers: as bytes they are theirs, and nothing else is understood"""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.connect.group.sessioned_words import (
    CONFIG_MISMATCH,
    Assignment,
    WorkerState,
    decode_assignment,
    decode_state,
    encode_assignment,
    encode_state,
)
from tidemill.connect.group.words import BadWords
from tidemill.connect.herder.placement import Instance

names = st.text(max_size=12)
instances = st.frozensets(st.builds(Instance, names, st.integers(-1, 2**31 - 1)), max_size=8)
assignments = st.builds(
    Assignment,
    leader=names,
    leader_url=names,
    config_offset=st.integers(-1, 2**63 - 1),
    assigned=instances,
    revoked=instances,
    delay_ms=st.integers(0, 2**31 - 1),
    error=st.sampled_from([0, CONFIG_MISMATCH]),
)
states = st.builds(WorkerState, url=names, config_offset=st.integers(-1, 2**63 - 1), assignment=st.none() | assignments)

LEADER = Assignment(
    leader="m1",
    leader_url="http://h:1/",
    config_offset=7,
    assigned=frozenset({Instance("c", -1), Instance("c", 0)}),
    revoked=frozenset({Instance("dé", 2)}),
    delay_ms=300_000,
)
LEADER_BYTES = bytes.fromhex(
    "0002 0000"  # version, no error
    "0002 6d31"
    "000b 687474703a2f2f683a312f"
    "0000000000000007"
    "00000001 0001 63 00000002 ffffffff 00000000"
    "00000001 0003 64c3a9 00000001 00000002"
    "000493e0"
)


def test_the_bytes_of_an_assignment() -> None:
    assert encode_assignment(LEADER) == LEADER_BYTES
    assert decode_assignment(LEADER_BYTES) == LEADER


def test_what_a_worker_of_kafka_4_3_has_told() -> None:
    """Recorded: it has two connectors and a task, leads, and has read two records since it was told so."""
    told = bytes.fromhex(
        "00020017687474703a2f2f3132372e302e302e313a33323634362f00000000000000070000008900020000003c636f6e6e6563742d313237"
        "2e302e302e313a33323634362d31373133623038312d303762372d346536642d626161662d6433373265653231373033310017687474703a"
        "2f2f3132372e302e302e313a33323634362f00000000000000050000000200016100000002ffffffff0000000000016200000001ffffffff"
        "0000000000000000"
    )
    has = Assignment(
        leader="connect-127.0.0.1:32646-1713b081-07b7-4e6d-baaf-d372ee217031",
        leader_url="http://127.0.0.1:32646/",
        config_offset=5,
        assigned=frozenset({Instance("a", -1), Instance("a", 0), Instance("b", -1)}),
    )
    assert decode_state(told) == WorkerState(url="http://127.0.0.1:32646/", config_offset=7, assignment=has)
    assert encode_state(decode_state(told)) == told


def test_what_a_worker_of_kafka_4_3_has_told_of_empty_topics() -> None:
    told = bytes.fromhex("00020017687474703a2f2f3132372e302e302e313a33323634362fffffffffffffffffffffffff")
    assert decode_state(told) == WorkerState(url="http://127.0.0.1:32646/", config_offset=-1)
    assert encode_state(decode_state(told)) == told


def test_the_bytes_of_a_worker_that_has_something() -> None:
    state = WorkerState(url="http://w/", config_offset=7, assignment=LEADER)
    expected = bytes.fromhex("0002 0009 687474703a2f2f772f 0000000000000007 00000045") + LEADER_BYTES
    assert len(LEADER_BYTES) == 0x45
    assert encode_state(state) == expected
    assert decode_state(expected) == state
    assert decode_state(expected).holds == LEADER.assigned


def test_the_bytes_of_a_worker_that_has_nothing() -> None:
    state = WorkerState(url="", config_offset=-1)
    expected = bytes.fromhex("0002 0000 ffffffffffffffff ffffffff")
    assert encode_state(state) == expected
    assert decode_state(expected) == state
    assert decode_state(expected).holds == frozenset()


def test_what_java_leaves_out_is_nothing() -> None:
    head = bytes.fromhex("0001 0001 0000 0000 0000000000000003")
    expected = Assignment(leader="", leader_url="", config_offset=3, error=CONFIG_MISMATCH)
    null = bytes.fromhex("ffffffff")
    assert decode_assignment(head + null) == expected  # as of version 0
    assert decode_assignment(head + null + null) == expected
    assert decode_assignment(head + null + null + bytes(4)) == expected


def test_words_of_the_first_version_tell_of_no_assignment() -> None:
    assert decode_state(bytes.fromhex("0000 0000 0000000000000003")) == WorkerState(url="", config_offset=3)


def test_what_a_later_version_adds_is_left() -> None:
    later = b"\0\3" + LEADER_BYTES[2:] + b"more"
    assert decode_assignment(later) == LEADER


@given(assignments)
def test_an_assignment_is_read_as_it_was_written(assignment: Assignment) -> None:
    assert decode_assignment(encode_assignment(assignment)) == assignment


@given(states)
def test_a_state_is_read_as_it_was_written(state: WorkerState) -> None:
    assert decode_state(encode_state(state)) == state


@given(st.binary(max_size=60))
def test_any_bytes_are_words_or_refused(data: bytes) -> None:
    for decode in (decode_state, decode_assignment):
        with contextlib.suppress(BadWords):
            decode(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xff",  # a version below the first
        LEADER_BYTES[:-30],
        bytes.fromhex("0002 0000 0001 ff 0000 0000000000000000 00000000"),  # not UTF-8
        bytes.fromhex("0002 0000 ffff 0000 0000000000000000 00000000"),  # no text at all
        bytes.fromhex("0002 0000 0000 0000 0000000000000000 00000001 0001 63 00000001 fffffffe"),  # task -2
        bytes.fromhex("0002 0000 0000 0000 0000000000000000 7fffffff"),  # more than there is
    ],
)
def test_what_is_no_assignment(data: bytes) -> None:
    with pytest.raises(BadWords):
        decode_assignment(data)
