"""The check of a produced batch's records, where its header is too little

A batch is stored by its header, its CRC and its counts. Its records are looked at where somebody wants it: in topics
that are to be compacted, where one without a key could never be; in those with a codec of their own (`recode`);
everywhere under `log.record.validation=records`; and when the header says that the time of some record is not allowed,
to find which.

That look costs what the records are, not what came in: a kilobyte may expand to a hundred megabytes. So it is an object
that knows all it needs and touches nothing else: it can be run in any thread, and the log that made it goes on. What it
finds holds for the settings it was made with; whoever stores the outcome sees to it that they still hold.
"""

import mmap
from typing import NamedTuple

from tidemill.core.errors import CorruptMessage, InvalidRecord, InvalidTimestamp
from tidemill.core.records.batch import CODEC_MASK, HEADER_BYTES, BatchHeader
from tidemill.core.records.compression import CODECS, decompress, decompress_into
from tidemill.core.records.record import DECOMPRESSED_BYTES_MAX
from tidemill.core.records.validate import validate_records
from tidemill.core.runtime.disk import ByteBuffer

from .config import LONG_MAX, LogConfig
from .recode import recoded

_NONE = CODECS["none"]
COPIED_BYTES_MAX = 2**20  # a bytes object is walked faster than a mapping, and so much is copied in no time


class Examination(NamedTuple):
    """One batch whose records are to be looked at.

    `times` are the first and the last allowed if they have to be judged, `codec` is what the topic wants if it has to
    be changed. `now_ms` and `leader_epoch` are what the batch will be stored with.
    """

    data: ByteBuffer
    batch: BatchHeader
    config: LogConfig
    now_ms: int
    leader_epoch: int
    times: tuple[int, int] | None
    codec: int | None

    def run(self) -> ByteBuffer:
        """The batch as it is to be stored; raises KafkaError. To be called in a thread of its own: it may take seconds.

        What is large is expanded into a mapping. An object of that size would hold up all other threads while the
        kernel hands out its pages; here that happens while a codec writes into them, outside the interpreter's lock.
        """
        packed = memoryview(self.data)[HEADER_BYTES:]
        if self.batch.codec == _NONE:
            return self.outcome(bytes(packed) if len(packed) <= COPIED_BYTES_MAX else packed)
        pages = mmap.mmap(-1, DECOMPRESSED_BYTES_MAX, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        room = memoryview(pages)
        records = room[: self._expand(packed, room)]
        try:
            return self.outcome(bytes(records) if len(records) <= COPIED_BYTES_MAX else records)
        finally:
            records.release()
            room.release()
            pages.close()

    def _expand(self, packed: memoryview, room: memoryview) -> int:
        try:
            return decompress_into(self.batch.codec, packed, room)
        except CorruptMessage as error:
            raise InvalidRecord(str(error)) from error  # it was sent like that: a retry changes nothing

    def records(self, bytes_max: int) -> bytes:
        """The records if they are not more than `bytes_max`; raises MessageTooLarge if they are, and InvalidRecord."""
        try:
            return decompress(self.batch.codec, memoryview(self.data)[HEADER_BYTES:], bytes_max)
        except CorruptMessage as error:
            raise InvalidRecord(str(error)) from error

    def outcome(self, records: bytes | memoryview) -> ByteBuffer:
        """The batch as it is to be stored, whose uncompressed records these are; raises KafkaError."""
        validate_records(self.batch, records, compacted=self.config.compacted, times=self.times)
        if self.codec is None:
            return self.data
        return recoded(self.data, records, self.codec, self.config)


def examination_of(
    data: ByteBuffer, batch: BatchHeader, config: LogConfig, codec: int | None, now_ms: int, leader_epoch: int
) -> Examination | None:
    """What `data` has to go through before it can be stored, if anything, in a topic that wants `codec`.

    Raises InvalidTimestamp for a batch that has append times already.
    """
    times = None
    first_allowed = now_ms - config.message_timestamp_before_max_ms
    last_allowed = now_ms + config.message_timestamp_after_max_ms
    walks_times = config.walks_records and config.message_timestamp_before_max_ms < LONG_MAX
    if config.append_time:
        if batch.timestamp_type:
            raise InvalidTimestamp("a producer cannot send a batch with append times")
    elif (
        batch.max_timestamp > last_allowed
        or 0 <= batch.base_timestamp < first_allowed
        or walks_times  # the header has the first and the latest; another may be older
    ):
        times = first_allowed, last_allowed
    codec = None if batch.attributes & CODEC_MASK == codec else codec
    if config.walks_records or times is not None or codec is not None:
        return Examination(data, batch, config, now_ms, leader_epoch, times, codec)
    return None
