"""What the workers of a group tell each other, as bytes

A join carries what one worker says of itself (`WorkerSays`), an assignment what the leader has resolved for all of them
(`Resolution`): the whole plan, so that whoever leads next goes on from it, and everybody's address. Both are JSON that
begins with the version of the format. A reader leaves what it does not know and refuses what it cannot do without;
whoever changes the meaning of something raises the version.

The protocol is named in the group beside the type `connect`, so that Apache's workers and ours never read each other's
words: a group of the one kind refuses the other.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import orjson

from tidemill.connect.herder.placement import CONNECTOR, Holder, Instance, Plan, WorkerSays
from tidemill.connect.stores import COUNT_MAX

PROTOCOL_TYPE = "connect"
PROTOCOL = "tidemill"

VERSION = 1

OFFSET_MAX = 2**63 - 1


class BadWords(ValueError):
    """These bytes say nothing that can be acted on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """What the leader tells everybody.

    `namesakes` are members under an address that another member has: they get nothing and have to go. So do
    `strangers`, who have other topics than the group, which are `topics`. `again_in_ms` is how long after this round
    there has to be another one, for which everybody asks by itself; None if nothing waits for that.
    """

    plan: Plan
    workers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # address by member
    namesakes: frozenset[str] = frozenset()
    strangers: frozenset[str] = frozenset()
    topics: tuple[str, ...] = ()
    again_in_ms: int | None = None


def encode_says(says: WorkerSays) -> bytes:
    """Write what a worker says; its member id is in the request already."""
    content = {
        "version": VERSION,
        "url": says.holder.url,
        "offset": says.config_offset,
        "holds": _by_connector(says.holds),
        "stale": _by_connector(says.stale),
        "leaving": says.leaving,
        "gone": sorted(says.gone),
        "topics": list(says.topics),
        "heard": says.heard,
    }
    return orjson.dumps(content, option=orjson.OPT_SORT_KEYS)


def decode_says(member_id: str, data: bytes) -> WorkerSays:
    """Read what a member says; raises BadWords."""
    content = _content(data)
    return WorkerSays(
        holder=Holder(member_id, _text(content, "url")),
        config_offset=_number(content, "offset"),
        holds=frozenset(_instances(content.get("holds"))),
        stale=frozenset(_instances(content.get("stale", {}))),
        leaving=content.get("leaving") is True,
        gone=frozenset(_texts(content.get("gone", []))),
        topics=tuple(_texts(content.get("topics", []))),
        heard=_number({"heard": -1, **content}, "heard"),
    )


def encode_resolution(resolution: Resolution) -> bytes:
    """Write what the leader has resolved."""
    plan = resolution.plan
    holders = sorted({*plan.assigned.values(), *plan.holders.values()})
    places = {holder: place for place, holder in enumerate(holders)}
    content = {
        "version": VERSION,
        "generation": plan.generation,
        "base": plan.base,
        "offset": plan.config_offset,
        "known": [list(holder) for holder in holders],
        "assigned": _placed(plan.assigned, places),
        "holders": _placed(plan.holders, places),
        "releasing": {member_id: _by_connector(held) for member_id, held in plan.releasing.items()},
        "left": sorted(plan.left),
        "workers": dict(resolution.workers),
        "namesakes": sorted(resolution.namesakes),
        "strangers": sorted(resolution.strangers),
        "topics": list(resolution.topics),
        "again_in_ms": resolution.again_in_ms,
    }
    return orjson.dumps(content, option=orjson.OPT_SORT_KEYS)


def decode_resolution(data: bytes) -> Resolution:
    """Read what the leader has resolved; raises BadWords."""
    content = _content(data)
    known = [_holder(each) for each in _list(content.get("known"))]
    releasing = {member_id: frozenset(_instances(held)) for member_id, held in _object(content, "releasing").items()}
    plan = Plan(
        generation=_number(content, "generation", -1),
        base=_number(content, "base", 0),
        config_offset=_number(content, "offset", -1),
        assigned=MappingProxyType(dict(_held(content, "assigned", known))),
        holders=MappingProxyType(dict(_held(content, "holders", known))),
        releasing=MappingProxyType(releasing),
        left=frozenset(_texts(content.get("left"))),
    )
    workers = _object(content, "workers")
    _texts(list(workers.values()))
    return Resolution(
        plan=plan,
        workers=MappingProxyType(workers),
        namesakes=frozenset(_texts(content.get("namesakes", []))),
        strangers=frozenset(_texts(content.get("strangers", []))),
        topics=tuple(_texts(content.get("topics", []))),
        again_in_ms=None if content.get("again_in_ms") is None else _number(content, "again_in_ms", 0),
    )


# --------------------------------------------------------------------- writing


def _by_connector(instances: Iterable[Instance]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for connector, task in sorted(instances):
        found.setdefault(connector, []).append(task)
    return found


def _placed(held: Mapping[Instance, Holder], places: Mapping[Holder, int]) -> dict[str, list[list[int]]]:
    found: dict[str, list[list[int]]] = {}
    for instance, holder in sorted(held.items()):
        found.setdefault(instance.connector, []).append([instance.task, places[holder]])
    return found


# --------------------------------------------------------------------- reading


def _content(data: bytes) -> dict[str, Any]:
    try:
        content = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise BadWords(f"not JSON: {error}") from None
    if not isinstance(content, dict):
        raise BadWords("not an object")
    if content.get("version") != VERSION:
        raise BadWords(f"of version {content.get('version')!r}; this worker understands {VERSION}")
    return content


def _text(content: Mapping[str, Any], name: str) -> str:
    value = content.get(name)
    if not isinstance(value, str):
        raise BadWords(f"{name} is not a text")
    return value


def _number(content: Mapping[str, Any], name: str, least: int = -1) -> int:
    value = content.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= OFFSET_MAX:
        raise BadWords(f"{name} is not a number that it can be")
    return value


def _object(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = content.get(name)
    if not isinstance(value, dict):
        raise BadWords(f"{name} is not an object")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise BadWords("something is not a list")
    return value


def _texts(value: Any) -> list[str]:
    texts = _list(value)
    if not all(isinstance(each, str) for each in texts):
        raise BadWords("something is not a text")
    return texts


def _holder(value: Any) -> Holder:
    texts = _texts(value)
    if len(texts) != 2:
        raise BadWords("a holder is a member and its address")
    return Holder(texts[0], texts[1])


def _task(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not CONNECTOR <= value <= COUNT_MAX:
        raise BadWords("something is not the number of a task")
    return value


def _instances(value: Any) -> Iterable[Instance]:
    if not isinstance(value, dict):
        raise BadWords("instances are not by connector")
    for connector, tasks in value.items():
        for task in _list(tasks):
            yield Instance(connector, _task(task))


def _held(content: Mapping[str, Any], name: str, known: list[Holder]) -> Iterable[tuple[Instance, Holder]]:
    for connector, rows in _object(content, name).items():
        for row in _list(rows):
            pair = _list(row)
            if len(pair) != 2:
                raise BadWords(f"{name} has something else than tasks and holders")
            task, place = _task(pair[0]), pair[1]
            if not isinstance(place, int) or isinstance(place, bool) or not 0 <= place < len(known):
                raise BadWords(f"{name} has a holder that nobody knows")
            yield Instance(connector, task), known[place]
