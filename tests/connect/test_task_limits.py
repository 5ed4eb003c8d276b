"""The limits of a task as a connector's settings have them"""

import pytest

from tidemill.connect.api import InvalidConfig
from tidemill.connect.task_limits import KEYS, TaskLimits, task_limits


def test_what_is_not_set_is_no_limit_but_for_a_task_that_hangs() -> None:
    assert task_limits({}) == TaskLimits(hang_ms=300_000)


def test_what_is_set_is_read() -> None:
    config = {"task.memory.max.bytes": "1000", "task.call.max.ms": " 60000 ", "task.hang.max.ms": "0"}
    assert task_limits(config) == TaskLimits(memory_bytes=1000, call_ms=60_000)
    assert task_limits({"task.cpu.max.cores": " 1.5 ", "task.hang.max.ms": "0"}) == TaskLimits(cpu_cores=1.5)


@pytest.mark.parametrize("text", ["half", "-1", "", "nan", "inf", "0.001"])
def test_what_is_no_share_of_processors_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"task\.cpu\.max\.cores is a number of processors, such as 0\.5, not"):
        task_limits({"task.cpu.max.cores": text})


@pytest.mark.parametrize("text", ["1 GB", "-1", "", "1.5"])
@pytest.mark.parametrize("name", ["task.memory.max.bytes", "task.call.max.ms", "task.hang.max.ms"])
def test_what_is_no_number_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(InvalidConfig, match=name.replace(".", r"\.")):
        task_limits({name: text})


@pytest.mark.parametrize("name", ["task.call.max.ms", "task.hang.max.ms"])
def test_a_time_shorter_than_what_can_be_told_is_refused(name: str) -> None:
    (key,) = [key for _, key in KEYS if key.name == name]
    assert key.valid is not None
    assert [key.valid(each) for each in (0, 15_000)] == [None, None]
    assert key.valid(14_999) == "Value must be 0, for no limit, or at least 15000"
