"""Which topics a sink reads: `topics`, or all that match `topics.regex`

The pattern is matched here, against the whole name, and not by librdkafka, whose expressions are POSIX ones: Java's
and Python's agree on what people write, lookaheads such as `(?!tmp-).*` included. So the list of topics is looked at
now and then; a topic that comes later is found at the next look.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Self


class TopicSelection:
    """The topics of one sink."""

    def __init__(self, names: Iterable[str] = (), pattern: str | None = None) -> None:
        self.names = frozenset(names)
        self._pattern = None if pattern is None else re.compile(pattern)

    @classmethod
    def from_config(cls, config: Mapping[str, str]) -> Self:
        """Read a connector's settings; raises ValueError when they select nothing."""
        pattern = config.get("topics.regex", "").strip()
        if pattern:
            try:
                return cls(pattern=pattern)
            except re.error as error:
                raise ValueError(f"topics.regex: {pattern!r} is not a pattern: {error}") from None
        names = [name.strip() for name in config.get("topics", "").split(",") if name.strip()]
        if not names:
            raise ValueError("a sink needs topics or topics.regex")
        return cls(names)

    @property
    def by_pattern(self) -> bool:
        """Whether the cluster's list of topics has to be looked at."""
        return self._pattern is not None

    def matching(self, existing: Iterable[str]) -> frozenset[str]:
        """The topics to read, of those there are; Kafka's own are never meant by a pattern."""
        pattern = self._pattern
        if pattern is None:
            return self.names
        return frozenset(name for name in existing if not name.startswith("__") and pattern.fullmatch(name))
