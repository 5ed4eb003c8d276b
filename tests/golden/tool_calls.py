"""What a tool of the field asks of a Connect worker, as data

A tool's commands are the requests in order, each with the status codes with which the tool goes on and what it reads
out of the answer with which types. A worker serves the tool when every call is answered by a code it takes and a body
it can read. The tools stand in `kcctl`, `terraform_provider` and `strimzi` beside this file.

`reads` is a pattern: a type, None or a literal stands for itself, a tuple for alternatives, a dictionary for an object
(`?` after a name: may be absent; other fields do not matter), a list for a list of it, `Each` for an object of any
names, `Only` for an object without other fields, a function for what it says yes to.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

# -------------------------------------------------------------------- patterns


@dataclass(frozen=True, slots=True)
class Each:
    """An object whose names are data and whose values are all like `value`."""

    value: Any


@dataclass(frozen=True, slots=True)
class Only:
    """An object with these fields and no other."""

    fields: Mapping[str, Any]


def mismatches(pattern: Any, value: Any, where: str = "answer") -> Iterator[str]:
    """Where `value` is not what the tool can read."""
    match pattern:
        case tuple():
            if all(any(mismatches(each, value)) for each in pattern):
                yield f"{where} is {value!r}"
        case type():
            if type(value) is not pattern:
                yield f"{where} is {value!r}, not {pattern.__name__}"
        case dict() | Only():
            yield from _in_object(pattern, value, where)
        case Each() | [_]:
            wanted, kind = (pattern.value, dict) if isinstance(pattern, Each) else (pattern[0], list)
            if not isinstance(value, kind):
                yield f"{where} is {value!r}, not a {kind.__name__}"
                return
            for name, each in value.items() if isinstance(value, dict) else enumerate(value):
                yield from mismatches(wanted, each, f"{where}.{name}")
        case _ if callable(pattern):
            if not pattern(value):
                yield f"{where} is {value!r}: {pattern.__doc__}"
        case _:
            if value != pattern:
                yield f"{where} is {value!r}, not {pattern!r}"


def _in_object(pattern: Any, value: Any, where: str) -> Iterator[str]:
    fields: Mapping[str, Any] = pattern.fields if isinstance(pattern, Only) else pattern
    if not isinstance(value, dict):
        yield f"{where} is {value!r}, not an object"
        return
    for name, wanted in fields.items():
        plain = name.removesuffix("?")
        if plain in value:
            yield from mismatches(wanted, value[plain], f"{where}.{plain}")
        elif plain == name:
            yield f"{where} has no {name}"
    if isinstance(pattern, Only) and value.keys() - {name.removesuffix("?") for name in fields}:
        yield f"{where} has {sorted(value)}"


# ----------------------------------------------------------------------- calls


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request; sent again until the answer is as `until` says, by the place of a value or as `status`."""

    method: str
    path: str
    body: Any = None
    taken: tuple[int, ...]
    reads: Any
    until: Mapping[str, Any] = field(default_factory=dict)
    names_are_data: bool = False  # of the answer's object


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool: where its calls were read, the headers it sends, its commands in an order in which they make sense."""

    name: str
    source: str
    headers: Mapping[str, str]
    commands: Mapping[str, tuple[Call, ...]]

    def endpoints(self) -> list[str]:
        """Every method and path it uses, without what varies."""
        found = []
        for call in (call for calls in self.commands.values() for call in calls):
            path = call.path.partition("?")[0].rstrip("/") or "/"
            parts = path.split("/")
            if len(parts) > 2:
                parts[2] = {"connectors": "{c}", "connector-plugins": "{p}", "admin": "loggers"}[parts[1]]
            if len(parts) > 3 and parts[1] == "admin":
                parts[3] = "{l}"
            if len(parts) > 4 and parts[3] == "tasks":
                parts[4] = "{n}"
            found.append(f"{call.method} {'/'.join(parts) or '/'}")
        return sorted(dict.fromkeys(found), key=lambda each: each.partition(" ")[::-1])


def call(
    method: str, path: str, body: Any = None, *, taken: tuple[int, ...] = (200,), reads: Any = None, **more: Any
) -> Call:
    """A call; one that takes no answer reads nothing."""
    return Call(method=method, path=path, body=body, taken=taken, reads=reads, **more)


TEXT = (str, None)
ERROR = {"error_code": int, "message": str}
TEXT_CONVERTER = "org.apache.kafka.connect.storage.StringConverter"
LINES = {"value.converter": TEXT_CONVERTER}
SOURCE = {"connector.class": "FileStreamSource", "file": "{folder}/in.txt", "topic": "{folder.name}-lines", **LINES}
SINK = {"connector.class": "FileStreamSink", "file": "{folder}/out.txt", "topics": "{folder.name}-lines", **LINES}
BROKEN = {**SINK, "value.converter": "org.apache.kafka.connect.json.JsonConverter"}
"""Its task fails, since the lines are no JSON."""

SOURCE_PARTITION = {"filename": "{folder}/in.txt"}
SINK_PARTITION = {"kafka_topic": SINK["topics"], "kafka_partition": 0}
ONE_TASK = {"connector.state": "RUNNING", "tasks.0.state": "RUNNING"}
STOPPED = {"connector.state": "STOPPED", "tasks": []}
FAILED_TASK = {"connector.state": "RUNNING", "tasks.0.state": "FAILED"}


def answered(status: int) -> Mapping[str, Any]:
    """To be sent again until it has this status."""
    return {"status": status}
