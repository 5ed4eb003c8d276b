"""The time of a member of the quorum, which stands still when it does

Who waits for a disk, or is not given the processor, hears nobody meanwhile and has nobody to blame. If the time went
on, a voter would look for another leader, a candidate would give up and a leader would resign as soon as they come to
themselves, with the answers that they wait for in their hands or on their way; and where all machines are slow at once,
as when all of them start, nobody would lead for long. So what counts is the time in which a member listens, from when
it began to, and no more of that than it meant to; of what it does about one event only as much as that takes anywhere.

Nothing that is promised hangs on this time: it decides when something is tried, not whether it may be done.
"""

from typing import Final

from tidemill.core.runtime.clock import Clock

WORK_MS_MAX: Final = 100
"""What is done about one event takes that long at the most, unless it stands still: a tenth of what elections wait."""

LATE_MS: Final = 100
"""Who comes to itself so much later than it wanted to has stood still, for how much of that time it cannot tell."""


class OwnTime:
    """Mutable: told when its owner begins to listen and to work. Until the first of these it stands still.

    `again_ms` is for how long an owner that stood still listens before it takes a time for over.
    """

    __slots__ = ("_again_ms", "_clock", "_counted_ms", "_most_ms", "_since_ms", "_until_ms")

    def __init__(self, clock: Clock, *, again_ms: int) -> None:
        self._clock = clock
        self._again_ms = again_ms
        self._counted_ms = self._since_ms = clock.monotonic() * 1000
        self._most_ms: float | None = 0.0  # of what passes since then so much counts, None is all
        self._until_ms: int | None = None

    def now_ms(self) -> int:
        """The time, in whole milliseconds."""
        return int(self._counted_ms + self._counts_ms())

    def listen(self, until_ms: int | None) -> float | None:
        """The owner waits for what comes, until then; for how many seconds. What comes has come before that."""
        self._begin(self._counted_ms + self._counts_ms(), None)
        self._until_ms = until_ms
        if until_ms is None:
            return None
        left_ms = max(until_ms - self._counted_ms, 0.0)
        self._most_ms = max(left_ms - 1, 0.0)
        return left_ms / 1000

    def work(self) -> None:
        """The owner has heard something and sees to that."""
        at_ms = self._counted_ms + self._counts_ms()
        if self._until_ms is not None and self._is_late(self._until_ms):
            at_ms = max(self._counted_ms, self._until_ms - self._again_ms)
        self._begin(at_ms, WORK_MS_MAX)

    def is_over(self, *, late_too: bool) -> bool:
        """Nothing was heard in time; False where the owner stood still and is to listen again, unless `late_too`."""
        assert self._until_ms is not None
        over = late_too or not self._is_late(self._until_ms)
        self._begin(max(self._counted_ms, self._until_ms - (0 if over else self._again_ms)), WORK_MS_MAX)
        return over

    def _begin(self, at_ms: float, most_ms: float | None) -> None:
        self._since_ms = self._clock.monotonic() * 1000
        self._counted_ms, self._most_ms, self._until_ms = at_ms, most_ms, None

    def _counts_ms(self) -> float:
        passed_ms = self._clock.monotonic() * 1000 - self._since_ms
        return passed_ms if self._most_ms is None else min(passed_ms, self._most_ms)

    def _is_late(self, until_ms: int) -> bool:
        wanted_ms = max(until_ms - self._counted_ms, 0.0)
        return self._clock.monotonic() * 1000 - self._since_ms - wanted_ms > LATE_MS
