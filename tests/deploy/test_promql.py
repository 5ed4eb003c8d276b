"""The reader of queries finds what is wrong with them"""

import pytest

from tests.deploy.promql import NotUnderstood, read

LABELS = {
    "up": frozenset[str](),
    "bytes_total": frozenset({"topic"}),
    "lag": frozenset({"topic", "partition"}),
    "time_bucket": frozenset({"request", "le"}),
}


def problems(expression: str) -> list[str]:
    return [each.partition(":")[0] for each in read(expression, LABELS).problems]


@pytest.mark.parametrize(
    ("expression", "metrics", "result"),
    [
        ("1 - 0.5", set(), None),
        ('rate(bytes_total{topic=~"$topic", job!="x"}[5m])', {"bytes_total"}, {"topic", "job", "instance"}),
        ("sum by (topic) (rate(bytes_total[$__rate_interval]))", {"bytes_total"}, {"topic"}),
        ("sum(lag) without (partition, job)", {"lag"}, {"topic", "instance"}),
        ("topk(5, max by (topic) (lag)) > 100", {"lag"}, {"topic"}),
        ("histogram_quantile(0.99, sum by (le, request) (rate(time_bucket[1m])))", {"time_bucket"}, {"request"}),
        ("(time() - max by (topic) (lag)) / 60 and on (topic) sum by (topic) (bytes_total)", {"lag", "bytes_total"},
         {"topic"}),
        ("lag offset 5m == bool 0", {"lag"}, {"topic", "partition", "job", "instance"}),
        ("absent(up)", {"up"}, set()),
        ("sum(lag) or sum(bytes_total)", {"lag", "bytes_total"}, set()),
        ("-lag * on (topic) group_left sum by (topic) (bytes_total)", {"lag", "bytes_total"},
         {"topic", "partition", "job", "instance"}),
    ],
)  # fmt: skip
def test_what_is_read_and_given(expression: str, metrics: set[str], result: set[str] | None) -> None:
    found = read(expression, LABELS)
    assert found.problems == ()
    assert (found.metrics, found.result) == (metrics, result)


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("sum(bites_total)", "there is no metric bites_total"),
        ('lag{group="g"}', "lag has no label group"),
        ("sum by (group) (lag)", "by (group) has no label group"),
        ("sum by (topic) (lag) / on (partition) lag", "on(partition) has no label partition"),
        ("histogram_quantile(0.9, sum by (request) (time_bucket))", "histogram_quantile has no label le"),
        ("lag / bytes_total", "['instance', 'job', 'partition', 'topic'] / ['instance', 'job', 'topic'] match nothing"),
    ],
)
def test_what_is_wrong_is_named(expression: str, complaint: str) -> None:
    assert problems(expression) == [complaint]


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "sum(lag",
        "sum(lag))",
        "lag{topic}",
        "rat(lag[5m])",
        "lag >",
        "lag lag",
        'lag{topic="}',
        "lag[5m:1m]",
        "sum by lag",
    ],
)
def test_what_is_no_query_is_refused(expression: str) -> None:
    with pytest.raises(NotUnderstood):
        read(expression, LABELS)
