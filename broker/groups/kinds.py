"""The kinds of groups, and what is asked of a group whatever its kind

A group is one of a few kinds that have nothing in common but a name, committed offsets and the questions here. Whoever
keeps, expires, deletes or lists goes by these; what only one kind knows is asked of its own class, found by `match`.
Another kind is another class, its records and the part of the machine that hears its requests. `classic` is the only
one so far (`tidemill.broker.groups.membership`).
"""

from abc import ABC, abstractmethod
from collections.abc import Container
from typing import ClassVar

from tidemill.broker.groups.events import CommittedOffset, GroupKind, GroupView, MemberView, Standing
from tidemill.broker.groups.records import CoordinatorRecord
from tidemill.core.error_code import ErrorCode


class Group(ABC):
    """A group of any kind; offsets without a group are a classic one that nobody is in."""

    kind: ClassVar[GroupKind]

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.last_append: int | None = None  # token of the latest record about this group
        # Durable: changed by apply only.
        self.offsets: dict[tuple[str, int], CommittedOffset] = {}

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether nobody is in: anybody may commit then, and the group may be deleted."""

    @property
    @abstractmethod
    def is_idle(self) -> bool:
        """Whether nobody is in, and nobody is about to come: what was committed gets old."""

    @property
    @abstractmethod
    def idle_since_ms(self) -> int:
        """The moment from which on its offsets get old, if that is later than their commit; -1 if nobody was in."""

    @property
    @abstractmethod
    def recorded(self) -> object | None:
        """What the log says of the group itself, besides its offsets; None if nothing."""

    @abstractmethod
    def tombstones(self) -> tuple[CoordinatorRecord, ...]:
        """What takes the group's own records out of the log; nothing if there are none."""

    @abstractmethod
    def subscribed_topics(self) -> Container[str] | None:
        """What its members read; None when nobody can say, so that it may be anything."""

    @abstractmethod
    def deletion_problem(self) -> ErrorCode:
        """Why none of its offsets may be deleted; NONE when that depends on the topic (KIP-496)."""

    @abstractmethod
    def view(self) -> GroupView:
        """The group without its members."""

    @abstractmethod
    def views(self) -> tuple[MemberView, ...]:
        """Everybody, for people to look at."""

    @abstractmethod
    def standing(self) -> Standing:
        """The group in numbers."""

    @abstractmethod
    def end(self, wall_ms: int) -> None:
        """Nothing is left of it."""
