"""Causes found in what Spark says"""

import pytest

from tidemill.core.errors import CorruptMessage, TopicAuthorizationFailed
from tidemill.spark_sink.changes import BadChange
from tidemill.spark_sink.cluster import ClusterRefused, ClusterUnreachable
from tidemill.spark_sink.failures import JvmFailed, failure_in, failure_of
from tidemill.spark_sink.fetch import FetchFailed
from tidemill.spark_sink.offsets import TopicRecreated
from tidemill.spark_sink.standstill import Stalled
from tidemill.spark_sink.tables.delta import TableUnusable

JAVA = """[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed
when Python streaming data source perform latestOffset: Traceback (most recent call last):
  File "runner.py", line 5, in main
    raise error
tidemill.spark_sink.offsets.TopicRecreated: topic t was deleted and created again
 SQLSTATE: 38000
\tat org.apache.spark.Thing: SourceStopped.java
"""


def test_the_cause_of_a_python_failure_inside_a_java_exception() -> None:
    failure = failure_in(JAVA)
    assert failure is not None
    assert (failure.kind, str(failure)) == (TopicRecreated, "topic t was deleted and created again")
    assert failure.needs_decision and failure.is_ours
    assert failure_of(RuntimeError(JAVA)) == failure


def test_our_own_errors_keep_their_text() -> None:
    assert failure_of(TopicRecreated("gone")).needs_decision
    passing = failure_of(TableUnusable("disk full\nmore"))
    assert (str(passing), passing.needs_decision) == ("disk full", False)


@pytest.mark.parametrize(
    ("kind", "permanent"),
    [
        (CorruptMessage, True),  # the bytes stay as they are
        (TopicAuthorizationFailed, True),
        (ClusterRefused, True),
        (BadChange, True),
        (ClusterUnreachable, False),
        (FetchFailed, False),
    ],
)
def test_the_class_says_whether_it_would_come_again(kind: type[Exception], permanent: bool) -> None:
    text = f"Traceback (most recent call last):\n  File x\n{kind.__module__}.{kind.__name__}: t-0: why\n\n\tat org.x"
    for found in (failure_of(kind("t-0: why")), failure_of(RuntimeError(text))):
        assert (found.kind, str(found), found.needs_decision) == (kind, "t-0: why", permanent)


def test_only_errors_of_ours_are_taken_for_a_cause() -> None:
    for line in (
        "tidemill.spark_sink.offsets.StreamOffset: no error",
        "tidemill.spark_sink.nowhere.Failed: no module",
        "somebody.offsets.DataLoss: not ours",
    ):
        assert failure_in(f"{line}\n\tat org.apache.spark.Thing") is None


def test_what_we_do_not_know_may_be_tried_again() -> None:
    failure = failure_of(KeyError("x"))
    assert (failure.kind, str(failure), failure.needs_decision) == (KeyError, "'x'", False)
    assert not failure.is_ours
    assert "KeyError" in failure.detail
    assert failure_in("java.lang.NullPointerException: no") is None
    assert len(str(failure_of(ValueError("x" * 9000)))) == 500


@pytest.mark.parametrize(
    "text",
    [
        "[STREAM_FAILED] Query [id = 1] terminated with exception: null\n\njava.lang.StackOverflowError\n\tat x",
        "An error occurred while calling o1.toArrow.: java.lang.OutOfMemoryError: Java heap space",
    ],
)
def test_a_jvm_that_ran_out_of_something_is_not_used_again(text: str) -> None:
    failure = failure_of(RuntimeError(text))
    assert failure.kind is JvmFailed
    assert failure.needs_new_jvm and not failure.needs_decision
    assert str(failure).startswith("the Spark JVM failed with java.lang.")
    assert not failure_of(RuntimeError("java.lang.NullPointerException: x")).needs_new_jvm


def test_a_query_that_stands_still_needs_a_new_jvm_too() -> None:
    failure = failure_of(Stalled("5 records wait"))
    assert (failure.needs_new_jvm, failure.is_ours, str(failure)) == (True, True, "5 records wait")
