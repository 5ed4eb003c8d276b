"""What a follower demands of the batches that its leader sends

They come as the leader has them, with offsets and leader epochs, and go into the log as they are: nothing is stamped,
no sequence number is judged, no limit of size applies, since the leader has done all that. What is checked is what the
network or another broker's fault could have broken: whole batches of format v2, each matching its CRC, offsets and
epochs going on from where the log ends. Between two batches offsets may be missing: the leader's cleaner took them.
Pure.
"""

from tidemill.core.errors import CorruptMessage, OffsetOutOfRange
from tidemill.core.records.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    crc_matches,
    plausible_size,
    read_header,
)

from .index import RELATIVE_OFFSET_MAX


def check_replicated(
    data: bytes | bytearray | memoryview, due: int, leader_epoch: int
) -> list[tuple[int, BatchHeader]]:
    """Position and header of every batch, of a log that ends at `due` in `leader_epoch`; raises KafkaError."""
    found: list[tuple[int, BatchHeader]] = []
    position, size_bytes = 0, len(data)
    while position < size_bytes:
        if size_bytes - position < HEADER_BYTES:
            raise CorruptMessage(f"{size_bytes - position} bytes behind the last whole batch")
        header = read_header(data, position)
        end = position + header.length + LOG_OVERHEAD_BYTES
        last_offset = header.base_offset + header.last_offset_delta
        if not plausible_size(header) or end > size_bytes:
            raise CorruptMessage(f"no whole record batch at byte {position} of {size_bytes}")
        if not crc_matches(data, position, header):
            raise CorruptMessage(f"the record batch at byte {position} fails its checksum {header.crc:#010x}")
        if header.base_offset < due:
            raise OffsetOutOfRange(f"a batch with offset {header.base_offset} where {due} was due")
        if last_offset - due >= RELATIVE_OFFSET_MAX:
            raise OffsetOutOfRange(f"a batch up to offset {last_offset}, too far from {due} for one segment")
        if header.leader_epoch < leader_epoch:
            raise CorruptMessage(f"a batch of leader epoch {header.leader_epoch} behind one of {leader_epoch}")
        found.append((position, header))
        due, leader_epoch = last_offset + 1, header.leader_epoch
        position = end
    return found
