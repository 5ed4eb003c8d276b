"""What workers tell each other in Kafka's protocol `sessioned`, as bytes

Kafka's own Connect workers have three subprotocols of the group type `connect`. The newest, `sessioned`, is told apart
from the one before by its version only: it says that what one worker asks of another is signed (KIP-507). A join tells
of one worker its address, how far it has read the config topic, and what it was assigned (`WorkerState`); an assignment
tells one worker what comes to it, what goes, and when there is to be another round (`Assignment`). Unlike with our own
words nobody but the leader hears who has the rest.

    string = int16 length, UTF-8    bytes = int32 length or -1    array = int32 count or -1
    state       int16 version, string url, int64 config offset, bytes assignment
    assignment  int16 version, int16 error, string leader, string leader's url, int64 config offset,
                [string connector, [int32 task]] assigned, the same of revoked, int32 delay in ms

Task -1 is the connector itself. A reader leaves what stands behind the fields it knows, as a later version would have
it, and takes what was left out at the end for nothing; versions before KIP-415 (0) have no more than `assigned`.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final

from tidemill.connect.group.words import BadWords
from tidemill.connect.herder.placement import CONNECTOR, Instance

PROTOCOL: Final = "sessioned"

VERSION: Final = 2

TEXT_BYTES_MAX: Final = 2**15 - 1

NO_ERROR: Final = 0
CONFIG_MISMATCH: Final = 1
"""The leader has not read the config topic as far as a member: nothing is assigned, and another round has to follow."""

NOTHING: Final = frozenset[Instance]()

_INT16, _INT32, _INT64 = Struct(">h"), Struct(">i"), Struct(">q")


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What comes to a worker and what goes, next to what it has; or with `error` that nothing does.

    As a worker tells it of itself, `assigned` is all that it has.
    """

    leader: str
    leader_url: str
    config_offset: int
    assigned: frozenset[Instance] = NOTHING
    revoked: frozenset[Instance] = NOTHING
    delay_ms: int = 0
    error: int = NO_ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    """What a worker tells of itself; the assignment is None if it was never given one, or has lost it."""

    url: str
    config_offset: int
    assignment: Assignment | None = None

    @property
    def holds(self) -> frozenset[Instance]:
        """All that it has, connectors and tasks."""
        return NOTHING if self.assignment is None else self.assignment.assigned


def encode_state(state: WorkerState) -> bytes:
    """Write what a worker tells of itself; its member id is in the request already."""
    assignment = None if state.assignment is None else encode_assignment(state.assignment)
    return b"".join(
        (
            _INT16.pack(VERSION),
            _text(state.url),
            _INT64.pack(state.config_offset),
            _INT32.pack(-1) if assignment is None else _INT32.pack(len(assignment)) + assignment,
        )
    )


def decode_state(data: bytes) -> WorkerState:
    """Read what a worker tells of itself; raises BadWords."""
    reader = _Reader(data)
    version = reader.version()
    url, config_offset = reader.text(), reader.int64()
    allocation = None if version == 0 or reader.is_at_end else reader.nullable_bytes()
    assignment = None if allocation is None else decode_assignment(allocation)
    return WorkerState(url=url, config_offset=config_offset, assignment=assignment)


def encode_assignment(assignment: Assignment) -> bytes:
    """Write an assignment."""
    return b"".join(
        (
            _INT16.pack(VERSION),
            _INT16.pack(assignment.error),
            _text(assignment.leader),
            _text(assignment.leader_url),
            _INT64.pack(assignment.config_offset),
            _instances(assignment.assigned),
            _instances(assignment.revoked),
            _INT32.pack(assignment.delay_ms),
        )
    )


def decode_assignment(data: bytes) -> Assignment:
    """Read an assignment; raises BadWords."""
    reader = _Reader(data)
    reader.version()
    error, leader, leader_url, config_offset = reader.int16(), reader.text(), reader.text(), reader.int64()
    assigned = frozenset(reader.instances())
    return Assignment(
        error=error,
        leader=leader,
        leader_url=leader_url,
        config_offset=config_offset,
        assigned=assigned,
        revoked=NOTHING if reader.is_at_end else frozenset(reader.instances()),
        delay_ms=0 if reader.is_at_end else reader.int32(),
    )


# --------------------------------------------------------------------- writing


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _INT16.pack(len(encoded)) + encoded


def _instances(instances: Collection[Instance]) -> bytes:
    """By connector, itself before its tasks."""
    by_connector: dict[str, list[int]] = {}
    for connector, task in sorted(instances):
        by_connector.setdefault(connector, []).append(task)
    parts = [_INT32.pack(len(by_connector))]
    for connector, tasks in by_connector.items():
        parts += [_text(connector), _INT32.pack(len(tasks)), *map(_INT32.pack, tasks)]
    return b"".join(parts)


# --------------------------------------------------------------------- reading


class _Reader:
    """Takes values off the front of some bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at >= len(self._data)

    def _take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        if count < 0 or len(taken) < count:
            raise BadWords(f"{len(self._data)} bytes are not all")
        self._at += count
        return taken

    def int16(self) -> int:
        return int(_INT16.unpack(self._take(2))[0])

    def int32(self) -> int:
        return int(_INT32.unpack(self._take(4))[0])

    def int64(self) -> int:
        return int(_INT64.unpack(self._take(8))[0])

    def version(self) -> int:
        version = self.int16()
        if version < 0:
            raise BadWords(f"of version {version}")
        return version

    def text(self) -> str:
        try:
            return self._take(self.int16()).decode()
        except UnicodeDecodeError as error:
            raise BadWords(f"not UTF-8: {error}") from None

    def nullable_bytes(self) -> bytes | None:
        length = self.int32()
        return None if length == -1 else self._take(length)

    def instances(self) -> Iterator[Instance]:
        # A count that the bytes do not bear out ends with them, whatever it says.
        for _ in range(self.int32()):
            connector = self.text()
            for _ in range(self.int32()):
                task = self.int32()
                if task < CONNECTOR:
                    raise BadWords(f"{task} is not the number of a task")
                yield Instance(connector, task)
