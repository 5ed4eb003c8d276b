"""Group commit: one round of fsync for everything that waits for the disk

Callers append, then ask for the next round. A round takes all logs written since the last one, makes their files
durable in a thread and then tells each log how far it is safe. The next round starts when the last one returns, never
on a timer: under load a round collects whatever arrived during the one before, and an idle broker pays exactly one
fsync. A round over many files syncs the whole file system at once where that has turned out to be quicker.

A failed fsync is final. The kernel may have dropped the dirty pages, so a second fsync that succeeds proves nothing;
everything that waits is refused, everything later is refused, and the owner of the folder is told to stop.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from typing import NamedTuple, Protocol, TypeVar

import structlog

from tidemill.core.errors import KafkaStorageError
from tidemill.core.runtime.disk import Syncable, sync_each
from tidemill.core.runtime.file_system_sync import Sync

log = structlog.get_logger("tidemill.broker.log")

SyncFiles = Callable[[Sequence[Syncable]], None]
SyncEverything = Callable[[Sync], None]
_Result = TypeVar("_Result")


WHOLE_FROM_FILES = 8
"""From here on one sync of the whole file system may be cheaper than that of the files (measured for 100: 1.3 ms,
against 7 together and 13 one after the other), unless others have much unwritten data there."""

_PATIENCE = 20  # so that a twentieth of the time is lost with finding out that it is still dearer
_FAR = 4  # times as long as before, and it may have been a stall


class FlushWork(NamedTuple):
    """What a round has to do for one log, in a thread: any order will do, as long as all of it is done."""

    files: list[Syncable]
    calls: list[Sync]


class Flushable(Protocol):
    """A log as the flusher sees it."""

    def begin_flush(self) -> FlushWork:
        """Freeze what this round covers and say what has to be done for it."""
        ...

    def end_flush(self) -> None:
        """All of that has been done: what was frozen is durable."""
        ...


class _Way:
    """What one of two ways took, and what the other has taken since."""

    def __init__(self) -> None:
        self.took_s: float | None = None
        self.meanwhile_s = 0.0
        self._is_doubted = False
        self.patience = 1  # a first time may have found what had been left unwritten before

    def note(self, took_s: float) -> None:
        """It took so long. A disk stalls now and then: what is far more than before is believed the second time."""
        self._is_doubted = not self._is_doubted and self.took_s is not None and took_s > _FAR * self.took_s
        if not self._is_doubted:
            self.patience = 1 if self.took_s is None else _PATIENCE
            self.took_s = took_s
        self.meanwhile_s = 0.0


class Cheaper:
    """Which of two ways to make many things durable is cheaper, learned from how long each took.

    Together they are not as dear as so many times one, so what they took is remembered by how many they were. What was
    dearer is tried again once the other has taken `_PATIENCE` times as long as that did: others may write less by now.
    """

    def __init__(self, whole_from: int) -> None:
        self._whole_from = whole_from
        self._whole: defaultdict[int, _Way] = defaultdict(_Way)  # by the binary digits of how many
        self._each: defaultdict[int, _Way] = defaultdict(_Way)
        self._any_whole_s: float | None = None  # the latest, which hardly depends on how many

    def whole(self, count: int) -> bool:
        """Whether one sync of the whole file system is to be preferred to `count` of single files."""
        if count < self._whole_from:
            return False
        if self._any_whole_s is None:
            return True
        digits = count.bit_length()
        whole, each = self._whole[digits], self._each[digits]
        whole_s = self._any_whole_s if whole.took_s is None else whole.took_s
        if each.took_s is None:
            guess_s = self._at_most(digits)  # if it is not far too much, it is worth a try
            return guess_s > _PATIENCE * whole_s and each.meanwhile_s <= _PATIENCE * guess_s
        if whole_s <= each.took_s:
            return each.meanwhile_s <= _PATIENCE * each.took_s
        return whole.meanwhile_s > whole.patience * whole_s

    def _at_most(self, digits: int) -> float:
        """What so many may take at most, by what more or fewer took; 0 where nobody knows."""
        known = ((seen, way.took_s) for seen, way in self._each.items() if way.took_s is not None)
        return min((took_s * 2 ** max(0, digits - seen) for seen, took_s in known), default=0.0)

    def note_whole(self, took_s: float, count: int) -> None:
        """One sync of everything took so long for so many: with much unwritten data of others, seconds."""
        digits = count.bit_length()
        self._whole[digits].note(took_s)
        self._any_whole_s = self._whole[digits].took_s
        self._each[digits].meanwhile_s += took_s

    def note_each(self, took_s: float, count: int) -> None:
        """So many took so long by themselves."""
        digits = count.bit_length()
        self._each[digits].note(took_s)
        self._whole[digits].meanwhile_s += took_s


class Disk:
    """Makes many files durable, the cheaper way."""

    def __init__(
        self,
        monotonic: Callable[[], float],
        sync_everything: SyncEverything | None,
        sync_files: SyncFiles = sync_each,
    ) -> None:
        self._monotonic = monotonic
        self._sync_files = sync_files
        self._sync_everything = sync_everything
        self._cheaper = Cheaper(WHOLE_FROM_FILES)
        self.syncs = 0
        self.sync_s = 0.0

    def sync(self, work: Iterable[FlushWork]) -> None:
        """Do all of `work`."""
        files: list[Syncable] = []
        for part in work:
            for call in part.calls:
                call()
            files += part.files
        if not files:
            return
        begun = self._monotonic()
        if self._sync_everything is not None and self._cheaper.whole(len(files)):
            self._sync_everything(files[0].sync)
            took_s = self._monotonic() - begun
            self._cheaper.note_whole(took_s, len(files))
        else:
            self._sync_files(files)
            took_s = self._monotonic() - begun
            self._cheaper.note_each(took_s, len(files))
        self.syncs += 1
        self.sync_s += took_s


class Flusher:
    """One log folder's rounds of fsync."""

    def __init__(
        self,
        executor: Executor,
        on_failure: Callable[[OSError], None],
        *,
        monotonic: Callable[[], float] = lambda: 0.0,
        sync_everything: SyncEverything | None = None,
        sync_files: SyncFiles = sync_each,
    ) -> None:
        self._executor = executor
        self._on_failure = on_failure
        self._disk = Disk(monotonic, sync_everything, sync_files)
        self._dirty: dict[Flushable, None] = {}
        self._next_round: asyncio.Future[None] | None = None
        self._running: asyncio.Future[None] | None = None
        self._running_round: asyncio.Future[None] | None = None
        self._round_logs: list[Flushable] = []
        self.failure: OSError | None = None
        self.rounds = 0

    @property
    def syncs(self) -> tuple[int, float]:
        """Rounds in which something was made durable, and the seconds that they waited for the disk in all."""
        return self._disk.syncs, self._disk.sync_s

    def add(self, flushable: Flushable) -> None:
        """Have `flushable` in the next round."""
        self._dirty[flushable] = None
        if self._running is None and self.failure is None:
            self._schedule()

    def next_round(self) -> "asyncio.Future[None]":
        """Done when everything added up to now is durable; KafkaStorageError when it cannot be.

        Many wait for the same future: a waiter that may be cancelled has to shield it.
        """
        if not self._dirty and self.failure is None and self._running_round is not None:
            return self._running_round
        if self._next_round is None:
            self._next_round = asyncio.get_running_loop().create_future()
        waiting = self._next_round
        if self.failure is not None:
            self._refuse(waiting, self.failure)
        elif not self._dirty and self._running is None:  # else a round is about to begin, if with nothing in it
            self._next_round = None
            waiting.set_result(None)
        return waiting

    def remove(self, flushable: Flushable) -> None:
        """Leave `flushable` out of later rounds (its files are going away)."""
        self._dirty.pop(flushable, None)

    def between_rounds(self, call: Callable[[], _Result]) -> "asyncio.Future[_Result]":
        """Run `call` in the flusher's thread, where no round is at work on the files that it closes or renames.

        The next round waits for it, and every producer for that, so it has to be short.
        """
        return asyncio.get_running_loop().run_in_executor(self._executor, call)

    async def drain(self) -> None:
        """Wait until nothing is left to flush; raises KafkaStorageError after a failure."""
        while self._running is not None or self._dirty:
            await asyncio.shield(self.next_round())
        if self.failure is not None:
            raise KafkaStorageError(f"the log folder failed: {self.failure}")

    def end(self) -> None:
        """Begin no further round: the folder is being closed, and its threads are about to go."""
        if self.failure is None:
            self.failure = OSError("it is closed")
        if self._next_round is not None:  # whoever waits for it: a round that is under way will not begin another
            self._refuse(self._next_round, self.failure)

    def _schedule(self) -> None:
        """Start a round at the end of this turn of the loop, so that all its appends share it."""
        loop = asyncio.get_running_loop()
        self._running = loop.create_future()
        loop.call_soon(self._start)

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        self._round_logs, self._dirty = list(self._dirty), {}
        self._running_round, self._next_round = self._next_round, None
        if self._running_round is None:
            self._running_round = loop.create_future()
        if self.failure is not None:  # since it was scheduled
            round_done, self._running, self._running_round = self._running_round, None, None
            self._refuse(round_done, self.failure)
            return
        try:
            work = [flushable.begin_flush() for flushable in self._round_logs]
            self._running = loop.run_in_executor(self._executor, self._disk.sync, work)  # which may begin a thread
        except Exception as error:  # nobody knows what would have been to do: nothing is durable any more
            round_done, self._running, self._running_round = self._running_round, None, None
            self._fail(error, round_done)
            return
        self._running.add_done_callback(self._finished)

    def _finished(self, running: "asyncio.Future[None]") -> None:
        round_done, self._running_round = self._running_round, None
        logs, self._round_logs = self._round_logs, []
        self._running = None
        self.rounds += 1
        assert round_done is not None
        error = OSError("its thread was taken away") if running.cancelled() else running.exception()
        if error is not None:
            self._fail(error, round_done)
            return
        for flushable in logs:
            try:
                flushable.end_flush()
            except Exception as error:  # a bug of who hears of it keeps no other log, and no later round, waiting
                told = {"message": "a log did not take note of what is durable", "exception": error}
                asyncio.get_running_loop().call_exception_handler(told)
        if self._running is None:  # else who heard of this one has asked already
            self._go_on()
        if not round_done.done():  # the disk is at work again when those who waited begin to answer
            round_done.set_result(None)

    def _go_on(self) -> None:
        """Begin the next round if there is anything for it; whoever waits for one that will not be hears of that."""
        if self._dirty and self.failure is None:
            self._schedule()
            return
        waiting, self._next_round = self._next_round, None
        if waiting is None:
            return
        if self.failure is not None:
            self._refuse(waiting, self.failure)
        elif not waiting.done():  # all logs that it would have been for have been removed
            waiting.set_result(None)

    def _fail(self, error: BaseException, round_done: "asyncio.Future[None]") -> None:
        failure = error if isinstance(error, OSError) else OSError(str(error))
        self.failure = failure
        log.critical("fsync failed: nothing more is written to this folder", error=str(failure))
        self._refuse(round_done, failure)
        if self._next_round is not None:
            self._refuse(self._next_round, failure)
        self._on_failure(failure)

    @staticmethod
    def _refuse(waiting: "asyncio.Future[None]", failure: OSError) -> None:
        if not waiting.done():
            waiting.set_exception(KafkaStorageError(f"the log folder failed: {failure}"))
            waiting.exception()  # nobody may be waiting; that is not worth a warning
