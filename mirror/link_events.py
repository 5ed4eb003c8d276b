"""What a partition's machine hears and says

The events and actions of `tidemill.mirror.link`, and the few values in them. Every look-up and fetch carries the turn
in which it was asked for, every batch and map write a token, so that a late answer is recognised as such.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from tidemill.mirror.lineage import Span
from tidemill.mirror.offsets import Run


class Trouble(enum.Enum):
    """What a failed request means for the partition."""

    RETRY = enum.auto()
    REREAD = enum.auto()  # the bytes are damaged: they have to come from the source again
    OUT_OF_ORDER = enum.auto()  # the target expected another sequence, or had these numbers long ago
    PARK = enum.auto()
    FAIL = enum.auto()


class Reset(enum.StrEnum):
    """`auto.offset.reset`: where to start, and what to do when the source no longer has the next record."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


# -- events


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The machine may begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLocated:
    """The target's log as it is now; `tail` is the batch that ends it, empty when there is none."""

    turn: int
    log_start: int
    log_end: int
    tail: bytes | memoryview = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLocated:
    """The source's log as it is now."""

    turn: int
    log_start: int
    log_end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEndFound:
    """The largest leader epoch of the source up to the one that was asked for, and the offset where it ended.

    Both are -1 when the source does not tell.
    """

    turn: int
    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Source bytes from the offset that was asked for; `end` is the offset up to which records can be had.

    `frame` numbers the answer that `data` is part of, which stays in memory until `Release`; 0 if nobody counts it.
    """

    turn: int
    data: bytes | bytearray | memoryview
    end: int
    aborted: tuple[tuple[int, int], ...] = ()
    frame: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfRange:
    """The source does not have the offset that was asked for."""

    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupFailed:
    """A look-up or fetch failed."""

    turn: int
    trouble: Trouble
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsStored:
    """The map is stored up to and including `token`."""

    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFailed:
    """The map could not be stored; whether it was is not known."""

    token: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    """The target has the batch; `target_offset` is None when it did not say where."""

    token: int
    target_offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceFailed:
    """The batch was refused, or nobody knows (`in_doubt`): then it may be in the log or still come into it."""

    token: int
    trouble: Trouble
    reason: str
    in_doubt: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStartFound:
    """Where the target's log starts now; retention moves it."""

    log_start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetUnbound:
    """The connection is gone over which the target's log was looked at; it may be another by now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Halted:
    """Something outside says that going on would be wrong."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Woken:
    """The pause that `Wake` asked for is over."""

    turn: int


Event = (
    Started
    | TargetLocated
    | SourceLocated
    | EpochEndFound
    | Fetched
    | OutOfRange
    | LookupFailed
    | RunsStored
    | StoreFailed
    | Produced
    | ProduceFailed
    | LogStartFound
    | TargetUnbound
    | Halted
    | Woken
)


# -- actions


@dataclass(frozen=True, slots=True, kw_only=True)
class LocateTarget:
    """Find the target's log start and end, and the batch that ends it."""

    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LocateSource:
    """Find the source's log start and end."""

    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LocateEpochEnd:
    """Ask the source where a leader epoch ended."""

    turn: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """Read source batches from `offset` on, waiting for some if there are none."""

    turn: int
    offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRuns:
    """Write these segments of the map and delete those, all or none; calls are carried out in order.

    `spans` belong to the last segment, which is among those that are written unless there are none.
    """

    token: int
    segments: Mapping[int, tuple[Run, ...]]
    deleted: tuple[int, ...]
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Produce:
    """Write one batch; calls are carried out in order."""

    token: int
    batch: bytes | memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The bytes of a fetch answer are not needed any more; said once per `Fetched` that came with a frame."""

    frame: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wake:
    """Send a Woken of this turn after a pause."""

    turn: int
    after_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Something an operator should read; `severe` when the partition does not go on by itself."""

    message: str
    severe: bool = False


Action = LocateTarget | LocateSource | LocateEpochEnd | Fetch | StoreRuns | Produce | Release | Wake | Report
