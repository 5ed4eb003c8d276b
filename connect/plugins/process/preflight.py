"""Looks at a plugin before its connector is accepted

The program, if this worker may run it, is started, asked who it is and whether the configuration is right, and
stopped. So a command that is not there, one that is no plugin and one for another kind of connector are refused under
`process.command`, and whatever the plugin itself refuses under its own names, all at once.
"""

from collections.abc import Callable, Sequence

from tidemill.connect.api import Fatal, InvalidConfig, NotConnected
from tidemill.connect.plugins.process import record_protocol_pb2 as pb
from tidemill.connect.plugins.process.child import CannotStart
from tidemill.connect.plugins.process.commands import refusals as not_allowed
from tidemill.connect.plugins.process.definitions import refusals, with_defaults
from tidemill.connect.plugins.process.dialogue import Dialogue
from tidemill.connect.plugins.process.settings import COMMAND, ProcessSettings, plugin_config, problems

VALIDATE_S = 10.0  # with process.start.timeout.ms less than the worker gives a preflight


def check_as(role: "pb.Role") -> Callable[[ProcessSettings], None]:
    """The preflight of a source or of a sink."""

    def check(settings: ProcessSettings) -> None:
        found = list(problems(settings.flat()))
        told = {each.field_name for each in found}
        found += [each for each in not_allowed(settings.words, settings.flat()) if each.field_name not in told]
        _raise(found)
        dialogue = introduced(settings, role)
        try:
            _raise(_judged(dialogue, plugin_config(settings.flat())))
        finally:
            dialogue.stop()

    return check


def introduced(settings: ProcessSettings, role: "pb.Role") -> Dialogue:
    """A plugin that has said who it is; raises InvalidConfig."""
    try:
        return Dialogue(settings, settings.flat(), role)
    except CannotStart as error:
        raise InvalidConfig(COMMAND, f"The plugin cannot be started: {error}.") from error
    except (NotConnected, Fatal) as error:
        fix = "The command has to run a program that speaks the record protocol."
        raise InvalidConfig(COMMAND, f"This is no plugin that can be used: {error}.", fix) from error


def _judged(dialogue: Dialogue, config: dict[str, str]) -> list[InvalidConfig]:
    described = dialogue.described
    found = list(refusals(described.settings, config))
    if found:
        return found
    request = pb.Validate(config=with_defaults(described.settings, config))
    try:
        validated = dialogue.ask(pb.ToPlugin(validate=request), timeout_s=VALIDATE_S).validated
    except (NotConnected, Fatal) as error:
        if not dialogue.failed:
            raise  # it says so itself
        raise InvalidConfig(COMMAND, f"The plugin cannot judge this configuration: {error}.") from error
    return [InvalidConfig(each.setting, each.message) for each in validated.problems]


def _raise(found: Sequence[InvalidConfig]) -> None:
    if len(found) == 1:
        raise found[0]
    if found:
        raise ExceptionGroup("several settings are wrong", found)
