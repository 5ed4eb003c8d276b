"""What a flow keeps in memory, and whether there is room for more

A batch that waits for the target is a view into the answer it was fetched with (its frame), and keeps all of it: a
batch of a hundred bytes may pin megabytes. So whole frames are counted, each once and until nobody needs it; batches
that own their bytes are counted by themselves; and a fetch in flight counts with the most that it may bring.
"""

MEMORY_BYTES_MAX = 256 * 1024 * 1024
IN_FLIGHT_BYTES_MAX = MEMORY_BYTES_MAX // 2  # aimed at for all fetches in flight: leaders share it


class Memory:
    """The bytes of one flow. Mutable; `own_bytes` is kept by the flow."""

    def __init__(self, bytes_max: int = MEMORY_BYTES_MAX) -> None:
        self.own_bytes = 0
        self.in_flight_bytes = 0  # kept by the fetcher: what its requests may still bring
        self._bytes_max = bytes_max
        self._frames: dict[int, tuple[int, int]] = {}  # number: (bytes, holders)
        self._frame_bytes = 0
        self._next_frame = 0

    @property
    def held_bytes(self) -> int:
        """What is pinned, and what may come at any moment."""
        return self._frame_bytes + self.own_bytes + self.in_flight_bytes

    @property
    def is_full(self) -> bool:
        """Whether reading has to pause."""
        return self.held_bytes >= self._bytes_max

    def open(self, size_bytes: int, holders: int) -> int:
        """Count an answer until that many holders have released it; returns its number, 0 for one without holders."""
        if not holders:
            return 0
        self._next_frame += 1
        self._frames[self._next_frame] = (size_bytes, holders)
        self._frame_bytes += size_bytes
        return self._next_frame

    def release(self, frame: int) -> bool:
        """One holder needs the frame no more; True when memory became free."""
        size_bytes, holders = self._frames.pop(frame)
        if holders > 1:
            self._frames[frame] = (size_bytes, holders - 1)
            return False
        self._frame_bytes -= size_bytes
        return True
