"""Logs that are to be made, in rounds"""

import uuid

from hypothesis import given
from hypothesis import strategies as st

from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.new_logs import MADE_TOGETHER, NewLogs, together


def logs(topic: str, partitions: int) -> NewLogs:
    return NewLogs(topic=topic, topic_id=uuid.UUID(int=1), partitions=range(partitions), config=LogConfig())


@given(st.lists(st.integers(1, 2 * MADE_TOGETHER), max_size=30))
def test_each_is_in_one_round_and_a_round_ends_with_the_topic_that_fills_it(sizes: list[int]) -> None:
    wanted = [logs(f"t{number}", size) for number, size in enumerate(sizes)]
    rounds = list(together(iter(wanted)))
    assert [each for some in rounds for each in some] == wanted
    filled = [sum(len(each.partitions) for each in some) for some in rounds]
    assert all(size >= MADE_TOGETHER for size in filled[:-1])
    assert all(size - len(some[-1].partitions) < MADE_TOGETHER for size, some in zip(filled, rounds, strict=True))


def test_what_is_wanted_is_asked_for_round_by_round() -> None:
    wanted = iter([logs(f"t{number}", MADE_TOGETHER) for number in range(3)])
    assert [each.topic for each in next(together(wanted))] == ["t0"]
    assert [each.topic for each in wanted] == ["t1", "t2"]
