"""Which topics, groups and settings a flow carries

MirrorMaker 2's filters: a list of regular expressions to include and one to exclude, each of which has to match the
whole name. A topic also has to be neither internal nor on its way back to where it came from; heartbeats travel
whatever the lists say, since they are how a topology is found out.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tidemill.mirror.naming import ReplicationPolicy, is_cycle, is_heartbeats, is_internal


class BadPattern(ValueError):
    """A list with an unusable regular expression."""


@dataclass(frozen=True, slots=True)
class NameFilter:
    """Accepts names that match an included pattern and no excluded one."""

    include: re.Pattern[str]
    exclude: re.Pattern[str]

    @classmethod
    def of(cls, include: Iterable[str], exclude: Iterable[str]) -> "NameFilter":
        """Compile two lists; raises BadPattern naming the one at fault."""
        return cls(compile_patterns(include), compile_patterns(exclude))

    def accepts(self, name: str) -> bool:
        """Whether `name` passes."""
        return self.include.fullmatch(name) is not None and self.exclude.fullmatch(name) is None


def compile_patterns(patterns: Iterable[str]) -> re.Pattern[str]:
    """One pattern that matches what any of `patterns` does; an empty list matches nothing."""
    parts = []
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise BadPattern(f"{pattern!r} is not a regular expression: {error}") from None
        parts.append(f"(?:{pattern})")
    return re.compile("|".join(parts) or r"(?!)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSelection:
    """What decides whether a topic of the source is mirrored."""

    policy: ReplicationPolicy
    topics: NameFilter
    target_alias: str
    heartbeats: bool = True  # heartbeats.replication.enabled

    def takes(self, topic: str) -> bool:
        """Whether the flow carries `topic`."""
        if is_heartbeats(self.policy, topic):
            return self.heartbeats and not is_cycle(self.policy, topic, self.target_alias)
        return (
            self.topics.accepts(topic)
            and not is_internal(topic)
            and not is_cycle(self.policy, topic, self.target_alias)
        )
