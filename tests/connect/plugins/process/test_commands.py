"""Whether a command may be run on this worker, and what is said to whoever may not"""

import shlex

import pytest

from tidemill.connect import process_commands
from tidemill.connect.config import parse_worker
from tidemill.connect.plugins.process import commands
from tidemill.connect.plugins.process.commands import refusals

NODE = ["/usr/bin/node", "/opt/plugins/numbers.js"]


def told(given: str) -> dict[str, str]:
    """The variable as a worker with this setting hands it down."""
    with process_commands.announced(parse_worker({"process.commands": given}).process_commands) as variables:
        return dict(variables)


def allowed(given: str, command: str) -> bool:
    return not list(refusals(shlex.split(command), {}, told(given)))


def test_worker_and_plugin_mean_the_same_variable() -> None:
    assert commands.VARIABLE == process_commands.VARIABLE


@pytest.mark.parametrize(
    ("given", "command"),
    [
        ("/usr/bin/node /opt/plugins/numbers.js", "/usr/bin/node /opt/plugins/numbers.js"),
        ("/usr/bin/node /opt/plugins/numbers.js", "/usr/bin/node /opt/plugins/numbers.js --fast 'a b'"),
        ("true, /usr/bin/node a.js", "/usr/bin/node a.js"),
        ("'/opt/my plugin'", "'/opt/my plugin' x"),
        ("'/opt/my plugin'", "/opt/my\\ plugin"),
        ("node a.js", "node a.js"),
        ("*", "sh -c 'anything at all'"),
        ("true,*", "sh"),
        ("'*'", "'*'"),
    ],
)
def test_a_beginning_allows_whatever_follows(given: str, command: str) -> None:
    assert allowed(given, command)


@pytest.mark.parametrize(
    ("given", "command"),
    [
        ("", "true"),
        ("/usr/bin/node /opt/plugins/numbers.js", "/usr/bin/node -e 1 /opt/plugins/numbers.js"),
        ("/usr/bin/node /opt/plugins/numbers.js", "/usr/bin/node"),
        ("/usr/bin/node /opt/plugins/numbers.js", "/usr/bin/node /opt/plugins/numbers.jsx"),
        ("/usr/bin/node /opt/plugins/numbers.js", "'/usr/bin/node /opt/plugins/numbers.js'"),
        ("/usr/bin/node a.js", "node a.js"),
        ("node a.js", "/usr/bin/node a.js"),
        ("node a.js", "./node a.js"),
        ("/opt/plugins/a", "/opt/plugins/../plugins/a"),
        ("'*'", "true"),
        ("* x", "true x"),
        ("/usr/bin/*", "/usr/bin/true"),
    ],
)
def test_anything_else_is_refused(given: str, command: str) -> None:
    assert not allowed(given, command)


def test_where_no_worker_says_anything_all_may_be_run() -> None:
    assert not list(refusals(NODE, {"process.environment.LANG": "C"}, {}))


@pytest.mark.parametrize("command", ["/usr/bin/node /opt/plugins/numbers.js", "'/opt/my plugin' \"it's\"", "'*'"])
def test_what_is_said_is_what_allows_it(command: str) -> None:
    (refused,) = refusals(shlex.split(command), {}, told("true"))
    assert refused.field_name == "process.command"
    sentence, colon, value = str(refused).partition(" and restart it: ")
    assert colon and "On every worker add to its setting process.commands" in sentence
    assert not list(refusals(shlex.split(command), {}, told(f"true,{value}")))
    assert list(refusals(["sh"], {}, told(f"true,{value}")))


@pytest.mark.parametrize("word", ["a,b.js", "a\nb.js"])
def test_what_cannot_be_listed_is_said_too(word: str) -> None:
    (refused,) = refusals(["node", word], {}, told(""))
    assert "cannot be listed: put it into a script" in str(refused)
    assert "restart it: " not in str(refused)


def test_variables_would_run_something_else() -> None:
    config = {"process.environment.NODE_OPTIONS": "--require=/tmp/x.js", "process.answer.timeout.ms": "1", "topic": "t"}
    (refused,) = refusals(NODE, config, told(shlex.join(NODE)))
    assert refused.field_name == "process.environment.NODE_OPTIONS"
    assert "Set NODE_OPTIONS in the environment of every worker" in str(refused)
    assert "/usr/bin/env NODE_OPTIONS=" in str(refused)
    assert "process.commands=*" in str(refused)
    assert not list(refusals(NODE, config, told("*")))


def test_command_and_variables_are_refused_at_once() -> None:
    config = {"process.environment.A": "1", "process.environment.B": "2"}
    names = [each.field_name for each in refusals(NODE, config, told(""))]
    assert names == ["process.command", "process.environment.A", "process.environment.B"]
