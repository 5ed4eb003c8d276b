"""Stored offsets and reading them back"""

from collections.abc import Callable

import pytest

from tests.connect.tasks.conftest import Cluster
from tidemill.connect.api import NotConnected
from tidemill.connect.tasks.source_offsets import SourceOffsets, load_offsets
from tidemill.core.runtime.clock import SystemClock


def test_the_last_record_of_a_partition_counts() -> None:
    offsets = SourceOffsets("c")
    offsets.take(b'["c",{"p":1}]', b'{"o":1}')
    offsets.take(b'["c",{"p":1}]', b'{"o":2}')
    offsets.take(b'["c",{"p":2}]', b'{"o":3}')
    offsets.take(b'["c",{"p":2}]', None)
    assert offsets.get({"p": 1}) == {"o": 2}
    assert offsets.get({"p": 2}) is None
    assert offsets.get({"p": 3}) is None


def test_others_and_nonsense_are_passed_over() -> None:
    offsets = SourceOffsets("c")
    for key in (b'["d",{"p":1}]', b'["c"]', b"{", None, b'"c"', b'["c",1]'):
        offsets.take(key, b'{"o":1}')
    offsets.take(b'["c",{"p":1}]', b"[1]")
    assert len(offsets) == 0


def test_two_spellings_are_one_partition_under_its_first_key() -> None:
    offsets = SourceOffsets("c")
    offsets.take(b'["c", {"b": 1, "a": 2}]', b'{"o":1}')
    assert offsets.get({"a": 2, "b": 1}) == {"o": 1}
    assert offsets.key({"a": 2, "b": 1}) == b'["c", {"b": 1, "a": 2}]'
    assert offsets.key({"z": 1, "a": 2}) == b'["c",{"z":1,"a":2}]'


@pytest.mark.integration
def test_a_topic_is_read_to_its_end(cluster: Cluster, unique: Callable[[str], str]) -> None:
    topic = cluster.create(unique("offsets"), 5)
    for n in range(2000):
        if n % 500 == 0:
            cluster.produce(topic, *((f'["c",{{"p":{m}}}]', f'{{"o":{m}}}') for m in range(n, n + 500)))
    offsets = load_offsets("c", topic, {"bootstrap.servers": cluster.bootstrap}, clock=SystemClock(), timeout_s=20)
    assert len(offsets) == 2000
    assert offsets.get({"p": 1234}) == {"o": 1234}


@pytest.mark.integration
def test_a_topic_that_is_not_there_holds_nothing(cluster: Cluster, unique: Callable[[str], str]) -> None:
    config = {"bootstrap.servers": cluster.bootstrap}
    topic = unique("offsets")
    assert len(load_offsets("c", topic, config, clock=SystemClock(), timeout_s=20)) == 0
    assert cluster.partitions(topic) == [], "reading creates nothing"


def test_an_unreachable_cluster_is_not_connected_and_told_once(capfd: pytest.CaptureFixture[str]) -> None:
    config = {"bootstrap.servers": "127.0.0.1:1"}
    with pytest.raises(NotConnected, match="cannot read the stored offsets from topic offsets"):
        load_offsets("c", "offsets", config, clock=SystemClock(), timeout_s=0.5)
    assert capfd.readouterr().err == "", "a line for each of eighty tries a second would be in the worker's log"


def test_a_stop_is_not_kept_waiting() -> None:
    config = {"bootstrap.servers": "127.0.0.1:1"}
    with pytest.raises(NotConnected, match="stopped while reading"):
        load_offsets("c", "offsets", config, clock=SystemClock(), timeout_s=60, stopping=lambda: True)
