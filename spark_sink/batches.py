"""The batches of one query, from Spark's hands into the background

Spark hands over a batch and takes it for done; its commit runs while the next one is read. A batch too large to hold
was cut short by its tasks, and its query is then to be replaced by one with fewer records a batch.

What is known of batches belongs to their query alone. One that was told to end and did not in time may still deliver a
batch when the next query is at work: it finds the door shut, and can neither commit beside the new one nor be taken
for it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

import structlog

from tidemill.spark_sink.background import Background
from tidemill.spark_sink.batch_size import BatchSize
from tidemill.spark_sink.changes import Chunk, chunks_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = structlog.get_logger("tidemill.spark")


class CommitCrashed(RuntimeError):
    """A commit ended in what no program should go on after, such as a panic of the table's library."""

    needs_new_jvm: ClassVar[bool] = True  # and a new process around it


class Batches:
    """Takes the batches of one query and has them committed, one after the other, until `end`."""

    def __init__(self, size: BatchSize, commit: Callable[[list[Chunk]], None]) -> None:
        self.size = size  # that the next query may have
        self.failure: BaseException | None = None  # the first one, on Spark's thread or in the background
        self.resizes = False  # the query is to be replaced by one with another batch size
        self.taken = 0  # offsets of the batch whose commit was started last
        self._commit = commit
        self._commits = Background("tidemill-commit")

    @property
    def is_busy(self) -> bool:
        """Whether a commit is under way."""
        return self._commits.is_busy

    def take(self, frame: "DataFrame", batch_id: int) -> None:
        """Take one batch and see to its commit; runs on a thread of Spark's. Raises RuntimeError after the end."""
        try:
            if self.resizes:
                return  # what the table lacks is read again
            chunks = chunks_of(frame.toArrow())
            taken = sum(chunk.end - chunk.start for chunk in chunks)
            self._commits.start(lambda: self._commit_all(chunks))
            self.taken = taken
            self.resizes = self._resized(chunks)
        except BaseException as error:
            self.failure = self.failure or error
            raise

    def check(self) -> None:
        """Raise what the last commit raised, if it has ended; never waits."""
        try:
            self._commits.check()
        except Exception as error:
            self.failure = self.failure or error
            raise

    def end(self) -> BaseException | None:
        """Take no more; wait for the commit at hand and return what it raised."""
        return self._commits.close()

    def _commit_all(self, chunks: list[Chunk]) -> None:
        try:
            self._commit(chunks)
        except Exception:
            raise
        except BaseException as error:
            raise CommitCrashed(f"the commit crashed: {type(error).__name__}: {error}") from error

    def _resized(self, chunks: list[Chunk]) -> bool:
        cut = any(chunk.cut for chunk in chunks)
        before = self.size.offsets
        self.size = self.size.after(self.taken, sum(chunk.size_bytes for chunk in chunks), cut)
        if self.size.offsets != before:
            log.info("batches take another number of records", before=before, now=self.size.offsets, cut=cut)
        return cut or self.size.offsets != before
