"""What has changed of a partition that somebody has read to its end"""

import enum
from collections.abc import Callable
from typing import TypeAlias


class Moved(enum.Enum):
    """Told to whoever wants to hear of the next change; see `Replica.listen`."""

    COMMITTED = enum.auto()  # the high watermark, or it is of no use any more
    APPENDED = enum.auto()  # committed or not; or it begins elsewhere, or is of no use any more
    OTHER = enum.auto()  # how it is led, or where it begins: nobody who waits for records cares


Stir: TypeAlias = Callable[[Moved], None]
