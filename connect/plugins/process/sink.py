"""ProcessSink: a sink that is a program in any language

What the converters made of a record is handed over in batches: bytes and text as they are, everything else as JSON.
With ByteArrayConverter the plugin has the bytes of the topic. The consumer group's offsets are committed once the
plugin has answered a Flush.
"""

from collections.abc import Mapping, Sequence
from importlib.metadata import version

from tidemill.connect.api import (
    Fatal,
    NotConnected,
    PartialFailure,
    Plugin,
    PluginKind,
    Record,
    RetryAfter,
    SinkTask,
    TaskContext,
)
from tidemill.connect.plugins.process import record_protocol_pb2 as pb
from tidemill.connect.plugins.process.batches import puts
from tidemill.connect.plugins.process.dialogue import Dialogue
from tidemill.connect.plugins.process.failures import RETRY_MIN_S
from tidemill.connect.plugins.process.preflight import check_as
from tidemill.connect.plugins.process.settings import ProcessSettings
from tidemill.connect.plugins.process.starting import start_request, started

Place = tuple[str, int]


class ProcessSink(SinkTask):
    """Hands batches to the plugin."""

    def __init__(self, settings: ProcessSettings) -> None:
        self._settings = settings
        self._dialogue: Dialogue | None = None
        self._begun: tuple[Sequence[Record], int, dict[int, Exception]] = ((), 0, {})  # see `put`

    def start(self, context: TaskContext) -> None:
        """Start the program."""
        self.stop()
        dialogue = self._dialogue = started(self._settings, context, pb.SINK)
        dialogue.ask(pb.ToPlugin(start=start_request(context, dialogue.described.settings)))

    def open(self, partitions: Sequence[Place]) -> Mapping[Place, int]:
        """Tell it of partitions; it may know better where they stand."""
        opened = self._ask_now(pb.ToPlugin(open=pb.Open(partitions=_places(partitions)))).opened
        found = {(each.topic, each.partition): each.offset for each in opened.positions}
        for place, offset in found.items():
            if place not in partitions or offset < 0:
                raise Fatal(f"the plugin wants to read {place[0]}-{place[1]} from {offset} on, which cannot be")
        return found

    def close(self, partitions: Sequence[Place]) -> None:
        """Tell it of partitions that are gone; one that runs no more need not know."""
        if self._dialogue is not None and not self._dialogue.failed:
            self._ask_now(pb.ToPlugin(close=pb.Close(partitions=_places(partitions))))

    def put(self, records: Sequence[Record]) -> None:
        """Hand a batch over, in as many requests as its bytes need.

        Where the plugin asks for patience the same batch comes again: it goes on with the request that was not taken.
        """
        offered, begin, refused = self._begun
        if offered is not records:
            begin, refused = 0, {}
        try:
            for index, request in puts(records, begin, unsayable=refused.__setitem__):
                begin = index
                refused |= self._refusals(begin, request)
        except RetryAfter:
            self._begun = records, begin, refused
            raise
        self._begun = (), 0, {}
        if refused:
            raise PartialFailure(refused)

    def _refusals(self, begin: int, request: pb.Put) -> dict[int, Exception]:
        """What the plugin refuses of a request, by the index in the whole batch."""
        count = sum(len(each.values) for each in request.batches)
        found: dict[int, Exception] = {}
        for refusal in self._ask(pb.ToPlugin(put=request)).taken.refused:
            if refusal.index >= count:
                raise Fatal(f"the plugin refused record {refusal.index} of a batch of {count}")
            reason = refusal.message or "the plugin gave no reason"
            found[begin + refusal.index] = RetryAfter(RETRY_MIN_S, reason) if refusal.retry else ValueError(reason)
        return found

    def flush(self) -> None:
        """Have it make durable what it has taken in."""
        self._ask(pb.ToPlugin(flush=pb.Flush()))

    def stop(self) -> None:
        """Have the program end."""
        if self._dialogue is not None:
            dialogue, self._dialogue = self._dialogue, None
            dialogue.stop()

    def _ask(self, request: pb.ToPlugin) -> pb.FromPlugin:
        if self._dialogue is None:
            raise NotConnected("the plugin process does not run")
        return self._dialogue.ask(request)

    def _ask_now(self, request: pb.ToPlugin) -> pb.FromPlugin:
        """Ask in the midst of a rebalance, after which it is too late: who wants to be asked again is started anew."""
        try:
            return self._ask(request)
        except RetryAfter as later:
            raise NotConnected(str(later)) from later


def _places(partitions: Sequence[Place]) -> list[pb.TopicPartition]:
    return [pb.TopicPartition(topic=topic, partition=partition) for topic, partition in partitions]


process_sink = Plugin(
    name="ProcessSink",
    kind=PluginKind.SINK,
    version=version("tidemill"),
    config=ProcessSettings,
    task=ProcessSink,
    check=check_as(pb.SINK),
    doc="Runs a sink that is a program in any language, by the record protocol.",
)
