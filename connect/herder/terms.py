"""Terms of office of those who write the config topic

The leader of a group decides alone what goes into the config topic. A leader that was replaced may not have heard of
it: it was paused, cut off from the group but not from the topic, or its write was on its way when the next leader
began. Kafka's worker can fence such a one with a transactional producer, but does only where exactly-once sources are
on. Here there are no transactions, so the topic's own order decides:

- A leader takes office with a record that names a new term, above every term it has read. That record is a new
  `session-key`, which a leader writes anyway. It is in office when the record has come back and no higher term is
  known.
- Everything it writes carries its term, as a header of the record. Java's workers look at no headers.
- A reader does not take what carries a lower term than something before it in the topic. All readers see one order
  (the topic has one partition), so all leave out the same records, the writer among them: that is how it hears of it.

Once the new leader has read its own record back, nothing that another decides can count any more, so it decides on a
state that only it changes. No lock, no clock and no time-out takes part.

**Why not the group's generation.** A broker forgets a group that nobody is in, and the next one begins with generation
1: everything its leader wrote would be below what stands in the topic. Terms are counted in the topic that they
protect. Two leaders that take the same number at the same moment differ in their lives (a life is one start of one
worker); number and life together are compared, so one of the two is above the other wherever their records stand.

**Compaction** does not know what readers leave out. It may take away what was true about a key and keep the later
record that nobody believed; and the records of the higher term that stood before it may be gone, too, so that a worker
which starts then would believe it. So what was left out is written over: `repairs` says with what, and the leader in
office writes it as soon as it reads of it. Only if the topic rolled its segment and was compacted in the moment
between would somebody be misled; the segment that is being written is never compacted. Requests (restarts, log levels)
are acted on only when they arrive, so what was left out of them has had no effect and is not written over.

**Java's leaders** name no term. What has none is taken from whoever it is, as ever. A session key without a term says
that a leader of theirs is in office: then nothing of an earlier term of ours counts, until somebody takes a higher
one.

Pure: records in, yes or no out.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from tidemill.connect.stores import SESSION_KEY, KeyValue, TasksCommit, decode_config

TERM_HEADER: Final = "tidemill-term"
"""Name of the header; its value is `<number>:<life>`."""

NUMBER_MAX: Final = 10**15
"""Beyond what any group counts to; a higher number is nobody's, and must not keep everybody out for ever."""

HEADER_BYTES_MAX: Final = 100

TAKEOVERS_KEPT: Final = 64
"""Changes of office that are remembered. Who asks about its own write was replaced one change ago, or a few."""


class Term(NamedTuple):
    """One leader's time in office. The greater is the later one."""

    number: int
    life: str

    def encoded(self) -> bytes:
        """As the header has it.

        >>> Term(7, "ab12").encoded()
        b'7:ab12'
        """
        return f"{self.number}:{self.life}".encode()

    @classmethod
    def decoded(cls, header: bytes | None) -> "Term | None":
        """Read a header; None where there is none, or none that one of our workers writes.

        >>> Term.decoded(b"7:ab12"), Term.decoded(b"x:ab12"), Term.decoded(b"7:"), Term.decoded(None)
        (Term(number=7, life='ab12'), None, None, None)
        """
        if header is None or len(header) > HEADER_BYTES_MAX or not header.isascii():
            return None
        digits, _, life = header.decode().partition(":")
        if not (digits.isdigit() and len(digits) <= 16 and 0 < int(digits) <= NUMBER_MAX and life):
            return None
        return cls(int(digits), life)


class _Takeover(NamedTuple):
    offset: int
    term: Term | None  # None: a leader of Java's


_REQUESTS = (b"restart-connector-", b"logger-cluster-")


class Terms:
    """What the config topic says about who is in office; told every record of it, in order."""

    def __init__(self) -> None:
        self.current: Term | None = None  # the highest so far
        self._closed = False  # a leader of Java's has come since
        self._takeovers: deque[_Takeover] = deque(maxlen=TAKEOVERS_KEPT)
        self._values: dict[bytes, bytes] = {}  # what is true of each key, as it was written
        self._spoiled: dict[bytes, None] = {}  # keys whose last record was left out, the oldest first

    def take(self, key: bytes | None, value: bytes | None, term: Term | None, offset: int) -> bool:
        """Whether the record at `offset` counts; `term` is what its header says."""
        if not self._counts(key, term, offset):
            if key is not None and not key.startswith(_REQUESTS):
                self._spoiled[key] = None
            return False
        if key is not None:
            self._spoiled.pop(key, None)
            self._values.pop(key, None)
            if value is not None and not key.startswith(_REQUESTS):
                self._values[key] = value
        return True

    def _counts(self, key: bytes | None, term: Term | None, offset: int) -> bool:
        if term is None:
            if key == SESSION_KEY.encode() and self.current is not None and not self._closed:
                self._closed = True
                self._takeovers.append(_Takeover(offset, None))
            return True
        if self.current is not None and (term < self.current or (term == self.current and self._closed)):
            return False
        if term != self.current:
            self.current, self._closed = term, False
            self._takeovers.append(_Takeover(offset, term))
        return True

    def next(self, life: str) -> Term | None:
        """The term of whoever takes office now; None if somebody has written the last number there is."""
        number = 0 if self.current is None else self.current.number
        return Term(number + 1, life) if number < NUMBER_MAX else None

    def holds(self, term: Term | None) -> bool:
        """Whether this term is the one in office."""
        return term is not None and term == self.current and not self._closed

    def counted(self, term: Term, offset: int) -> bool:
        """Whether what was written in this term, up to `offset`, was taken by everybody; asked when it was read."""
        later = (each.offset for each in self._takeovers if each.term is None or each.term > term)
        return not any(taken < offset for taken in later if taken > self._began(term))

    def _began(self, term: Term) -> int:
        return max((each.offset for each in self._takeovers if each.term == term), default=-1)

    @property
    def needs_repair(self) -> bool:
        """Whether something stands in the topic that nobody believes, and nothing has been written over it yet."""
        return bool(self._spoiled)

    def repairs(self) -> tuple[KeyValue, ...]:
        """What the leader in office has to write over what was left out, in this order.

        Tasks count only with the commit behind them, so of a connector's tasks all are written again, the commit last.
        """
        repairs: dict[bytes, bytes | None] = {}
        commits: list[bytes] = []
        for key in self._spoiled:
            repairs[key] = self._values.get(key)
            commit = _commit_of(key)
            if commit is not None and commit not in commits:
                commits.append(commit)
        for commit in commits:
            repairs.pop(commit, None)
            repairs.update(self._task_set(commit))
        return tuple(repairs.items())

    def _task_set(self, commit: bytes) -> Iterator[KeyValue]:
        value = self._values.get(commit)
        decoded = decode_config(commit, value)
        if isinstance(decoded, TasksCommit):
            for task in range(decoded.tasks):
                key = f"task-{decoded.connector}-{task}".encode()
                if key not in self._values:  # it was incomplete before, and whoever reads it asks the plugin again
                    break
                yield key, self._values[key]
        if value is not None or commit in self._spoiled:
            yield commit, value


def _commit_of(key: bytes) -> bytes | None:
    """The key of the commit that a record of a connector's tasks belongs to."""
    if key.startswith(b"commit-"):
        return key
    if key.startswith(b"task-"):
        return b"commit-" + key.removeprefix(b"task-").rpartition(b"-")[0]
    return None
