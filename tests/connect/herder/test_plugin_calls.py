"""Plugins are asked here or in their environment, with the same outcome"""

from typing import Any

import pytest
from pydantic import BaseModel, Field
from structlog.testing import capture_logs

from tests.connect.herder.scripted_host import ScriptedHost
from tidemill.connect.api import InvalidConfig, Plugin, PluginKind
from tidemill.connect.failure import Failure
from tidemill.connect.herder.plugin_calls import PluginCalls
from tidemill.connect.loader import Plugins
from tidemill.connect.stand_in import stand_in
from tidemill.connect.task_spec import PluginFailed
from tidemill.connect.validation import describe


class Options(BaseModel):
    parts: int = Field(default=1)


def divide(options: Options, tasks_max: int) -> list[dict[str, str]]:
    return [{"part": str(part)} for part in range(options.parts)]


HERE = Plugin(
    name="Src",
    kind=PluginKind.SOURCE,
    version="1",
    config=Options,
    task=divide,  # type: ignore[arg-type]  # never made
    split=divide,
    left_behind=lambda options: [f"{options.parts} slots"],
)
ELSEWHERE = stand_in(describe(HERE, "m:src"), "/plugins/src-1")
CONFIG = {"connector.class": "Src", "parts": "2", "tasks.max": "3"}


@pytest.fixture
def host() -> ScriptedHost:
    return ScriptedHost()


@pytest.mark.parametrize(("plugin", "calls"), [(HERE, []), (ELSEWHERE, ["split of m:src in /plugins/src-1"])])
async def test_it_divides_its_work_where_it_is(host: ScriptedHost, plugin: Plugin, calls: list[str]) -> None:
    host.answer = [{"part": "0"}, {"part": "1"}]
    found = await PluginCalls(host, Plugins([plugin])).tasks(plugin, CONFIG, for_java=False)
    assert found == ({**CONFIG, "part": "0"}, {**CONFIG, "part": "1"})
    assert host.calls == calls


async def test_what_it_says_elsewhere_is_held_to_the_same_limit(host: ScriptedHost) -> None:
    host.answer = [{"part": str(part)} for part in range(4)]
    with pytest.raises(InvalidConfig, match=r"has generated 4 tasks, which is more than tasks\.max=3"):
        await PluginCalls(host, Plugins([])).tasks(ELSEWHERE, CONFIG, for_java=False)


async def test_its_failure_elsewhere_is_told_as_its_own(host: ScriptedHost) -> None:
    host.answer = PluginFailed("Traceback …\nValueError: no", Failure.CONFIGURATION)
    with pytest.raises(PluginFailed) as caught:
        await PluginCalls(host, Plugins([])).tasks(ELSEWHERE, CONFIG, for_java=False)
    assert (str(caught.value), caught.value.failure) == ("ValueError: no", Failure.CONFIGURATION)


async def test_what_it_leaves_behind_is_asked_where_it_is(host: ScriptedHost) -> None:
    calls = PluginCalls(host, Plugins([]))
    assert await calls.left_behind(HERE, CONFIG) == ["2 slots"]
    assert await calls.left_behind(HERE, {"parts": "x"}) == ()
    host.answer = ["2 slots"]
    assert await calls.left_behind(ELSEWHERE, CONFIG) == ["2 slots"]


@pytest.mark.parametrize("trouble", [PluginFailed("KeyError: 1", Failure.BUG), TimeoutError()])
async def test_a_deletion_does_not_fail_because_it_does_not_say(host: ScriptedHost, trouble: Exception) -> None:
    host.answer = trouble
    with capture_logs() as lines:
        assert await PluginCalls(host, Plugins([])).left_behind(ELSEWHERE, CONFIG) == ()
    assert [line["event"] for line in lines] == ["not known what a deleted connector leaves behind"]


async def test_preflights_run_in_the_plugins_environment(host: ScriptedHost) -> None:
    where: list[str] = []

    async def validate(plugin: str, config: Any, *, timeout_s: float, environment: str) -> tuple[()]:
        where.append(f"{plugin} in {environment}")
        return ()

    host.validate = validate  # type: ignore[method-assign, assignment]
    calls = PluginCalls(host, Plugins([HERE], {"Src": "own:src"}))
    await calls.check(HERE, CONFIG, 1)
    await calls.check(ELSEWHERE, CONFIG, 1)
    assert where == ["own:src in ", "m:src in /plugins/src-1"]
