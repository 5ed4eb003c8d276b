"""The output of a process whose threads print at the same time

The worker reads lines and has to tell whose each is. `print` writes a text and then the end of its line, so what two
threads print at once would come as one line and an empty one, and a line of a logger, with its level and the name of
its task, would be none any more. Here each thread has a line of its own until that is complete, or flushed.
"""

import io
import threading
from typing import Final

BEGUN_MAX: Final = 4096
"""Characters of a line that does not end: it is cut there."""


class LineOutput(io.TextIOWrapper):
    """Used like `sys.stdout`, over a descriptor; it writes whole lines, each in one go."""

    def __init__(self, descriptor: int) -> None:
        raw = io.FileIO(descriptor, "wb", closefd=False)
        super().__init__(raw, encoding="utf-8", errors="backslashreplace", write_through=True)
        self._begun = threading.local()

    def write(self, text: str, /) -> int:
        """Take a text; what is behind its last end of a line waits for its own."""
        whole, end, begun = text.rpartition("\n")
        if end:
            super().write(self._rest() + whole + end)
            self._begun.text = begun
        else:
            self._begun.text = self._rest() + begun
        if len(self._rest()) > BEGUN_MAX:
            self.flush()
        return len(text)

    def flush(self) -> None:
        """End the line that this thread has begun."""
        if rest := self._rest():
            self._begun.text = ""
            super().write(rest + "\n")
        super().flush()

    def _rest(self) -> str:
        return getattr(self._begun, "text", "")
