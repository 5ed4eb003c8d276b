"""The map topic on the target, owned by one mirror at a time

The topic is a table (`tidemill.mirror.map_records`), so an old version of a row that arrived late would undo a newer
one. Writes are therefore idempotent, under the flow's producer id for this topic, and one at a time.

Whoever opens the store takes it over: it claims the next producer epoch with a record that holds a random token and
reads that record back. If another mirror claimed the same epoch in the same moment, one of the two finds the other's
token and claims the next. From then on the target refuses writes of the previous owner, which stops (`Fenced`). A write
whose outcome is unknown is followed by a claim too, so that it cannot be mistaken for the one after it.
"""

import secrets
import struct
from collections.abc import Iterable, Sequence

import structlog

from tidemill.core.client.admin import Admin, NewTopic
from tidemill.core.client.batches import FetchWant
from tidemill.core.client.cluster import FETCH_BYTES_MAX, ClusterClient
from tidemill.core.client.retries import fault
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError, TopicAlreadyExists
from tidemill.core.records.batch import iter_batches
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord, decode_records
from tidemill.core.runtime.clock import Clock
from tidemill.core.types import TopicPartition
from tidemill.mirror.identity import producer_id
from tidemill.mirror.map_records import StoredMap, replay
from tidemill.mirror.naming import offset_map_topic

_log = structlog.get_logger("tidemill.mirror")

_CLAIM_KEY = struct.pack(">h", -1)  # a version no segment key has
_EPOCH_MAX = 2**15 - 1
_CLAIMS_MAX = 20
ROW_BYTES_MAX = 512 * 1024  # per batch, below the usual max.message.bytes

Row = tuple[bytes, bytes | None]


class Fenced(RuntimeError):
    """Another mirror has taken over the flow."""


class MapStore:
    """The table of one flow's maps on its target."""

    def __init__(
        self, client: ClusterClient, *, source_alias: str, target_alias: str, clock: Clock, replication_factor: int
    ) -> None:
        self._client = client
        self._clock = clock
        self._partition = TopicPartition(offset_map_topic(source_alias), 0)
        self._producer_id = producer_id(source_alias, target_alias, self._partition.topic, 0)
        self._replication_factor = replication_factor
        self._epoch = -1
        self._sequence = 0
        self._in_doubt = False  # the outcome of the last write is not known

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self._partition.topic

    async def open(self) -> dict[tuple[str, int], StoredMap]:
        """Create the topic if need be, take it over, and read it."""
        await self._create()
        for _ in range(_CLAIMS_MAX):
            _, last_epoch = await read_maps(self._client, self._partition, self._producer_id)
            if await self._claim(last_epoch + 1):
                # Rows of the previous owner may have come in between; after the claim no more can.
                maps, _ = await read_maps(self._client, self._partition, self._producer_id)
                return maps
        raise Fenced(f"another mirror keeps taking over {self.topic}: stop one of the two")

    async def write(self, groups: Sequence[Sequence[Row]]) -> None:
        """Store groups of rows in order; they are durable on return. Raises Fenced, KafkaError or ConnectionFailed.

        When that fails, each group is stored as a whole or not at all, unless it is too large for one batch.
        """
        if self._in_doubt and not await self._claim(self._epoch + 1):
            raise Fenced(f"another mirror has taken over {self.topic}; this one stops")
        for part in _parts(groups):
            await self._append(part)

    async def _create(self) -> None:
        topic = NewTopic(
            name=self.topic,
            partitions=1,
            replication_factor=self._replication_factor,
            configs={"cleanup.policy": "compact"},
        )
        error = (await Admin(self._client).create_topics([topic]))[self.topic]
        if error is not None and not isinstance(error, TopicAlreadyExists):
            raise error

    async def _claim(self, epoch: int) -> bool:
        if epoch > _EPOCH_MAX:
            raise Fenced(f"{self.topic} has no producer epoch left after {_EPOCH_MAX} starts: delete the topic")
        self._epoch, self._sequence = epoch, 0
        token = secrets.token_bytes(16)
        try:
            offset = await self._append([(_CLAIM_KEY, token)])
        except Fenced:
            return False
        return await self._value_at(offset) == token

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
                raise Fenced(f"another mirror has taken over {self.topic}; this one stops") from error
            raise
        self._in_doubt = False
        self._sequence = (self._sequence + len(rows)) % 2**31
        return offset


async def read_maps(
    client: ClusterClient, partition: TopicPartition, owner: int
) -> tuple[dict[tuple[str, int], StoredMap], int]:
    """The whole table by source topic and partition, and the highest epoch of the producer id `owner` (-1 for none)."""
    rows: list[Row] = []
    epoch = -1
    async for answer in client.read(partition):
        for view in iter_batches(answer.data):
            if view.is_control:
                continue
            if view.producer_id == owner:
                epoch = max(epoch, view.producer_epoch)
            rows.extend(
                (record.key, record.value)
                for record in decode_records(view)
                if record.key is not None and record.key != _CLAIM_KEY
            )
    return replay(rows), epoch


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
