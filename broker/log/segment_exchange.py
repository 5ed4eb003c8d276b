"""The exchange of old segments for a cleaned one, in memory and on disk

In memory first, and in one turn of the event loop: from then on no read goes to the old segments. On the disk the names
follow in the steps of `swap`, in the flusher's thread. A disk that is full before the replacement is decided leaves
everything as it was, in both places; any later failure ends the folder.
"""

from collections.abc import Callable, Sequence
from functools import partial

from tidemill.core.runtime.disk import DISK_FULL

from . import swap
from .flusher import Flusher
from .partition import PartitionLog
from .removals import DelayedRemovals
from .segment import Segment


class SegmentExchange:
    """Exchanges segments of the logs of one folder."""

    def __init__(self, flusher: Flusher, removals: DelayedRemovals, on_failure: Callable[[OSError], None]) -> None:
        self._flusher = flusher
        self._removals = removals
        self._on_failure = on_failure

    async def replace(self, partition_log: PartitionLog, old: Sequence[Segment], cleaned: Segment) -> bool:
        """Let `cleaned` be in the place of `old`, on the disk too; False if they are not there any more.

        Nor while the end of the log is being cut off: who does that reads the segments' files in a thread of its own.
        Raises OSError when there is no room for it; then everything is as it was.
        """
        if partition_log.cutting or not partition_log.replace_segments(list(old), [cleaned]):
            cleaned.close()
            return False
        directory, base_offset = partition_log.directory, cleaned.base_offset
        old_offsets = [segment.base_offset for segment in old]
        partition_log.replacing = True
        try:
            await self._flusher.between_rounds(partial(swap.exchange, directory, base_offset, old_offsets))
        except OSError as error:
            if error.errno in DISK_FULL and self._took_back(partition_log, old, cleaned):
                raise
            self._on_failure(error)
            raise
        finally:
            partition_log.replacing = False
        cleaned.indexes.take_names()
        for segment in old:
            segment.close()
        remove = partial(swap.remove_replaced, directory, base_offset, old_offsets)
        self._removals.later(partition_log.config.file_delete_delay_ms, remove)
        return True

    @staticmethod
    def _took_back(partition_log: PartitionLog, old: Sequence[Segment], cleaned: Segment) -> bool:
        """Undo it in memory; False if the log has neither the one nor the other."""
        if partition_log.closed:  # with its topic: what is in it now is closed with it, and only that
            unused = old
        elif partition_log.replace_segments([cleaned], list(old)):
            unused = [cleaned]
        else:
            return False
        for segment in unused:
            segment.close()
        return True
