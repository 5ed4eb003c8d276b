"""Waiting longer after every failure in a row"""

INITIAL_S = 1.0
CAP_S = 5.0  # what comes back is noticed within seconds, however long it was away; a try costs about a connect


class Backoff:
    """1 s, 2 s, 4 s, then every 5 s unless told otherwise; a success starts over."""

    def __init__(self, initial_s: float = INITIAL_S, cap_s: float = CAP_S) -> None:
        self._initial_s = initial_s
        self._cap_s = cap_s
        self._next_s = initial_s
        self.attempts = 0

    def next_s(self) -> float:
        """How long to wait this time."""
        delay, self._next_s = self._next_s, min(self._next_s * 2, self._cap_s)
        self.attempts += 1
        return delay

    def reset(self) -> None:
        """It worked."""
        self._next_s = self._initial_s
        self.attempts = 0
