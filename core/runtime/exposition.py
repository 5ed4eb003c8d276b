"""Metrics in Prometheus' text format, written piece by piece

For a process that counts in plain numbers and writes them out when it is asked. A family is a name with its samples,
and a sample a text (suffix and labels) with a number; so what many families have in common, the labels of ten thousand
partitions, is made once. The writing gives way every half millisecond or so, for another thread serves meanwhile.

Not here: the meaning of any metric. Processes that count little use prometheus_client instead (`collected_parts`).
"""

import time
from collections.abc import Callable, Iterable
from typing import Final, Literal, NamedTuple

LINES_PER_TURN: Final = 500
"""A line takes about a microsecond."""

PAUSE_S: Final = 0.0001
"""Any sleep lets another thread have the interpreter, however short."""

Kind = Literal["counter", "gauge", "histogram", "summary"]

Sample = tuple[str, float]
"""What follows the name, from the suffix to the closing brace, and the value."""


class Family(NamedTuple):
    """All samples of one name; that of a counter ends in `_total`."""

    name: str
    kind: Kind
    doc: str
    samples: Iterable[Sample]


def labels(**values: str) -> str:
    """The labels of a sample, as they stand behind its name.

    >>> labels(topic="a", group='x"y')
    '{topic="a",group="x\\\\"y"}'
    """
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in values.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def give_way() -> None:
    """Let another thread run."""
    time.sleep(PAUSE_S)


def write(families: Iterable[Family], give_way: Callable[[], None] = give_way) -> bytes:
    """The text of all `families`; `give_way` is called every `LINES_PER_TURN` lines."""
    pieces: list[bytes] = []
    lines: list[str] = []
    for name, kind, doc, samples in families:
        lines.append(f"# HELP {name} {doc}\n# TYPE {name} {kind}\n")
        for what, value in samples:
            lines.append(f"{name}{what} {value}\n")
            if len(lines) >= LINES_PER_TURN:
                pieces.append("".join(lines).encode("utf-8", "replace"))
                lines = []
                give_way()
    pieces.append("".join(lines).encode("utf-8", "replace"))
    return b"".join(pieces)
