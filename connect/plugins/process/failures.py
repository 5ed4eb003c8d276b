"""What a task raises for the `Error` of a plugin"""

from tidemill.connect.api import EndOfInput, Fatal, InvalidConfig, NotConnected, PluginError, RetryAfter
from tidemill.connect.plugins.process import record_protocol_pb2 as pb

RETRY_MIN_S = 0.1  # for a plugin that asks to be asked again at once

STACK_CHARACTERS_MAX = 16_000  # of a stack: what a status keeps has room for several


def failure_of(error: pb.Error, asked: str) -> PluginError:
    """What to raise for the error with which a plugin answered the request `asked`."""
    said = error.message or "it gave no reason"
    match error.kind:
        case pb.Error.RETRY:
            return RetryAfter(max(error.retry_after_ms / 1000, RETRY_MIN_S), said)
        case pb.Error.NOT_CONNECTED:
            return NotConnected(said)
        case pb.Error.CONFIGURATION:
            named = not error.setting or error.setting in said
            return InvalidConfig(error.setting, said if named else f"{error.setting}: {said}")
        case pb.Error.FATAL:
            return Fatal(said)
        case pb.Error.END_OF_INPUT:
            return EndOfInput(said)
        case _:  # of a later version, too
            stack = f"\n{error.stack[:STACK_CHARACTERS_MAX]}" if error.stack else ""
            return Fatal(f"the plugin failed to {asked}: {said}{stack}")
