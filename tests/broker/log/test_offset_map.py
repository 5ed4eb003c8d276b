"""The offset map against a dict, and within its budget"""

from hypothesis import given
from hypothesis import strategies as st

from tidemill.broker.log.offset_map import SLOT_BYTES, SLOTS_MIN, OffsetMap

KEYS = st.one_of(st.none(), st.binary(max_size=3))


@given(st.lists(st.lists(KEYS, max_size=20), max_size=12), st.lists(st.binary(max_size=3)))
def test_it_says_what_a_dict_would_say(batches: list[list[bytes | None]], others: list[bytes]) -> None:
    expected: dict[bytes, int] = {}
    offset_map = OffsetMap(1 << 20, keys_expected=sum(map(len, batches)))
    offset = 0
    for keys in batches:
        offsets = list(range(offset, offset + len(keys)))
        assert offset_map.offer(keys, offsets)
        expected |= {key: at for key, at in zip(keys, offsets, strict=True) if key is not None}
        offset += len(keys)
    assert len(offset_map) == len(expected)
    asked: list[bytes | None] = [*expected, *others, None]
    assert offset_map.newest(asked) == [-1 if key is None else expected.get(key, -1) for key in asked]


def test_it_takes_as_many_keys_as_were_announced_and_no_more_memory_than_they_need() -> None:
    for expected in (1, 57, 58, 1000, 5000):
        offset_map = OffsetMap(1 << 24, keys_expected=expected)
        assert offset_map.capacity >= expected
        assert offset_map.size_bytes <= max(SLOTS_MIN, 2.3 * expected) * SLOT_BYTES
        keys: list[bytes | None] = [b"%d" % number for number in range(expected)]
        assert offset_map.offer(keys, range(expected))
        assert offset_map.newest(keys) == list(range(expected))


def test_a_full_map_refuses_and_stays_as_it_is() -> None:
    budget = 256 * SLOT_BYTES
    offset_map = OffsetMap(budget, keys_expected=10**9)
    assert offset_map.size_bytes <= budget
    keys: list[bytes | None] = [b"%d" % number for number in range(offset_map.capacity)]
    assert offset_map.offer(keys, range(len(keys)))
    assert not offset_map.offer([b"one more"], [10_000])
    assert offset_map.newest([b"one more"]) == [-1]
    assert offset_map.newest(keys) == list(range(len(keys)))
    assert len(offset_map) == offset_map.capacity


def test_a_load_factor_of_one_still_leaves_a_free_slot_to_end_a_search() -> None:
    offset_map = OffsetMap(SLOTS_MIN * SLOT_BYTES, keys_expected=10**6, load_factor=1.0)
    keys: list[bytes | None] = [b"%d" % number for number in range(offset_map.capacity)]
    assert offset_map.offer(keys, range(len(keys)))
    assert offset_map.newest([b"missing"]) == [-1]
