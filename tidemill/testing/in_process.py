"""A plugin run in the test's own process, without a broker

`run_source` starts a source and collects what it yields; `feed_sink` gives a sink some records. Both treat the plugin
as a task process does: the configuration is the connector's, parsed by the plugin's own model, and `start`, `poll` or
`put`, `flush` and `stop` come in the order the runtime keeps. What the runtime would do with an error is for the test
to see, so errors of the plugin are raised as they are; only the end of the input, and the records a sink refuses by
name, are part of the answer.

A function behind `@source` or `@sink` can also be called directly. What this adds: settings as the user writes them,
offsets, threads and event loops as in production.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from tidemill.connect.api import (
    ConverterSpec,
    EndOfInput,
    Json,
    PartialFailure,
    Plugin,
    Record,
    SinkTask,
    SourceOffset,
    SourceOutput,
    SourcePartition,
    SourceTask,
    TaskContext,
)
from tidemill.connect.settings import parse_settings

TIMEOUT_S = 10.0


@dataclass(slots=True, kw_only=True)
class SourceRun:
    """What a source did."""

    outputs: list[SourceOutput] = field(default_factory=list)  # records and encoded batches, in order
    offsets: list[tuple[SourcePartition, SourceOffset]] = field(default_factory=list)  # the last of each partition
    completed: bool = False  # it has reached the end of its input
    facts: dict[str, Json] = field(default_factory=dict)  # what it reported last

    @property
    def values(self) -> list[Json]:
        """The values of all records, encoded ones as bytes."""
        found: list[Json] = []
        for each in self.outputs:
            found += [each.value] if isinstance(each, Record) else each.values
        return found


@dataclass(slots=True, kw_only=True)
class SinkRun:
    """What a sink did."""

    refused: dict[int, Exception] = field(default_factory=dict)  # by the index of the record
    facts: dict[str, Json] = field(default_factory=dict)


def run_source(
    plugin: Plugin,
    config: Mapping[str, str],
    *,
    offsets: Sequence[tuple[SourcePartition, SourceOffset]] = (),
    count: int | None = None,
    timeout_s: float = TIMEOUT_S,
) -> SourceRun:
    """Run a source until its input ends, or until it has yielded `count` outputs at least.

    `offsets` are what is stored when it starts: those of an earlier run let it resume. They are told as committed as
    soon as they are yielded. Raises what the plugin raises, and TimeoutError with what there was so far.
    """
    run = SourceRun()
    places = {_identity(partition): (partition, offset) for partition, offset in offsets}
    task = plugin.task(parse_settings(plugin, config))
    if not isinstance(task, SourceTask):
        raise TypeError(f"{plugin.name} is not a source")
    deadline = time.monotonic() + timeout_s
    stored = {identity: offset for identity, (_, offset) in places.items()}
    try:
        task.start(_context(config, run.facts, stored))
        while count is None or len(run.outputs) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{plugin.name} yielded {len(run.outputs)} outputs within {timeout_s:g} s: {run}")
            for output in task.poll():
                run.outputs.append(output)
                if output.partition is not None and output.offset is not None:
                    places[_identity(output.partition)] = (output.partition, output.offset)
                    task.committed(output.partition, output.offset)
    except EndOfInput:
        run.completed = True
    finally:
        task.stop()
    run.offsets = list(places.values())
    return run


def feed_sink(plugin: Plugin, config: Mapping[str, str], *batches: Sequence[Record]) -> SinkRun:
    """Give a sink some batches, then have it flush and stop.

    A record without `topic`, `kafka_partition` and `kafka_offset` gets some. Records the sink refuses by name are in
    the answer, counted over all batches; whatever else it raises is raised.
    """
    run = SinkRun()
    placed = _placed(batches)
    partitions = sorted({(each.topic or "", each.kafka_partition or 0) for batch in placed for each in batch})
    task = plugin.task(parse_settings(plugin, config))
    if not isinstance(task, SinkTask):
        raise TypeError(f"{plugin.name} is not a sink")
    given = 0
    try:
        task.start(_context(config, run.facts, {}))
        task.open(partitions)
        for batch in placed:
            try:
                task.put(batch)
            except PartialFailure as failure:
                run.refused |= {given + index: error for index, error in failure.errors.items()}
            given += len(batch)
        task.flush()
        task.close(partitions)
    finally:
        task.stop()
    return run


def _placed(batches: Sequence[Sequence[Record]]) -> list[list[Record]]:
    placed: list[list[Record]] = []
    number = 0
    for batch in batches:
        placed.append([])
        for record in batch:
            changes: dict[str, Any] = {}
            if record.topic is None:
                changes["topic"] = "test"
            if record.kafka_partition is None:
                changes["kafka_partition"] = 0
            if record.kafka_offset is None:
                changes["kafka_offset"] = number
            placed[-1].append(replace(record, **changes))
            number += 1
    return placed


def _context(config: Mapping[str, str], facts: dict[str, Json], stored: Mapping[bytes, SourceOffset]) -> TaskContext:
    converter = ConverterSpec(kind="json", options={"schemas.enable": "false"})
    return TaskContext(
        connector=config.get("name", "test"),
        task=0,
        config=config,
        bootstrap_servers="",
        client_config={},
        key_converter=converter,
        value_converter=converter,
        offsets=lambda partition: stored.get(_identity(partition)),
        stopping=lambda: False,
        report=facts.update,
    )


def _identity(partition: SourcePartition) -> bytes:
    return orjson.dumps(dict(partition), option=orjson.OPT_SORT_KEYS)
