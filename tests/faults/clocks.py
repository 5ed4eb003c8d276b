"""A wall clock for each node that can be stepped, where there is a C compiler

A time namespace does not move the wall clock, so a library is preloaded that does (`clock.c`).
"""

import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("clock.c")


def missing() -> str | None:
    """None where clocks can be stepped, else why not."""
    return None if shutil.which("cc") else "no C compiler (cc) for the clock that is preloaded"


def library(folder: Path) -> Path:
    """The compiled library."""
    made = folder / "clock.so"
    if not made.exists():
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(made), str(SOURCE), "-ldl"], check=True)
    return made


class Clock:
    """That of one node."""

    def __init__(self, file: Path, preloaded: Path) -> None:
        self._file = file
        self.environ = {"TIDEMILL_CLOCK": str(file), "LD_PRELOAD": str(preloaded)}
        self.step(0)

    def step(self, seconds: float) -> None:
        """From now on it is off by so much, forwards or backwards, of the machine's."""
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(int(seconds * 1e9).to_bytes(8, "little", signed=True))
