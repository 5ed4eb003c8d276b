"""What clients asked for and were told: one line each, in a file for each client

A line is words with a space between; the second is the moment, in seconds of the machine's monotonic clock, which all
processes share. A record is named by its writer and a number, and its value says both.

| line | means |
|---|---|
| `writer t NAME IDEMPOTENT` | the first line of a writer; 1 if it is idempotent |
| `w t TOPIC PARTITION NUMBER` | asked for: from here on the record may be there |
| `a t TOPIC PARTITION NUMBER OFFSET` | acknowledged; at -1 where the client was not told the offset |
| `x t TOPIC PARTITION NUMBER REASON` | failed as the application sees it: the record may be there, or not |
| `z t TOPIC PARTITION NUMBER` | its transaction was aborted: nobody may read it who asks for what is committed |
| `reader t GROUP NAME` | the first line of a reader |
| `+ t TOPIC PARTITION` | the partition is the reader's from now on |
| `- t TOPIC PARTITION` | and no longer |
| `r t TOPIC PARTITION OFFSET NAME NUMBER` | read |
| `c t TOPIC PARTITION OFFSET` | a commit for its group was acknowledged |
| `e t REASON` | an error that the client told the application |
| `end t LEFT` | the last line: it ended when it was asked to; `LEFT` records were never answered |
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

Place = tuple[str, int]
"""Topic and partition."""

VALUE_BYTES = 100
FLUSH_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class Event:
    """One line; what a kind has not is empty."""

    kind: str
    at: float
    place: Place = ("", 0)
    number: int = 0
    offset: int = -1
    name: str = ""
    reason: str = ""


def value(name: str, number: int) -> bytes:
    """The bytes of a record."""
    return b"%s:%d " % (name.encode(), number) + b"." * VALUE_BYTES


def words(data: bytes | None) -> str:
    """`NAME NUMBER` of a record's value; of one that nobody wrote, something that no writer is called."""
    name, separator, number = (data or b"").split(b" ", 1)[0].partition(b":")
    if not separator or not number.isdigit():
        return "? 0"
    return f"{name.decode(errors='replace')} {number.decode()}"


class Log:
    """A file that lines are put into."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8", buffering=1 << 16)
        self._flushed = time.monotonic()

    def put(self, kind: str, *rest: object) -> None:
        """One line, of this moment."""
        self._file.write(f"{kind} {time.monotonic():.6f} {' '.join(map(str, rest))}\n")

    def reason(self, kind: str, *rest: object) -> None:
        """One whose last word is a text: spaces in it are not spaces between words."""
        self.put(kind, *rest[:-1], "_".join(str(rest[-1]).split()) or "unknown")

    def tick(self) -> None:
        """Have others see what was put; to be called now and then, most of all when there is nothing to put."""
        now = time.monotonic()
        if now - self._flushed > FLUSH_EVERY_S:
            self._flushed = now
            self._file.flush()

    def close(self, left: int = 0) -> None:
        """The last line."""
        self.put("end", left)
        self._file.close()


def parse(line: str) -> Event:
    """The event of one line."""
    kind, moment, *rest = line.split()
    at = float(moment)
    match kind:
        case "writer":
            return Event(kind, at, name=rest[0], number=int(rest[1]))
        case "reader":
            return Event(kind, at, name=rest[1], reason=rest[0])
        case "w" | "z":
            return Event(kind, at, (rest[0], int(rest[1])), int(rest[2]))
        case "a":
            return Event(kind, at, (rest[0], int(rest[1])), int(rest[2]), int(rest[3]))
        case "x":
            return Event(kind, at, (rest[0], int(rest[1])), int(rest[2]), reason=rest[3])
        case "r":
            return Event(kind, at, (rest[0], int(rest[1])), int(rest[4]), int(rest[2]), rest[3])
        case "+" | "-":
            return Event(kind, at, (rest[0], int(rest[1])))
        case "c":
            return Event(kind, at, (rest[0], int(rest[1])), offset=int(rest[2]))
        case "e":
            return Event(kind, at, reason=rest[0])
        case "end":
            return Event(kind, at, number=int(rest[0]))
    raise ValueError(f"not a line of a history: {line!r}")


def read(path: Path) -> Iterator[Event]:
    """All of a file; a last line that was cut off by a kill is not there."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                yield parse(line)


def names(path: Path) -> tuple[str, str]:
    """Kind of client and its own name, or its group's."""
    first = next(iter(read(path)))
    return first.kind, first.reason if first.kind == "reader" else first.name


def places(topics: Iterable[tuple[str, int]]) -> list[Place]:
    """All partitions of topics that have so many."""
    return [(topic, partition) for topic, count in topics for partition in range(count)]
