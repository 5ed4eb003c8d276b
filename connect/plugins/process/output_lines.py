"""What a plugin prints, on its way into the log

Lines have a bounded length, and there are so many of them in a second. A plugin that prints megabytes is neither held
up nor believed to have that much to say: what is over the bound is counted and left out. The end of it is kept, to be
quoted when the process ends without a word.
"""

from collections import deque

LINE_BYTES_MAX = 4_000  # a stack's line is far shorter; the rest of a longer one is left out
LINES_MAX = 200  # within a second: several stacks at once
PERIOD_S = 1.0
LAST_LINES = 10
LAST_CHARACTERS_MAX = 2_000


class OutputLines:
    """Lines out of bytes, however they were cut."""

    def __init__(self) -> None:
        self.last: deque[str] = deque(maxlen=LAST_LINES)
        self._rest = b""
        self._cut = False  # the line at hand is too long, and its beginning was given out
        self._period = 0.0
        self._given = 0
        self._left_out = 0

    def take(self, data: bytes, now_s: float) -> list[str]:
        """The lines that are complete and within the bound, and a word on how many were not."""
        found: list[str] = []
        *complete, rest = (self._rest + data).split(b"\n")
        for line in complete:
            if self._cut:
                self._cut = False  # the end of a line whose beginning was given out
            else:
                self._give(line, now_s, found)
        if self._cut:
            rest = b""
        elif len(rest) > LINE_BYTES_MAX:
            self._give(rest, now_s, found)
            rest, self._cut = b"", True
        self._rest = rest
        return found

    def end(self, now_s: float) -> list[str]:
        """Nothing follows: the last line needs no end."""
        found: list[str] = []
        if self._rest:
            self._give(self._rest, now_s, found)
            self._rest = b""
        self._tell_left_out(found)
        return found

    def last_words(self) -> str:
        """The end of what was printed, on one line; empty when that is nothing."""
        words = " | ".join(line.strip() for line in self.last if line.strip())
        return words if len(words) <= LAST_CHARACTERS_MAX else f"…{words[-LAST_CHARACTERS_MAX:]}"

    def _give(self, line: bytes, now_s: float, found: list[str]) -> None:
        text = line[:LINE_BYTES_MAX].decode("utf-8", "replace").rstrip("\r")
        if len(line) > LINE_BYTES_MAX:
            text += "…"
        self.last.append(text)
        if now_s - self._period >= PERIOD_S:
            self._period, self._given = now_s, 0
            self._tell_left_out(found)
        if self._given >= LINES_MAX:
            self._left_out += 1
            return
        self._given += 1
        found.append(text)

    def _tell_left_out(self, found: list[str]) -> None:
        if self._left_out:
            found.append(f"… {self._left_out} lines left out, of more than {LINES_MAX} in a second")
            self._left_out = 0
