"""Which worker of a group a request of the REST API is for

Every worker answers every request, but not every worker decides it. What is written into the config topic, and offsets
of stopped connectors, is the leader's: one worker decides on a state that only it changes. A restart of one instance
belongs to the worker that runs it. Everything else, reads above all, is answered from what each worker has read itself.

`destination` gives Kafka's rule of two hops (HerderRequestHandler): a request as it comes from a user may be sent on,
marked `forward=true`; who gets that may send it on once more, marked `forward=false`; who gets that has to decide it.
The road goes over the leader, who knows who runs what. Two differences from Kafka: pause, resume and cluster-wide log
levels are the leader's here, because it alone may write what they write; and what has no answer now because workers
come and go is `Unsettled`, to be asked again a moment later, where Kafka's worker would answer 409.

Pure: a request and what is known of the group in, a place out.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias
from urllib.parse import parse_qsl, unquote, urlencode

FORWARD: Final = "forward"
"""The query parameter that counts the hops, as Kafka's workers name it."""


class Membership(Protocol):
    """What is known of the group, at this moment."""

    @property
    def is_leader(self) -> bool:
        """Whether this worker is in office: it may write the config topic."""
        ...

    @property
    def leader_url(self) -> str | None:
        """Where the leader's REST API is; None while nobody is known to lead."""
        ...

    @property
    def url(self) -> str:
        """Where others reach this worker."""
        ...

    def holder_url(self, connector: str, task: int | None) -> str | None:
        """Where the worker is that runs a task, or with None the connector itself; None while nobody does."""
        ...


class Decider(enum.Enum):
    """Who decides a request."""

    ANYBODY = enum.auto()
    LEADER = enum.auto()
    HOLDER = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a request is about, as far as it matters where it goes."""

    decider: Decider
    connector: str = ""
    task: int | None = None
    moves_offsets: bool = False  # it writes the offsets topic, too
    deletes: bool = False  # the connector itself


class Hop(enum.Enum):
    """How far a request has come, by its query parameter `forward`."""

    FIRST = None  # from a user
    SECOND = "true"
    LAST = "false"

    @property
    def next(self) -> "Hop | None":
        """The hop behind this one."""
        return {Hop.FIRST: Hop.SECOND, Hop.SECOND: Hop.LAST}.get(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """This worker decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """Another worker is to be asked, with the request marked as on this hop."""

    url: str
    hop: Hop


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsettled:
    """Nobody is known to decide it now; `message` is what Kafka's worker says then."""

    message: str


Place: TypeAlias = Here | Elsewhere | Unsettled

NO_LEADER: Final = (
    "Cannot complete request momentarily due to no known leader URL, likely because a rebalance was underway."
)
TOO_FAR: Final = "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"

_ANYBODY: Final = Target(decider=Decider.ANYBODY)

_LEADERS_OWN: Final = {
    ("PUT", "config"),
    ("PATCH", "config"),
    ("PUT", "pause"),
    ("PUT", "resume"),
    ("PUT", "stop"),
    ("PATCH", "offsets"),
    ("DELETE", "offsets"),
    ("POST", "tasks"),
    ("PUT", "fence"),
}
"""Verbs and last parts of `/connectors/{name}/…`."""


def target_of(method: str, path: str, query: str) -> Target:
    """Whom a request is for; `path` is encoded and ends without a slash.

    >>> target_of("PUT", "/connectors/a%2Fb/config", "").decider, target_of("GET", "/connectors/a", "").decider
    (<Decider.LEADER: 2>, <Decider.ANYBODY: 1>)
    >>> target_of("POST", "/connectors/a%2Fb/tasks/3/restart", "")
    Target(decider=<Decider.HOLDER: 3>, connector='a/b', task=3, moves_offsets=False, deletes=False)
    """
    match method, path.split("/")[1:]:
        case "POST", ["connectors"]:
            return Target(decider=Decider.LEADER)
        case "DELETE", ["connectors", name]:
            return Target(decider=Decider.LEADER, connector=unquote(name), deletes=True)
        case "POST", ["connectors", name, "restart"]:
            several = any(_is_true(query, flag) for flag in ("includeTasks", "onlyFailed"))
            return Target(decider=Decider.LEADER if several else Decider.HOLDER, connector=unquote(name))
        case "POST", ["connectors", name, "tasks", task, "restart"] if _is_number(task):
            return Target(decider=Decider.HOLDER, connector=unquote(name), task=int(task))
        case _, ["connectors", name, last] if (method, last) in _LEADERS_OWN:
            return Target(decider=Decider.LEADER, connector=unquote(name), moves_offsets=last == "offsets")
        case "PUT", ["admin", "loggers", _] if _first(query, "scope").lower() == "cluster":
            return Target(decider=Decider.LEADER)
        case _:
            return _ANYBODY


def hop_of(query: str) -> Hop:
    """How far a request has come. As for Java, what is not `true` is false.

    >>> hop_of("expand=info"), hop_of("forward=TRUE"), hop_of("forward=")
    (<Hop.FIRST: None>, <Hop.SECOND: 'true'>, <Hop.LAST: 'false'>)
    """
    given = [value for name, value in _pairs(query) if name == FORWARD]
    if not given:
        return Hop.FIRST
    return Hop.SECOND if given[0].lower() == "true" else Hop.LAST


def marked(query: str, hop: Hop) -> str:
    """The query of a request that goes on to another worker.

    >>> marked("onlyFailed=true&forward=true", Hop.LAST)
    'onlyFailed=true&forward=false'
    """
    return urlencode([*(pair for pair in _pairs(query) if pair[0] != FORWARD), (FORWARD, str(hop.value))])


def destination(target: Target, hop: Hop, group: Membership, exists: Callable[[str, int | None], bool]) -> Place:
    """Where a request goes from here; `exists` says whether this worker knows of a connector or a task."""
    if target.decider is Decider.ANYBODY:
        return Here()
    if target.decider is Decider.LEADER:
        return Here() if group.is_leader else _to_leader(hop, group)
    holder = group.holder_url(target.connector, target.task)
    if holder is not None and same(holder, group.url):
        return Here()
    if not group.is_leader:
        return _to_leader(hop, group)
    if not exists(target.connector, target.task):
        return Here()  # which says so
    if holder is None or hop.next is None:
        return Unsettled(message=TOO_FAR)
    return Elsewhere(url=holder, hop=hop.next)


def _to_leader(hop: Hop, group: Membership) -> Place:
    if hop.next is None:
        return Unsettled(message=TOO_FAR)
    if group.leader_url is None or same(group.leader_url, group.url):  # it leads, and is not in office yet
        return Unsettled(message=NO_LEADER)
    return Elsewhere(url=group.leader_url, hop=hop.next)


def same(url: str, other: str) -> bool:
    """Whether two addresses are the same worker's: Java's workers end theirs with a slash.

    >>> same("http://a:8083/", "http://a:8083"), same("http://a:8083", "http://b:8083")
    (True, False)
    """
    return url.rstrip("/") == other.rstrip("/")


def _pairs(query: str) -> list[tuple[str, str]]:
    return parse_qsl(query, keep_blank_values=True)


def _first(query: str, name: str) -> str:
    return next((value for key, value in _pairs(query) if key == name), "")


def _is_true(query: str, name: str) -> bool:
    return _first(query, name).strip().lower() == "true"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10
