"""The start of a plugin for a task, be it a source or a sink"""

from collections.abc import Sequence

from tidemill.connect.api import ConverterSpec, Fatal, TaskContext
from tidemill.connect.plugins.process import record_protocol_pb2 as pb
from tidemill.connect.plugins.process.child import CannotStart
from tidemill.connect.plugins.process.commands import NotAllowed
from tidemill.connect.plugins.process.definitions import with_defaults
from tidemill.connect.plugins.process.dialogue import Dialogue
from tidemill.connect.plugins.process.settings import COMMAND, ProcessSettings, plugin_config


def started(settings: ProcessSettings, context: TaskContext, role: "pb.Role") -> Dialogue:
    """The task's plugin process, which has said who it is; raises control errors."""
    try:
        dialogue = Dialogue(settings, context.config, role, stopping=context.stopping, problem=context.problem)
    except NotAllowed as error:
        raise Fatal(f"{error.field_name}: {error}") from error
    except CannotStart as error:
        raise Fatal(f"{COMMAND}: {error}") from error
    described = dialogue.described
    context.report({"plugin": described.name, "plugin-version": described.version, "plugin-pid": str(dialogue.pid)})
    return dialogue


def start_request(context: TaskContext, settings: Sequence[pb.Setting]) -> pb.Start:
    """What a plugin is told when its work begins."""
    return pb.Start(
        connector=context.connector,
        task=context.task,
        config=with_defaults(settings, plugin_config(context.config)),
        key_converter=_converter(context.key_converter),
        value_converter=_converter(context.value_converter),
    )


def _converter(spec: ConverterSpec) -> pb.Converter:
    return pb.Converter(kind=spec.kind, options=dict(spec.options))
