"""ProcessSource: a source that is a program in any language

The plugin's bytes go to Kafka as they are, in batches, and its offsets are stored once these are acknowledged, by the
same rules as of any source. It is told which converters are in force, since transforms, if there are any, read its
bytes by them.
"""

from collections.abc import Mapping, Sequence
from importlib.metadata import version

from tidemill.connect.api import (
    Fatal,
    InvalidConfig,
    NotConnected,
    Plugin,
    PluginKind,
    SourceOffset,
    SourceOutput,
    SourcePartition,
    SourceTask,
    TaskContext,
)
from tidemill.connect.plugins.process import record_protocol_pb2 as pb
from tidemill.connect.plugins.process.batches import encoded_all
from tidemill.connect.plugins.process.dialogue import Dialogue
from tidemill.connect.plugins.process.positions import read_partition, written
from tidemill.connect.plugins.process.preflight import check_as, introduced
from tidemill.connect.plugins.process.settings import ProcessSettings, plugin_config
from tidemill.connect.plugins.process.starting import start_request, started

POLL_WAIT_MS = 400  # of the half second that a poll may take, to leave some for the way
POLL_RECORDS_MAX = 2_000
POLL_BYTES_MAX = 4 << 20


class ProcessSource(SourceTask):
    """Asks the plugin for batches."""

    def __init__(self, settings: ProcessSettings) -> None:
        self._settings = settings
        self._dialogue: Dialogue | None = None
        self._wanted: list[str] = []  # partitions whose stored offsets it is to be told
        self._stored: dict[str, str] = {}  # offsets, by partition, that it is to be told are stored

    def start(self, context: TaskContext) -> None:
        """Start the program, and tell it where it stands."""
        self.stop()
        self._offsets = context.offsets
        dialogue = self._dialogue = started(self._settings, context, pb.SOURCE)
        answer = dialogue.ask(pb.ToPlugin(start=start_request(context, dialogue.described.settings)))
        self._wanted = list(answer.started.wanted)
        self._tell_positions(dialogue)

    def poll(self) -> Sequence[SourceOutput]:
        """Ask for what is there."""
        if self._dialogue is None:
            raise NotConnected("the plugin process does not run")
        self._tell_positions(self._dialogue)
        self._tell_stored(self._dialogue)
        request = pb.Poll(wait_ms=POLL_WAIT_MS, records_max=POLL_RECORDS_MAX, bytes_max=POLL_BYTES_MAX)
        polled = self._dialogue.ask(pb.ToPlugin(poll=request)).polled
        try:
            batches = encoded_all(polled.batches)
        except ValueError as error:
            raise Fatal(
                f"the plugin {self._dialogue.described.name!r} returned what cannot be taken: {error}"
            ) from error
        self._wanted = list(polled.wanted)
        return batches

    def committed(self, partition: SourcePartition, offset: SourceOffset) -> None:
        """Tell the plugin with the next request."""
        self._stored[written(partition)] = written(offset)

    def stop(self) -> None:
        """Have the program end."""
        if self._dialogue is None:
            return
        dialogue, self._dialogue = self._dialogue, None
        try:
            if not dialogue.failed:
                self._tell_stored(dialogue, self._settings.stop_timeout_ms / 1000)
        finally:
            dialogue.stop()

    def _tell_positions(self, dialogue: Dialogue) -> None:
        if not self._wanted:
            return
        try:
            positions = [self._position(each) for each in self._wanted]
        except ValueError as error:
            raise Fatal(f"the plugin {dialogue.described.name!r} wants to know of what cannot be: {error}") from error
        dialogue.ask(pb.ToPlugin(position=pb.Position(positions=positions)))
        self._wanted = []

    def _position(self, partition: str) -> pb.SourcePosition:
        offset = self._offsets(read_partition(partition))
        return pb.SourcePosition(source_partition=partition, source_offset=None if offset is None else written(offset))

    def _tell_stored(self, dialogue: Dialogue, timeout_s: float | None = None) -> None:
        if not self._stored:
            return
        positions = [pb.SourcePosition(source_partition=each, source_offset=at) for each, at in self._stored.items()]
        dialogue.ask(pb.ToPlugin(commit=pb.Commit(positions=positions)), timeout_s=timeout_s)
        self._stored.clear()


def split(settings: ProcessSettings, tasks_max: int) -> Sequence[Mapping[str, str]]:
    """Have the plugin divide its work."""
    dialogue = introduced(settings, pb.SOURCE)
    try:
        config = plugin_config(settings.flat())
        divided = dialogue.ask(pb.ToPlugin(split=pb.Split(config=config, tasks_max=tasks_max))).divided
    finally:
        dialogue.stop()
    found = [dict(each.changes) for each in divided.tasks]
    for changes in found:
        for name in changes:
            if name.startswith("process."):
                raise InvalidConfig(name, "A plugin must not change how its tasks are started.")
    return found


process_source = Plugin(
    name="ProcessSource",
    kind=PluginKind.SOURCE,
    version=version("tidemill"),
    config=ProcessSettings,
    task=ProcessSource,
    split=split,
    check=check_as(pb.SOURCE),
    doc="Runs a source that is a program in any language, by the record protocol.",
)
