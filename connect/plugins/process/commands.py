"""Whether a command may be run on this worker

Its setting `process.commands` comes as an environment variable: a JSON list of beginnings of commands, compared word
by word and as they are written, so a path allows that path and a bare name what the worker's PATH has under it. The
empty beginning allows everything. Beside a list, a connector may not set variables either: one for an interpreter or
for the loader makes an allowed command run something else, and PATH makes another program of a name.

Without the variable there is no worker, so nobody who reaches one: a test, for example. Then anything may be run.
"""

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence

from tidemill.connect.api import InvalidConfig
from tidemill.connect.plugins.process.settings import COMMAND, ENVIRONMENT

VARIABLE = "TIDEMILL_PROCESS_COMMANDS"


class NotAllowed(InvalidConfig):
    """The worker was not told to let this be run."""


def refusals(
    words: Sequence[str], config: Mapping[str, str], environ: Mapping[str, str] | None = None
) -> Iterator[NotAllowed]:
    """What this worker has against running the command with what the configuration adds to its environment."""
    told = (os.environ if environ is None else environ).get(VARIABLE)
    if told is None:
        return
    beginnings: list[list[str]] = json.loads(told)
    if [] in beginnings:
        return
    if not any(list(words[: len(each)]) == each for each in beginnings):
        yield _not_listed(words)
    for name in config:
        if name.startswith(ENVIRONMENT):
            yield _not_with(name)


def _not_listed(words: Sequence[str]) -> NotAllowed:
    value = shlex.join(words)
    if "," in value or not value.isprintable():
        fix = "One with a comma or an invisible character cannot be listed: put it into a script, and list that."
    else:
        fix = (
            "On every worker add to its setting process.commands, after a comma if there are others, and restart it: "
            f"{value}"
        )
    return NotAllowed(COMMAND, "This worker may not run this command.", fix)


def _not_with(name: str) -> NotAllowed:
    variable = name.removeprefix(ENVIRONMENT)
    return NotAllowed(
        name,
        "This worker runs only commands that are listed in its setting process.commands, and variables could have "
        "them do something else.",
        f"Set {variable} in the environment of every worker, or in a command that is listed, "
        f"/usr/bin/env {variable}=VALUE PROGRAM; or have every worker run any command by process.commands=*",
    )
