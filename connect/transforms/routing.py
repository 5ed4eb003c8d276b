"""RegexRouter, TimestampRouter and TopicNameMatches: all about topics"""

from dataclasses import replace

from tidemill.connect.api import InvalidConfig, Predicate, Record
from tidemill.connect.transforms.java_dates import compile_format
from tidemill.connect.transforms.java_regex import compile_java, compile_replacement
from tidemill.connect.transforms.options import RegexRouterOptions, TimestampRouterOptions, TopicNameMatchesOptions
from tidemill.connect.transforms.role import RecordTransform


class RegexRouter(RecordTransform):
    """Renames topics that an expression matches as a whole."""

    uses_key = uses_value = False

    def __init__(self, options: RegexRouterOptions) -> None:
        try:
            self._pattern = compile_java(options.regex)
        except ValueError as error:
            raise InvalidConfig("regex", str(error)) from error
        try:
            self._replacement = compile_replacement(options.replacement, self._pattern)
        except ValueError as error:
            raise InvalidConfig("replacement", str(error)) from error

    def one(self, record: Record) -> Record:
        """Replace the first match, which Java looks for anew once the whole has matched."""
        topic = record.topic or ""
        if not self._pattern.fullmatch(topic):
            return record
        return replace(record, topic=self._pattern.sub(self._replacement, topic, count=1))


class TimestampRouter(RecordTransform):
    """Names topics after the time of a record."""

    uses_key = uses_value = False

    def __init__(self, options: TimestampRouterOptions) -> None:
        self._topic_format = options.topic_format
        try:
            self._write = compile_format(options.timestamp_format)
        except ValueError as error:
            raise InvalidConfig("timestamp.format", str(error)) from error

    def one(self, record: Record) -> Record:
        """Put topic and time into the format."""
        if record.timestamp_ms is None:
            raise ValueError("Timestamp missing on record")
        topic = self._topic_format.replace("${topic}", record.topic or "")
        return replace(record, topic=topic.replace("${timestamp}", self._write(record.timestamp_ms)))


class TopicNameMatches(Predicate):
    """Holds for the topics that an expression matches as a whole."""

    uses_key = uses_value = False

    def __init__(self, options: TopicNameMatchesOptions) -> None:
        try:
            self._pattern = compile_java(options.pattern)
        except ValueError as error:
            raise InvalidConfig("pattern", str(error)) from error

    def test(self, record: Record) -> bool:
        """Look at the topic."""
        return self._pattern.fullmatch(record.topic or "") is not None
