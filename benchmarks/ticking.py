"""A source of several tasks that tell of every start and tick, as `many_tasks` installs it"""

import json
import os
import time
from collections.abc import Iterator, Sequence

from pydantic import BaseModel, Field

from tidemill import Pos, Record, source, task_split


class TickingSettings(BaseModel):
    """What it is called, and where it tells."""

    topic: str
    label: str = Field(description="Of the connector; each task has one of its own.")
    starts: str = Field(description="A file that gets a line of each start.")
    every_s: float = Field(default=1.0, alias="every.s")


@source("ticking", version="1")
def ticking(cfg: TickingSettings, pos: Pos) -> Iterator[Record]:
    """Says who it is, and when by the clock of the machine: once when it starts, and again and again."""
    this = os.getpid()
    with open(cfg.starts, "a") as file:  # a short line that is appended is whole, whoever else does so
        file.write(f"{cfg.label} {this} {time.monotonic()}\n")
    while True:
        value = json.dumps({"task": cfg.label, "pid": this, "at": time.monotonic()})
        yield Record(topic=cfg.topic, key=None, value=value, partition={"task": cfg.label}, offset={"at": 0})
        time.sleep(cfg.every_s)


@task_split(ticking)
def parts(cfg: TickingSettings, tasks_max: int) -> Sequence[TickingSettings]:
    """As many as there may be."""
    return [cfg.model_copy(update={"label": f"{cfg.label}-{number}"}) for number in range(tasks_max)]
