"""Sources that are bad neighbours, and one that is not, as `bad_neighbours` installs them"""

import ctypes
import time
from collections.abc import Iterator

from pydantic import BaseModel, Field

from tidemill import Pos, Record, source

HOARDED_AT_ONCE = 16 << 20


class SteadySettings(BaseModel):
    """How a steady source ticks."""

    topic: str
    per_s: int = Field(default=0, alias="per.s", description="Records a second; 0: as many as it can")


class NoSettings(BaseModel):
    """A topic, which stays empty."""

    topic: str


@source("steady", version="1")
def steady(cfg: SteadySettings, pos: Pos) -> Iterator[Record]:
    """Gives the same record again and again, in ten portions a second."""
    record = Record(topic=cfg.topic, key=None, value="x" * 100, partition={"topic": cfg.topic}, offset={"at": 0})
    due = time.monotonic()
    while True:
        for _ in range(cfg.per_s // 10 or 1_000):
            yield record
        if cfg.per_s:
            due += 0.1
            time.sleep(max(0.0, due - time.monotonic()))


@source("hoarder", version="1")
def hoarder(cfg: NoSettings, pos: Pos) -> Iterator[Record]:
    """Allocates without bound."""
    hoard: list[bytes] = []
    while True:
        hoard.append(b"x" * HOARDED_AT_ONCE)
        time.sleep(0.02)
    yield


@source("spinner", version="1")
def spinner(cfg: NoSettings, pos: Pos) -> Iterator[Record]:
    """Computes for ever."""
    count = 0
    while True:
        count += 1
    yield


@source("hanger", version="1")
def hanger(cfg: NoSettings, pos: Pos) -> Iterator[Record]:
    """Hangs in C, with the lock of the interpreter."""
    mutex, library = ctypes.create_string_buffer(64), ctypes.PyDLL(None)
    while True:  # the second time it waits for itself
        library.pthread_mutex_lock(mutex)
    yield
