"""The processes below one, found by their command line: those that end while they are looked at are not among them"""

from contextlib import suppress

import psutil


def processes_below(pid: int, words: str) -> list[psutil.Process]:
    """The processes below `pid`, at any depth, with `words` in their command line."""
    found = []
    for process in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if words in " ".join(process.cmdline()):
                found.append(process)
    return found
