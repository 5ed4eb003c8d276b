"""Records a batch may have, for bytes to stay within bounds"""

from hypothesis import given
from hypothesis import strategies as st

from tidemill.spark_sink.batch_size import BatchSize

WHOLE = BatchSize(offsets=1_000, offsets_max=1_000, bytes_max=10_000)


def test_a_cut_batch_is_followed_by_smaller_ones() -> None:
    assert WHOLE.after(100, 10_000, cut=True).offsets == 75
    assert WHOLE.after(900, 10_000, cut=True).offsets == 500
    assert WHOLE.after(1, 1_000_000, cut=True).offsets == 1


def test_small_full_batches_are_followed_by_larger_ones() -> None:
    small = WHOLE.after(100, 10_000, cut=True)
    assert small.after(75, 9_000, cut=False) is small
    assert small.after(20, 100, cut=False) is small  # there was no more to read
    again = small.after(75, 100, cut=False)
    assert (again.offsets, again.after(75, 100, cut=False).offsets) == (75, 300)
    assert WHOLE.after(1_000, 100, cut=False) is WHOLE


def test_one_partition_of_large_records_does_not_replace_the_query_again_and_again() -> None:
    """Its task is cut at its share although the batch as a whole is small, so that the next ones would grow again."""
    size, partitions, large, small = (
        BatchSize(offsets=500_000, offsets_max=500_000, bytes_max=1 << 27),
        100,
        10_000,
        100,
    )
    share, steps = size.bytes_max // partitions, 0
    for _ in range(2_000):
        each = size.offsets // partitions
        read = min(each, share // large + 1)
        rest = (partitions - 1) * each
        after = size.after(read + rest, read * large + rest * small, cut=read < each)
        steps += after.offsets != size.offsets
        size = after
    assert steps < 50


@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=40))
def test_any_sizes_come_to_rest_within_bounds(record_bytes: list[int]) -> None:
    size = WHOLE
    for each in record_bytes:
        for _ in range(20):
            read = min(size.offsets, max(1, -(-size.bytes_max // each)))
            after = size.after(read, read * each, cut=read < size.offsets)
            assert 1 <= after.offsets <= after.offsets_max
            size = after
        assert min(size.offsets, -(-size.bytes_max // each)) == size.offsets  # not cut any more
