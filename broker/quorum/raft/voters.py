"""Voters: whose word counts in the metadata quorum

A voter is a node and, where it is known, the directory that holds its log: a node that comes back with an empty disk is
another voter, for it has forgotten what it promised (KIP-853). Sets that are configured (`controller.quorum.voters`)
know no directories: ZERO_UUID stands for any.

A set becomes another one by one voter at a time, so that each majority of the one has a member in every majority of
the other.
"""

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from tidemill.core.config import ConfigError, parse_address
from tidemill.core.types import ZERO_UUID

DEFAULT_LISTENER = "CONTROLLER"
"""The name under which a configured address is kept until the voter itself says what its listeners are."""


class VoterEndpoint(NamedTuple):
    """Where a voter listens for the quorum."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Voter:
    """One voter; `kraft_versions` are the least and the greatest version of the quorum's records that it can read."""

    node_id: int
    directory_id: uuid.UUID = ZERO_UUID
    endpoints: tuple[VoterEndpoint, ...] = ()
    kraft_versions: tuple[int, int] = (0, 1)

    def is_at(self, directory_id: uuid.UUID) -> bool:
        """Whether it may be the one with this directory; what either side does not know is any."""
        return self.directory_id in (directory_id, ZERO_UUID) or directory_id == ZERO_UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class VoterSet:
    """All voters, by ascending node id, each id once; an empty set is that of a node that has not heard of any."""

    voters: tuple[Voter, ...] = ()

    def __post_init__(self) -> None:
        ids = [each.node_id for each in self.voters]
        if ids != sorted(set(ids)):
            raise ValueError(f"voters are in the order of their ids, each once: {ids}")

    @classmethod
    def of(cls, voters: Iterable[Voter]) -> "VoterSet":
        """The set of these, in any order; raises ValueError where an id occurs twice."""
        return cls(voters=tuple(sorted(voters, key=lambda each: each.node_id)))

    def __len__(self) -> int:
        return len(self.voters)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self.voters)

    def __contains__(self, node_id: object) -> bool:
        return node_id in [each.node_id for each in self.voters]

    @property
    def ids(self) -> tuple[int, ...]:
        """The node ids, ascending."""
        return tuple(each.node_id for each in self.voters)

    @property
    def majority(self) -> int:
        """How many are more than half."""
        return len(self.voters) // 2 + 1

    def get(self, node_id: int) -> Voter | None:
        """The voter with this id, or None."""
        for each in self.voters:
            if each.node_id == node_id:
                return each
        return None

    def is_voter(self, node_id: int, directory_id: uuid.UUID = ZERO_UUID) -> bool:
        """Whether the node, with this directory if it is given, is one of them."""
        voter = self.get(node_id)
        return voter is not None and voter.is_at(directory_id)

    def has_majority(self, node_ids: Iterable[int]) -> bool:
        """Whether the voters among these nodes are more than half of all voters."""
        return len(set(node_ids).intersection(self.ids)) >= self.majority

    def adding(self, voter: Voter) -> "VoterSet":
        """With one more; raises ValueError if the id is there."""
        return VoterSet.of((*self.voters, voter))

    def removing(self, node_id: int) -> "VoterSet":
        """Without one; raises KeyError if it is not there."""
        if node_id not in self:
            raise KeyError(node_id)
        return VoterSet(voters=tuple(each for each in self.voters if each.node_id != node_id))

    def updating(self, voter: Voter) -> "VoterSet":
        """With what is new about one that is there; raises KeyError if it is not, or has another directory."""
        before = self.get(voter.node_id)
        if before is None or not before.is_at(voter.directory_id):
            raise KeyError(voter.node_id)
        if voter.directory_id == ZERO_UUID:
            voter = replace(voter, directory_id=before.directory_id)
        return VoterSet(voters=tuple(voter if each.node_id == voter.node_id else each for each in self.voters))

    def overlaps(self, other: "VoterSet") -> bool:
        """Whether it is one change at most from here to there: no voter, or one that came or one that went.

        A directory that becomes known is no change; one that becomes another is two: a voter went and one came.
        """
        gone = sum(not other.is_voter(each.node_id, each.directory_id) for each in self.voters)
        come = sum(not self.is_voter(each.node_id, each.directory_id) for each in other.voters)
        return gone + come <= 1


def parse_voters(text: str, listener: str = DEFAULT_LISTENER) -> VoterSet:
    """Read `controller.quorum.voters`, as in `1@first:9093,2@second:9093`; raises ConfigError with every mistake.

    >>> parse_voters("2@[::1]:9093,1@first:9093").ids
    (1, 2)
    """
    voters: dict[int, Voter] = {}
    problems: list[str] = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        number, sign, address = part.partition("@")
        if not sign or not (number.isascii() and number.isdecimal()):
            problems.append(f"controller.quorum.voters: expected ID@HOST:PORT, got {part!r}")
            continue
        try:
            host, port = parse_peer(address)
        except ConfigError as error:
            problems.append(f"controller.quorum.voters: {part!r}: {error}")
            continue
        node_id = int(number)
        if node_id in voters:
            problems.append(f"controller.quorum.voters: {node_id} is there twice")
        voters[node_id] = Voter(node_id=node_id, endpoints=(VoterEndpoint(listener, host, port),))
    if problems:
        raise ConfigError(problems)
    return VoterSet.of(voters.values())


def parse_bootstrap_servers(text: str) -> tuple[tuple[str, int], ...]:
    """Read `controller.quorum.bootstrap.servers`, a list of HOST:PORT; raises ConfigError with every mistake.

    >>> parse_bootstrap_servers("first:9093, [::1]:9093")
    (('first', 9093), ('::1', 9093))
    """
    found: list[tuple[str, int]] = []
    problems: list[str] = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        try:
            address = parse_peer(part)
        except ConfigError as error:
            problems.append(f"controller.quorum.bootstrap.servers: {error}")
            continue
        if address not in found:
            found.append(address)
    if problems:
        raise ConfigError(problems)
    return tuple(found)


def parse_peer(text: str) -> tuple[str, int]:
    """HOST:PORT of somebody who can be called, so neither is empty or 0; raises ConfigError."""
    host, port = parse_address(text)
    if not host or not port:
        raise ConfigError([f"Expected HOST:PORT that can be called, got {text!r}"])
    return host, port
