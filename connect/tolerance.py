"""What becomes of a record that cannot be processed: one decision table

Kafka Connect's rules. A stage is where the record failed; `errors.tolerance` says whether a bad record may be left
out; a sink can send what it leaves out to a dead-letter topic. An error is tolerable only where the record itself is
to blame: a converter that cannot read it, a target that refuses it by name (`PartialFailure`), a record too large to
produce. An error of a whole call (`poll`, `put`) speaks of the task, never of one record, and always fails it; so does
a refusal that would hit every record alike, such as a missing permission.

    stage             tolerance=none   tolerance=all, no DLQ   tolerance=all, DLQ (sinks)
    KEY_CONVERTER     fail             skip                    dead-letter
    VALUE_CONVERTER   fail             skip                    dead-letter
    HEADER_CONVERTER  fail             skip                    dead-letter
    TRANSFORMATION    fail             skip                    dead-letter
    TASK_PUT (named)  fail             skip                    dead-letter
    KAFKA_PRODUCE     fail             skip                    (sources have none)
    TASK_PUT, _POLL   fail             fail                    fail
    KAFKA_CONSUME     fail             fail                    fail

Before that decision a record may be tried again: one that a sink refuses with `RetryAfter` is offered until
`errors.retry.timeout` is over, with pauses that double up to `errors.retry.delay.max.ms`. A whole call that asks for
patience (`RetryAfter` from `put` or `poll`) is repeated for as long as it asks, as Kafka Connect does.
"""

import enum
import traceback
from collections.abc import Mapping
from dataclasses import dataclass

from tidemill.connect.api import Headers

HEADER_PREFIX = "__connect.errors."
RETRY_FIRST_MS = 300  # as Kafka Connect
RETRY_DELAY_MAX_MS = 60_000
DEAD_LETTER_REPLICATION_FACTOR = 3  # Kafka's default
STORY_MAX = 8_000  # characters of a dead letter's header: an error may quote the whole record


class Stage(enum.StrEnum):
    """Where a record failed, as the headers of a dead letter name it."""

    TASK_POLL = "TASK_POLL"
    TASK_PUT = "TASK_PUT"
    TRANSFORMATION = "TRANSFORMATION"
    KEY_CONVERTER = "KEY_CONVERTER"
    VALUE_CONVERTER = "VALUE_CONVERTER"
    HEADER_CONVERTER = "HEADER_CONVERTER"
    KAFKA_PRODUCE = "KAFKA_PRODUCE"
    KAFKA_CONSUME = "KAFKA_CONSUME"


class Verdict(enum.Enum):
    """What to do with a record that failed."""

    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "dead-letter"


TOLERABLE = frozenset(
    {
        Stage.KEY_CONVERTER,
        Stage.VALUE_CONVERTER,
        Stage.HEADER_CONVERTER,
        Stage.TRANSFORMATION,
        Stage.TASK_PUT,
        Stage.KAFKA_PRODUCE,
    }
)
"""Stages in which one record can be to blame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorPolicy:
    """The `errors.*` settings of a connector."""

    tolerate_all: bool = False
    log_enable: bool = False
    log_include_messages: bool = False
    dead_letter_topic: str = ""
    dead_letter_replication_factor: int = DEAD_LETTER_REPLICATION_FACTOR
    dead_letter_headers: bool = False
    retry_timeout_ms: int = 0  # -1: for ever
    retry_delay_max_ms: int = RETRY_DELAY_MAX_MS

    @classmethod
    def from_config(cls, config: Mapping[str, str]) -> "ErrorPolicy":
        """Read the settings of a connector that was validated before."""
        topic = "errors.deadletterqueue.topic."
        factor = config.get(topic + "replication.factor", str(DEAD_LETTER_REPLICATION_FACTOR))
        return cls(
            tolerate_all=config.get("errors.tolerance", "none").lower() == "all",
            log_enable=_flag(config, "errors.log.enable"),
            log_include_messages=_flag(config, "errors.log.include.messages"),
            dead_letter_topic=config.get(topic + "name", ""),
            dead_letter_replication_factor=int(factor),
            dead_letter_headers=_flag(config, "errors.deadletterqueue.context.headers.enable"),
            retry_timeout_ms=int(config.get("errors.retry.timeout", "0")),
            retry_delay_max_ms=int(config.get("errors.retry.delay.max.ms", str(RETRY_DELAY_MAX_MS))),
        )

    def retries(self, failing_ms: int) -> bool:
        """Whether a record that has been failing for so long is tried once more."""
        return self.retry_timeout_ms < 0 or failing_ms < self.retry_timeout_ms

    def retry_delay_ms(self, attempts: int) -> int:
        """The pause after so many attempts."""
        return int(min(self.retry_delay_max_ms, RETRY_FIRST_MS * 2 ** min(attempts - 1, 30)))

    def verdict(self, stage: Stage, *, names_record: bool = True) -> Verdict:
        """Decide; `names_record` tells whether the error speaks of one record."""
        if not self.tolerate_all or not names_record or stage not in TOLERABLE:
            return Verdict.FAIL
        if self.dead_letter_topic and stage is not Stage.KAFKA_PRODUCE:
            return Verdict.DEAD_LETTER
        return Verdict.SKIP


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRecord:
    """A record that was left out, and why."""

    topic: str
    partition: int
    offset: int
    stage: Stage
    error: Exception
    where: str  # the class that failed, such as the converter


def dead_letter_headers(failed: FailedRecord, connector: str, task: int) -> Headers:
    """The headers that tell a dead letter's story, all of them text."""
    trace = "".join(traceback.format_exception(failed.error))
    story = {
        "topic": failed.topic,
        "partition": str(failed.partition),
        "offset": str(failed.offset),
        "connector.name": connector,
        "task.id": str(task),
        "stage": failed.stage.value,
        "class.name": failed.where,
        "exception.class.name": f"{type(failed.error).__module__}.{type(failed.error).__qualname__}",
        "exception.message": str(failed.error),
        "exception.stacktrace": trace,
    }
    return tuple((HEADER_PREFIX + name, _told(text)) for name, text in story.items())


def _told(text: str) -> bytes:
    """The text, cut where it is too long for a header; what UTF-8 cannot carry is replaced."""
    cut = text if len(text) <= STORY_MAX else text[: STORY_MAX - 1] + "…"
    return cut.encode("utf-8", "replace")


def _flag(config: Mapping[str, str], name: str) -> bool:
    return config.get(name, "false").strip().lower() == "true"
