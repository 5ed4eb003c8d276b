"""The map topic on the target, owned by one mirror at a time

The topic is a table (`tidemill.mirror.map_records`), so an old version of a row that arrived late would undo a newer
one. Writes are therefore idempotent, under the flow's producer id for this topic, and one at a time.

Whoever opens the store takes it over: it claims the next producer epoch with a record that holds a random token and
reads that record back. If another mirror claimed the same epoch in the same moment, one of the two finds the other's
token and claims the next. From then on the target refuses writes of the previous owner (`Fenced`). A write whose
outcome is unknown is followed by a claim too, so that it cannot be mistaken for the one after it. The last epoch of a
producer id is only ever claimed to shut out everybody who writes under it; then comes the id of the next generation.

Since nobody else writes, offsets of what an owner writes only grow. If they do not, the target was put back to an older
state (`SetBack`): then what was stored is not there, and whatever the owner believes about the topics may be wrong. An
owner writes at least every `RENEW_MS`, so that shows soon; and after any trouble it claims before it stores, so that no
row comes behind rows that are missing.

Taking over is not the way to begin, though: `wait_for_turn` returns when the owner has let go of the store or has been
silent. An owner is never silent for long, since it renews its claim when there is nothing to store; so the log's end
tells a standby all it needs. The time it takes the target to answer is not counted: nobody can be heard meanwhile.
"""

import asyncio
import secrets
import struct
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

import structlog

from tidemill.core.client.admin import Admin, NewTopic
from tidemill.core.client.batches import FetchWant
from tidemill.core.client.cluster import FETCH_BYTES_MAX, ClusterClient
from tidemill.core.client.retries import fault
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError, PermanentError, TopicAlreadyExists
from tidemill.core.records.batch import iter_batches
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord, decode_records
from tidemill.core.runtime.clock import Clock
from tidemill.core.types import TopicPartition
from tidemill.mirror.formats import FormatError
from tidemill.mirror.identity import producer_id
from tidemill.mirror.map_records import Replay, StoredMap
from tidemill.mirror.naming import offset_map_topic

_log = structlog.get_logger("tidemill.mirror")

_CLAIM_KEY = struct.pack(">h", -1)  # a version no segment key has
_CLAIM = struct.Struct(">16sib")  # token, generation, 1 when the owner has let go
_EPOCH_LAST = 2**15 - 1
_CLAIMS_MAX = 20
RENEW_MS = 1_500  # an owner writes at least that often
SILENCE_MS = 5_000  # an owner that has not written for so long is gone, or so slow that another one does better
SEGMENT_BYTES = 4 * 1024 * 1024  # what is older than a day of renewed claims can be compacted away
ROWS_PER_TURN = 25  # decoded before everybody else has a turn: a segment of transactions takes up to a millisecond
ROW_BYTES_MAX = 512 * 1024  # per batch, below the usual max.message.bytes

Row = tuple[bytes, bytes | None]


class Fenced(RuntimeError):
    """Another mirror has taken the flow over."""


class SetBack(RuntimeError):
    """The topic ends before what its owner has written: its cluster was put back to an older state."""


class Unreadable(PermanentError):
    """The topic holds a row that this program cannot read."""


class MapStore:
    """The table of one flow's maps on its target."""

    def __init__(
        self, client: ClusterClient, *, source_alias: str, target_alias: str, clock: Clock, replication_factor: int
    ) -> None:
        self._client = client
        self._clock = clock
        self._aliases = source_alias, target_alias
        self._partition = TopicPartition(offset_map_topic(source_alias), 0)
        self._replication_factor = replication_factor
        self.has_let_go = False
        self._generation = 0
        self._epoch = -1
        self._sequence = 0
        self._in_doubt = False  # the outcome of the last write is not known
        self._last_offset = -1  # of what was written
        self._written_ms = 0.0  # when the last write was carried out, of the monotonic clock

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self._partition.topic

    async def wait_for_turn(self, sleep: Callable[[float], Awaitable[None]], on_wait: Callable[[str], None]) -> None:
        """Return when no other mirror holds the flow; `on_wait` is told once who is waited for.

        `sleep` takes seconds.
        """
        await self._create()
        _, claims = await _read(self._client, self._partition)
        if claims.is_released or not claims.epochs:
            return
        end, since_ms = await self._end(), self._clock.monotonic() * 1000
        told = False
        while (silent_ms := self._clock.monotonic() * 1000 - since_ms) < SILENCE_MS:
            await sleep(min(SILENCE_MS / 10, SILENCE_MS - silent_ms) / 1000)
            asked_ms = self._clock.monotonic() * 1000
            now_end = await self._end()
            if now_end == end:
                since_ms += self._clock.monotonic() * 1000 - asked_ms
                continue
            _, claims = await _read(self._client, self._partition, start=end)
            if claims.is_released:
                return
            if not told:
                on_wait(f"another mirror holds {self.topic}; this one stands by")
                told = True
            end, since_ms = now_end, self._clock.monotonic() * 1000

    async def open(self) -> dict[tuple[str, int], StoredMap]:
        """Create the topic if need be, take it over, and read it. Who raises Unreadable has let go of it again."""
        self.has_let_go = False
        await self._create()
        for _ in range(_CLAIMS_MAX):
            _, claims = await _read(self._client, self._partition)
            self._generation = claims.generation
            if await self._claim_next(claims.epochs.get(self._producer_id, -1)):
                # Rows of the previous owner may have come in between; after the claim no more can.
                try:
                    return await self._read_own()
                except Unreadable:
                    await self.let_go()  # a newer mirror may be standing by
                    raise
        raise Fenced(f"another mirror keeps taking over {self.topic}")

    async def _read_own(self) -> dict[tuple[str, int], StoredMap]:
        """Read the maps without falling silent over it, however many there are."""
        rows, _ = await _read(self._client, self._partition, self.renew)
        return await _folded(self.topic, rows, self.renew)

    async def renew(self) -> None:
        """Show that the owner is alive, unless something was written just now. Raises as `write` does."""
        if self._clock.monotonic() * 1000 - self._written_ms >= RENEW_MS:
            await self._settle_doubt()
            await self._append(self._sign_of_life())

    async def let_go(self) -> None:
        """Tell standbys that they need not wait. Raises as `write` does."""
        await self._settle_doubt()
        await self._append([(_CLAIM_KEY, self._claim_value(secrets.token_bytes(16), is_released=True))])
        self.has_let_go = True

    async def write(self, groups: Sequence[Sequence[Row]]) -> None:
        """Store groups of rows in order; they are durable on return, and something is written in any case.

        Raises Fenced, SetBack, KafkaError or ConnectionFailed.

        When that fails, each group is stored as a whole or not at all, unless it is too large for one batch.
        """
        await self._settle_doubt()
        for part in list(_parts(groups)) or [self._sign_of_life()]:
            await self._append(part)

    async def _create(self) -> None:
        topic = NewTopic(
            name=self.topic,
            partitions=1,
            replication_factor=self._replication_factor,
            configs={"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES)},
        )
        error = (await Admin(self._client).create_topics([topic]))[self.topic]
        if error is not None and not isinstance(error, TopicAlreadyExists):
            raise error

    @property
    def _producer_id(self) -> int:
        return producer_id(*self._aliases, self._partition.topic, 0, self._generation)

    async def _end(self) -> int:
        _, end = await self._client.retrying(lambda: self._client.bounds(self._partition))
        return end

    async def _settle_doubt(self) -> None:
        if self._in_doubt and not await self._claim_next(self._epoch):
            raise self._fenced()

    def _fenced(self) -> Fenced:
        return Fenced(f"another mirror has taken over {self.topic}")

    def _sign_of_life(self) -> list[Row]:
        return [(_CLAIM_KEY, self._claim_value(secrets.token_bytes(16)))]

    def _claim_value(self, token: bytes, *, is_released: bool = False) -> bytes:
        return _CLAIM.pack(token, self._generation, is_released)

    async def _claim_next(self, epoch: int) -> bool:
        """Claim the epoch behind that one, in the next generation if it is the last; False when another was first."""
        if epoch + 1 < _EPOCH_LAST:
            return await self._claim(epoch + 1)
        if epoch < _EPOCH_LAST and not await self._claim(_EPOCH_LAST):
            return False
        self._generation += 1
        return await self._claim(0)

    async def _claim(self, epoch: int) -> bool:
        self._epoch, self._sequence = epoch, 0
        value = self._claim_value(secrets.token_bytes(16))
        try:
            offset = await self._append([(_CLAIM_KEY, value)])
        except Fenced:
            return False
        return await self._value_at(offset) == value

    async def _value_at(self, offset: int) -> bytes | None:
        async def attempt() -> bytes | None:
            node_id = await self._client.leader(self._partition)
            want = FetchWant(self._partition, offset, FETCH_BYTES_MAX)
            for answer in await self._client.fetch(node_id, [want]):
                if answer.error_code:
                    raise fault(answer.error_code, f"{self.topic} at offset {offset}")
                for view in iter_batches(answer.data):
                    for record in decode_records(view):
                        if record.offset == offset:
                            return record.value
            return None

        return await self._client.retrying(attempt)

    async def _append(self, rows: Sequence[Row]) -> int:
        now_ms = self._clock.now_ms()
        batch = build_batch(
            [NewRecord(timestamp=now_ms, key=key, value=value) for key, value in rows],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequence,
        )
        self._in_doubt = True
        try:
            offset = await self._client.append(self._partition, batch)
        except KafkaError as error:
            if error.code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED):
                raise self._fenced() from error
            raise
        if 0 <= offset <= self._last_offset:
            raise SetBack(f"{self.topic} had records up to offset {self._last_offset} and goes on at {offset} now")
        self._last_offset = offset + len(rows) - 1
        self._in_doubt = False
        self._written_ms = self._clock.monotonic() * 1000
        self._sequence = (self._sequence + len(rows)) % 2**31
        return offset


@dataclass(slots=True)
class Claims:
    """Mutable: what the topic says about its owners."""

    epochs: dict[int, int] = field(default_factory=dict)  # the highest by producer id
    generation: int = 0  # of the last claim
    is_released: bool = False  # the last owner has let go


async def read_maps(
    client: ClusterClient, partition: TopicPartition
) -> tuple[dict[tuple[str, int], StoredMap], Claims]:
    """The table by source topic and partition, and who claimed it. Raises Unreadable."""
    rows, claims = await _read(client, partition)
    return await _folded(partition.topic, rows), claims


async def _folded(
    topic: str, rows: Iterable[Row], between: Callable[[], Awaitable[None]] | None = None
) -> dict[tuple[str, int], StoredMap]:
    """The maps that the rows tell; others have their turn, and `between` is called, after some rows each."""
    folded, newest = Replay(), list(dict(rows).items())
    for first in range(0, len(newest), ROWS_PER_TURN):
        try:
            folded.take(newest[first : first + ROWS_PER_TURN])
        except FormatError as error:
            raise Unreadable(f"{topic} holds a row that cannot be read: {error}") from error
        await asyncio.sleep(0)
        if between is not None:
            await between()
    return folded.maps()


async def _read(
    client: ClusterClient,
    partition: TopicPartition,
    between: Callable[[], Awaitable[None]] | None = None,
    *,
    start: int | None = None,
) -> tuple[list[Row], Claims]:
    """The rows of the whole topic, or from `start` on, and who claimed it; `between` is called after each answer."""
    rows: list[Row] = []
    claims = Claims()
    async for answer in client.read(partition, start=start):
        for view in iter_batches(answer.data):
            if view.is_control:
                continue
            claims.epochs[view.producer_id] = max(claims.epochs.get(view.producer_id, -1), view.producer_epoch)
            for record in decode_records(view):
                if record.key == _CLAIM_KEY:
                    _note_claim(claims, record.value or b"")
                elif record.key is not None:  # an owner's come behind its claim; a foreign one holds up nobody
                    rows.append((record.key, record.value))
        if between is not None:
            await between()
    return rows, claims


def _note_claim(claims: Claims, value: bytes) -> None:
    claims.is_released = False
    if len(value) == _CLAIM.size:  # the first version held a token only
        _, claims.generation, is_released = _CLAIM.unpack(value)
        claims.is_released = bool(is_released)


def _parts(groups: Iterable[Sequence[Row]]) -> Iterable[list[Row]]:
    """Batches, none of them too large, that part a group only where it is too large by itself."""
    part: list[Row] = []
    size = 0
    for group in groups:
        if part and size + sum(map(_row_bytes, group)) > ROW_BYTES_MAX:
            yield part
            part, size = [], 0
        for row in group:
            if part and size + _row_bytes(row) > ROW_BYTES_MAX:
                yield part
                part, size = [], 0
            part.append(row)
            size += _row_bytes(row)
    if part:
        yield part


def _row_bytes(row: Row) -> int:
    return len(row[0]) + len(row[1] or b"")
