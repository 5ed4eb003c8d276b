"""Sources that do what a test has written down"""

import threading
from collections.abc import Sequence
from typing import Any

from tidemill.connect.api import (
    EncodedBatch,
    Record,
    SourceOffset,
    SourceOutput,
    SourcePartition,
    SourceTask,
    TaskContext,
)

PARTITION = {"table": "t"}

Step = Sequence[SourceOutput] | Exception


class Script(SourceTask):
    """A source that plays a script: what to return from one poll after the other, or to raise."""

    def __init__(self, *steps: Step, at_start: Sequence[Exception] = ()) -> None:
        self.steps = list(steps)
        self.at_start = list(at_start)
        self.started_at: list[SourceOffset | None] = []
        self.committed_offsets: list[SourceOffset] = []
        self.stops = 0
        self.lives = 0
        self.threads: set[int] = set()

    def make(self) -> "Script":
        """Serve as the plugin's factory; the script goes on where it was."""
        self.lives += 1
        return self

    def start(self, context: TaskContext) -> None:
        self.started_at.append(context.offsets(PARTITION))
        if self.at_start:
            raise self.at_start.pop(0)

    def poll(self) -> Sequence[SourceOutput]:
        self.threads.add(threading.get_ident())
        if not self.steps:
            threading.Event().wait(0.01)
            return []
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    def committed(self, partition: SourcePartition, offset: SourceOffset) -> None:
        assert partition == PARTITION
        self.committed_offsets.append(offset)

    def stop(self) -> None:
        self.stops += 1


def numbers(topic: str, start: int, end: int) -> list[Record]:
    return [
        Record(topic=topic, key=str(n), value=n, partition=PARTITION, offset={"next": n + 1}) for n in range(start, end)
    ]


def encoded(topic: str, values: Sequence[bytes | None], offset: int | None, **more: Any) -> EncodedBatch:
    given = None if offset is None else {"next": offset}
    keys = more.pop("keys", [b"k"] * len(values))
    return EncodedBatch(topic=topic, keys=keys, values=values, partition=PARTITION, offset=given, **more)
