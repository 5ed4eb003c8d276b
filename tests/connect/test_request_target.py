"""Where requests go, as Kafka's workers send them (HerderRequestHandler.java, DistributedHerder.java, Kafka 4.x)"""

from dataclasses import dataclass, field

import pytest

from tidemill.connect.request_target import (
    NO_LEADER,
    TOO_FAR,
    Decider,
    Elsewhere,
    Here,
    Hop,
    Place,
    Target,
    Unsettled,
    destination,
    hop_of,
    marked,
    target_of,
)

A, B, C = "http://a:8083", "http://b:8083", "http://c:8083"


@dataclass
class Group:
    """What a worker at A knows."""

    is_leader: bool = False
    leader_url: str | None = B
    url: str = A
    holders: dict[tuple[str, int | None], str] = field(default_factory=dict)

    def holder_url(self, connector: str, task: int | None) -> str | None:
        return self.holders.get((connector, task))


def place(target: Target, hop: Hop, group: Group, *, known: bool = True) -> Place:
    return destination(target, hop, group, lambda connector, task: known)


LEADERS = [
    ("POST", "/connectors", ""),
    ("DELETE", "/connectors/c", ""),
    ("PUT", "/connectors/c/config", ""),
    ("PATCH", "/connectors/c/config", ""),
    ("PUT", "/connectors/c/pause", ""),
    ("PUT", "/connectors/c/resume", ""),
    ("PUT", "/connectors/c/stop", ""),
    ("POST", "/connectors/c/restart", "includeTasks=true"),
    ("POST", "/connectors/c/restart", "includeTasks=false&onlyFailed=True"),
    ("PATCH", "/connectors/c/offsets", ""),
    ("DELETE", "/connectors/c/offsets", ""),
    ("POST", "/connectors/c/tasks", ""),
    ("PUT", "/connectors/c/fence", ""),
    ("PUT", "/admin/loggers/root", "scope=CLUSTER"),
]


@pytest.mark.parametrize(("method", "path", "query"), LEADERS)
def test_the_leader_decides_what_is_written(method: str, path: str, query: str) -> None:
    target = target_of(method, path, query)
    assert target.decider is Decider.LEADER
    assert target.connector == ("c" if "/c" in path.replace("/connectors", "") else "")
    assert target.moves_offsets == path.endswith("/offsets")


HOLDERS = [
    ("POST", "/connectors/a%20b/restart", "", None),
    ("POST", "/connectors/a%20b/restart", "includeTasks=yes&onlyFailed=", None),
    ("POST", "/connectors/a%20b/tasks/12/restart", "", 12),
]


@pytest.mark.parametrize(("method", "path", "query", "task"), HOLDERS)
def test_whoever_runs_an_instance_restarts_it(method: str, path: str, query: str, task: int | None) -> None:
    assert target_of(method, path, query) == Target(decider=Decider.HOLDER, connector="a b", task=task)


@pytest.mark.parametrize(
    ("method", "path", "query"),
    [
        ("GET", "/", ""),
        ("GET", "/connectors", "expand=status"),
        *(("GET", f"/connectors/c{rest}", "") for rest in ("", "/config", "/status", "/tasks", "/topics", "/offsets")),
        ("PUT", "/connectors/c/topics/reset", ""),
        ("PUT", "/connector-plugins/FileStreamSource/config/validate", ""),
        ("PUT", "/admin/loggers/root", ""),
        ("PUT", "/admin/loggers/root", "scope=worker"),
        ("POST", "/connectors/c/tasks/x/restart", ""),
        ("POST", "/connectors/c/tasks/99999999999999999999/restart", ""),
        ("POST", "/connectors/c/config", ""),
        ("POST", "/connectors/c/restart/more", ""),
        ("OPTIONS", "/connectors", ""),
        ("POST", "*", ""),
        ("GET", "", ""),
    ],
)
def test_everything_else_is_answered_by_whoever_is_asked(method: str, path: str, query: str) -> None:
    target = target_of(method, path, query)
    assert target.decider is Decider.ANYBODY
    assert place(target, Hop.LAST, Group(leader_url=None)) == Here()


@pytest.mark.parametrize(
    ("query", "hop"),
    [
        ("", Hop.FIRST),
        ("onlyFailed=true", Hop.FIRST),
        ("forward=true", Hop.SECOND),
        ("forward=false", Hop.LAST),
        ("forward=nonsense", Hop.LAST),
        ("forward", Hop.LAST),
        ("x=1&forward=True&forward=false", Hop.SECOND),
    ],
)
def test_hops_are_read_as_java_reads_them(query: str, hop: Hop) -> None:
    assert hop_of(query) is hop


def test_a_mark_replaces_the_one_before_and_keeps_everything_else() -> None:
    assert marked("", Hop.SECOND) == "forward=true"
    assert marked("a=%26%3D&b=&forward=true&a=2", Hop.LAST) == "a=%26%3D&b=&a=2&forward=false"


LEADER = Target(decider=Decider.LEADER, connector="c")
CONNECTOR = Target(decider=Decider.HOLDER, connector="c")
TASK = Target(decider=Decider.HOLDER, connector="c", task=1)


@pytest.mark.parametrize(
    ("hop", "group", "expected"),
    [
        (Hop.FIRST, Group(is_leader=True, leader_url=A), Here()),
        (Hop.LAST, Group(is_leader=True, leader_url=A), Here()),
        (Hop.FIRST, Group(), Elsewhere(url=B, hop=Hop.SECOND)),
        (Hop.SECOND, Group(), Elsewhere(url=B, hop=Hop.LAST)),
        (Hop.LAST, Group(), Unsettled(message=TOO_FAR)),
        (Hop.FIRST, Group(leader_url=None), Unsettled(message=NO_LEADER)),
        (Hop.FIRST, Group(leader_url=A + "/"), Unsettled(message=NO_LEADER)),  # named, and not in office yet
    ],
)
def test_what_the_leader_decides_goes_to_the_leader(hop: Hop, group: Group, expected: Place) -> None:
    assert place(LEADER, hop, group) == expected


@pytest.mark.parametrize(
    ("target", "hop", "group", "known", "expected"),
    [
        (TASK, Hop.FIRST, Group(holders={("c", 1): A + "/"}), True, Here()),
        (TASK, Hop.LAST, Group(holders={("c", 1): A}), True, Here()),
        (TASK, Hop.FIRST, Group(holders={("c", 0): A, ("c", 1): C}), True, Elsewhere(url=B, hop=Hop.SECOND)),
        (TASK, Hop.SECOND, Group(is_leader=True, holders={("c", 1): C}), True, Elsewhere(url=C, hop=Hop.LAST)),
        (TASK, Hop.FIRST, Group(is_leader=True, holders={("c", 1): C}), True, Elsewhere(url=C, hop=Hop.SECOND)),
        (TASK, Hop.SECOND, Group(is_leader=True), True, Unsettled(message=TOO_FAR)),
        (TASK, Hop.LAST, Group(holders={("c", 1): C}), True, Unsettled(message=TOO_FAR)),
        (TASK, Hop.LAST, Group(is_leader=True, holders={("c", 1): C}), True, Unsettled(message=TOO_FAR)),
        (CONNECTOR, Hop.FIRST, Group(holders={("c", None): A}), True, Here()),
        (CONNECTOR, Hop.FIRST, Group(), True, Elsewhere(url=B, hop=Hop.SECOND)),
        # Who does not know it may be behind: the leader says that there is none.
        (CONNECTOR, Hop.FIRST, Group(), False, Elsewhere(url=B, hop=Hop.SECOND)),
        (CONNECTOR, Hop.SECOND, Group(is_leader=True), False, Here()),
    ],
)
def test_a_restart_goes_over_the_leader_to_whoever_runs_the_instance(
    target: Target, hop: Hop, group: Group, known: bool, expected: Place
) -> None:
    assert place(target, hop, group, known=known) == expected
