"""What is written is what Prometheus reads."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tidemill.core.runtime.exposition import LINES_PER_TURN, Family, labels, write


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 2**63))
def test_any_label_and_number_come_back(text: str, number: int) -> None:
    written = write([Family("a_total", "counter", "all of it", [(labels(b=text, c=""), number)])])
    (family,) = text_string_to_metric_families(written.decode())
    (sample,) = family.samples
    assert (family.name, family.type, family.documentation) == ("a", "counter", "all of it")
    assert (sample.name, sample.labels, sample.value) == ("a_total", {"b": text, "c": ""}, number)


def test_what_cannot_be_written_is_replaced() -> None:
    assert b'{b="?"}' in write([Family("a", "gauge", "x", [(labels(b="\ud800"), 1)])])


def test_a_family_without_samples_and_one_of_several() -> None:
    samples = [('_bucket{le="1"}', 2), ('_bucket{le="+Inf"}', 3), ("_sum", 4.5), ("_count", 3)]
    text = write([Family("none", "gauge", "n", []), Family("h", "histogram", "h", samples)]).decode()
    none, histogram = text_string_to_metric_families(text)
    assert none.samples == []
    assert [(each.name, each.value) for each in histogram.samples][-1] == ("h_count", 3.0)


def test_it_gives_way_now_and_then() -> None:
    turns: list[None] = []
    samples = [(labels(n=str(number)), number) for number in range(10 * LINES_PER_TURN)]
    written = write([Family("a", "gauge", "x", samples)], lambda: turns.append(None))
    assert len(turns) == 10
    assert written.count(b"\n") == 10 * LINES_PER_TURN + 2
