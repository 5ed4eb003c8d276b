"""What a mirror that was just started cannot know about its previous life

Batches of the previous life may be in the target's log and not be visible yet, or still be read by the broker from a
connection that is gone. Their offsets are those of the stored map. As long as the source still says what the map says,
whatever arrives is what would be sent now. Where the source has lost the record that the map expects next, it may have
been compacted since: then the stored map may be the only trace of what is on its way, and must not be overwritten.

So such a contradiction is first waited out, until no request of the previous life can arrive any more, and then tried:
one batch goes out alone (the probe), before its runs are stored, and the target's log end tells which of the two is
there. An offset where the source visibly has no record to copy (a marker, aborted data) contradicts nothing: nobody
ever sent a record of it.

Two things stay open. A mirror that is killed between a probe and the write of its runs, and started again when
retention has taken all that the target had, finds no trace of the probe. And one that was not killed but stopped
(SIGSTOP) with requests half sent, and goes on after another has taken over and probed, may still land one of them
where the source was compacted in that very place meanwhile: nothing ends its connections but the broker's patience.
"""

from tidemill.core.records.batch import BatchView
from tidemill.core.records.record import Record
from tidemill.mirror.passthrough import Outgoing, Relayed, decoded

ARRIVAL_MS = 5_000  # what was sent over a connection that ended is read by then, or never
VISIBLE_MS = 600_000  # what was appended is visible by then: replicas that lag have left the set 30 s after

Content = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


class Resumption:
    """The doubts of a machine about batches sent before it was started."""

    def __init__(self, started_ms: int) -> None:
        self.probe: Outgoing | None = None  # sent or to be sent, its runs not in the map
        self._started_ms = started_ms
        self._barren: list[tuple[int, int]] = []

    def begin_anew(self, now_ms: int) -> None:
        """More is in doubt: what was sent until now has as long to arrive as what was sent before the start."""
        self._started_ms = now_ms

    def remaining_ms(self, now_ms: int) -> int:
        """How long requests of the previous life may still arrive."""
        return max(0, min(ARRIVAL_MS, ARRIVAL_MS - (now_ms - self._started_ms)))

    def is_over(self, now_ms: int) -> bool:
        """Whether everything of the previous life that was appended shows at the log's end."""
        return now_ms - self._started_ms >= VISIBLE_MS

    def note(self, relayed: Relayed, expected: int) -> None:
        """Remember where the source has no record to copy, from the offset on that the map expects next."""
        self._barren = [span for span in self._barren if span[1] > expected]
        for first, end in relayed.barren:
            if self._barren and self._barren[-1][1] == first:
                self._barren[-1] = (self._barren[-1][0], end)
            else:
                self._barren.append((first, end))

    def contradicts(self, expected: int | None, source: int) -> bool:
        """Whether the stored map expects a record at a place where the source may have had one."""
        if expected is None or expected >= source:
            return False
        return not any(first <= expected < end for first, end in self._barren)

    def probe_landed(self, log_end: int, tail: bytes | memoryview) -> bool:
        """Whether the batch that ends the target's log is the probe."""
        if self.probe is None or self.probe.target_end != log_end or not len(tail):
            return False
        view = BatchView(tail)
        if view.base_offset != self.probe.target_offset:
            return False
        sent = decoded(BatchView(self.probe.batch))
        return [content(record) for record in decoded(view)] == [content(record) for record in sent]


def content(record: Record) -> Content:
    """What makes a record the same on both sides; its time may have been rewritten by the target."""
    return record.key, record.value, tuple(record.headers)
