"""Which programs a worker may run, as its settings say it and as its tasks are told"""

import json
import os

import pytest

from tidemill.connect.config import WORKER, parse_worker
from tidemill.connect.process_commands import VARIABLE, announced
from tidemill.core.config import ConfigError


def test_nothing_may_be_run_unless_it_is_said() -> None:
    assert parse_worker({}).process_commands == ()


def test_commands_are_words() -> None:
    given = "/usr/bin/node /opt/plugins/numbers.js, '/opt/my plugin' --fast"
    assert parse_worker({"process.commands": given}).process_commands == (
        ("/usr/bin/node", "/opt/plugins/numbers.js"),
        ("/opt/my plugin", "--fast"),
    )


def test_a_star_is_the_beginning_of_every_command() -> None:
    assert parse_worker({"process.commands": "*"}).process_commands == ((),)
    assert parse_worker({"process.commands": "a b,*"}).process_commands == (("a", "b"), ())


@pytest.mark.parametrize("quoted", ["'*'", '"*"', "\\*", "* x", "**"])
def test_a_star_that_is_quoted_or_not_alone_is_a_word(quoted: str) -> None:
    (words,) = parse_worker({"process.commands": quoted}).process_commands
    assert words


@pytest.mark.parametrize("entry", ["node 'my plugin.js", 'node "', "node \\"])
def test_one_that_cannot_be_split_is_named(entry: str) -> None:
    with pytest.raises(ConfigError) as failure:
        parse_worker({"process.commands": f"true,{entry}"})
    (problem,) = failure.value.problems
    assert "process.commands" in problem
    assert f"{entry} cannot be divided into words" in problem


def test_a_comma_divides_commands_also_within_quotes() -> None:
    with pytest.raises(ConfigError, match="a comma divides commands, also within quotes"):
        parse_worker({"process.commands": "node 'a,b.js'"})


def test_it_is_on_the_page_of_settings() -> None:
    assert "| `process.commands` | list |" in WORKER.markdown()


def test_what_was_inherited_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "[[]]")
    with announced(()) as told:
        assert told == {VARIABLE: "[]"}
        assert os.environ[VARIABLE] == "[]"
    assert os.environ[VARIABLE] == "[[]]"


def test_two_workers_of_one_process_do_in_it_what_both_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they start is told of its own worker; whoever ends first takes nothing away from the other."""
    monkeypatch.setenv(VARIABLE, "[[]]")
    first, second = announced((("node",), ("a", "b"))), announced((("node", "x.js"), ("a",), ("c",)))
    first.__enter__()
    told = second.__enter__()
    assert json.loads(told[VARIABLE]) == [["node", "x.js"], ["a"], ["c"]]
    assert json.loads(os.environ[VARIABLE]) == [["a", "b"], ["node", "x.js"]]
    first.__exit__(None, None, None)
    assert os.environ[VARIABLE] == told[VARIABLE]
    with announced(((),)):
        assert os.environ[VARIABLE] == told[VARIABLE]
    with announced(()):
        assert os.environ[VARIABLE] == "[]"
    second.__exit__(None, None, None)
    assert os.environ[VARIABLE] == "[[]]"


def test_it_is_told_for_as_long_as_the_worker_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with announced((("a b", "c"), ())) as told:
        assert json.loads(told[VARIABLE]) == [["a b", "c"], []]
        assert os.environ[VARIABLE] == told[VARIABLE]
    assert VARIABLE not in os.environ
