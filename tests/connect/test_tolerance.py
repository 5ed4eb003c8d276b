"""The decision table for bad records"""

import re

import pytest

from tidemill.connect import tolerance
from tidemill.connect.tolerance import ErrorPolicy, FailedRecord, Stage, Verdict, dead_letter_headers

COLUMNS = (
    {},
    {"errors.tolerance": "all"},
    {"errors.tolerance": "ALL", "errors.deadletterqueue.topic.name": "dlq"},
)
ANSWERS = {"fail": Verdict.FAIL, "skip": Verdict.SKIP, "dead-letter": Verdict.DEAD_LETTER, "(sources": Verdict.SKIP}


def rows() -> list[tuple[Stage, bool, tuple[Verdict, ...]]]:
    """The table of the module's docstring."""
    found = []
    for line in (tolerance.__doc__ or "").splitlines():
        match = re.match(r"    ([A-Z_, ]+?)(?: \((named)\))? {2,}(.+)$", line)
        if match is None:
            continue
        verdicts = tuple(ANSWERS[cell.split()[0]] for cell in re.split(r" {2,}", match[3]))
        for name in match[1].split(", "):
            stage = Stage("TASK" + name) if name.startswith("_") else Stage(name)
            found.append((stage, bool(match[2]) or not stage.startswith(("TASK", "KAFKA_CONSUME")), verdicts))
    return found


@pytest.mark.parametrize(("stage", "names_record", "verdicts"), rows())
def test_the_table_is_true(stage: Stage, names_record: bool, verdicts: tuple[Verdict, ...]) -> None:
    for config, verdict in zip(COLUMNS, verdicts, strict=True):
        assert ErrorPolicy.from_config(config).verdict(stage, names_record=names_record) is verdict


def test_the_table_is_complete() -> None:
    assert {stage for stage, _, _ in rows()} == set(Stage)


def test_settings_are_read() -> None:
    policy = ErrorPolicy.from_config(
        {
            "errors.tolerance": "all",
            "errors.log.enable": "true",
            "errors.log.include.messages": " TRUE ",
            "errors.deadletterqueue.topic.name": "dlq",
            "errors.deadletterqueue.topic.replication.factor": "1",
            "errors.deadletterqueue.context.headers.enable": "true",
        }
    )
    assert policy == ErrorPolicy(
        tolerate_all=True,
        log_enable=True,
        log_include_messages=True,
        dead_letter_topic="dlq",
        dead_letter_replication_factor=1,
        dead_letter_headers=True,
    )
    assert ErrorPolicy.from_config({}) == ErrorPolicy()


def test_headers_are_text() -> None:
    failed = FailedRecord(topic="t", partition=1, offset=2, stage=Stage.TASK_PUT, error=ValueError("no"), where="X")
    headers = dict(dead_letter_headers(failed, "c", 3))
    assert headers["__connect.errors.offset"] == b"2"
    assert headers["__connect.errors.task.id"] == b"3"
    assert all(name.startswith("__connect.errors.") and isinstance(value, bytes) for name, value in headers.items())
    assert len(headers) == 10


def test_a_story_of_any_length_and_of_any_letters_fits_into_a_message() -> None:
    error = ValueError("\ud800" + "x" * 2_000_000)
    failed = FailedRecord(topic="t", partition=1, offset=2, stage=Stage.TRANSFORMATION, error=error, where="X")
    headers = dict(dead_letter_headers(failed, "c", 3))
    message, trace = (headers[f"__connect.errors.exception.{name}"] for name in ("message", "stacktrace"))
    assert message is not None and message.startswith(b"?xxx") and message.endswith("…".encode())
    assert trace is not None and trace.startswith(b"ValueError: ?xxx")
    assert sum(len(value or b"") for value in headers.values()) < 64 << 10


def test_a_record_is_tried_again_for_as_long_as_the_settings_say() -> None:
    assert not ErrorPolicy.from_config({}).retries(0)
    policy = ErrorPolicy.from_config({"errors.retry.timeout": "1000", "errors.retry.delay.max.ms": "700"})
    assert policy.retries(999) and not policy.retries(1000)
    assert [policy.retry_delay_ms(attempts) for attempts in (1, 2, 3, 99)] == [300, 600, 700, 700]
    assert ErrorPolicy.from_config({"errors.retry.timeout": "-1"}).retries(10**12)
