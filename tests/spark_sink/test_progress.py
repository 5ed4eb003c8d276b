"""Positions and lag, read from what Spark reports"""

from tidemill.core.types import TopicPartition
from tidemill.spark_sink.progress import lag_of, position_of

ENDS = '{"t": {"0": 10, "1": 5}}'


def test_lag_is_what_lies_between_position_and_end() -> None:
    assert lag_of({"sources": [{"latestOffset": ENDS, "endOffset": '{"t": {"0": 7, "1": 5}}'}]}) == 3
    assert lag_of({"sources": [{"latestOffset": {"t": {"0": 4}}, "endOffset": {"t": {}}}]}) == 4
    assert lag_of({"sources": [{"latestOffset": None, "endOffset": ENDS}]}) is None
    assert lag_of(None) is None


def test_the_position_is_where_the_last_batch_ended() -> None:
    position = position_of({"sources": [{"latestOffset": None, "endOffset": ENDS}]})
    assert position is not None
    assert position.offsets == {TopicPartition("t", 0): 10, TopicPartition("t", 1): 5}
    assert position_of({"sources": [{"latestOffset": ENDS, "endOffset": None}]}) is None
    assert position_of(None) is None
