"""What a coordinator's machine hears and says

One machine keeps what hashes to one partition of its topic. It hears requests of its own kind and the events here, and
says what to write, what to answer and after which write. `Append` is answered by `Appended` or `AppendFailed` before
anything else is stepped, which is how a local log behaves; a `Reply` with `after` may leave only when that append is
durable. What must survive the broker changes in `apply` alone, which is also how a partition is taken up.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from tidemill.broker.quorum.image import ClusterImage
from tidemill.core.error_code import ErrorCode

RecordT = TypeVar("RecordT")
MachineT = TypeVar("MachineT", bound="CoordinatorMachine[Any]")


class Instant(NamedTuple):
    """Now, on both clocks: deadlines count on the first, the log is stamped with the second."""

    monotonic_ms: int
    wall_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """All records of the log are applied; `image` is the cluster they are to be read against."""

    image: ClusterImage


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageChanged:
    """The cluster is another one; the topics that had the names in `gone` are not there any more."""

    image: ClusterImage
    gone: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time went by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """The records are in the log and will be replayed after a crash of the process."""

    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendFailed:
    """The log did not take the records."""

    token: int
    error: ErrorCode


Happening: TypeAlias = Replayed | ImageChanged | Tick | Appended | AppendFailed
"""What every machine hears."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Append(Generic[RecordT]):
    """Write these records about `subject`, one batch."""

    token: int
    subject: str
    records: tuple[RecordT, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Answer a request, once append `after` is durable."""

    request_id: int
    response: object
    after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something about `subject` that an operator asks about."""

    subject: str
    text: str


Action: TypeAlias = Append[RecordT] | Reply | Note


class CoordinatorMachine(Protocol[RecordT]):
    """Keeps what hashes to one partition."""

    def step(self, event: Any, now: Instant) -> list[Action[RecordT]]:
        """Take in a `Happening` or a request and return what has to happen, in order."""

    def apply(self, record: RecordT) -> None:
        """Change what must survive the broker; the only place that does."""

    def next_deadline_ms(self) -> int | None:
        """When a Tick is needed next, on the monotonic clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duty(Generic[MachineT, RecordT]):
    """What is coordinated: in which topic, by which machine, and how its records look as bytes.

    `decode` gives None for a record that is none of the machine's, and raises ValueError for one that cannot be read.
    `noun` is what a subject is called in the broker's own log.
    """

    topic: str
    noun: str
    new_machine: Callable[[], MachineT]
    encode: Callable[[RecordT], tuple[bytes, bytes | None]]
    decode: Callable[[bytes | None, bytes | None], RecordT | None]
