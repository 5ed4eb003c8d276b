"""Whether a task has a process of its own, as its connector's settings have it"""

import pytest
from pydantic import BaseModel

from tidemill.connect.api import InvalidConfig, JobTask, Plugin, PluginKind, TaskContext
from tidemill.connect.task_isolation import KEY, is_shared, refusals

SHARED = {"tidemill.task.isolation": "shared"}


class Job(JobTask):
    """A job of no account."""

    def __init__(self, settings: BaseModel) -> None:
        pass

    def run(self, context: TaskContext) -> None:
        pass

    def stop(self) -> None:
        pass


def test_a_process_of_its_own_is_what_a_task_has_unless_it_is_said_otherwise() -> None:
    assert not is_shared({})
    assert not is_shared({"tidemill.task.isolation": "process", "task.memory.max.bytes": "1000"})
    assert is_shared({"tidemill.task.isolation": " shared "})


def test_what_is_neither_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"tidemill\.task\.isolation is process or shared, not 'thread'"):
        is_shared({"tidemill.task.isolation": "thread"})
    assert KEY.valid is not None
    assert KEY.valid("thread") == "String must be one of: process, shared"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("task.memory.max.bytes", "1000000"),
        ("task.cpu.max.cores", "0.5"),
        ("task.call.max.ms", "60000"),
        ("task.hang.max.ms", "60000"),
        ("task.hang.max.ms", "0"),
    ],
)
def test_what_is_kept_for_a_process_is_refused_by_name(name: str, text: str) -> None:
    config = {**SHARED, name: text}
    assert list(refusals(config)) == [
        (
            name,
            f"{name} can only be kept for a whole process, and with tidemill.task.isolation=shared several tasks are "
            "in one. Remove it, or set tidemill.task.isolation=process.",
        )
    ]
    with pytest.raises(InvalidConfig) as refused:
        is_shared(config)
    assert refused.value.field_name == name
    assert list(refusals({name: text})) == []


def test_what_says_no_more_than_is_so_anyway_is_no_mistake() -> None:
    config = {**SHARED, "task.memory.max.bytes": "0", "task.cpu.max.cores": "0", "task.hang.max.ms": "300000"}
    assert is_shared(config)
    assert list(refusals({**SHARED, "task.call.max.ms": "soon"})) == [], "its own mistake is told elsewhere"


def test_a_job_has_a_process_of_its_own() -> None:
    job = Plugin(name="job", kind=PluginKind.SINK, version="1", config=BaseModel, task=Job)
    ((name, problem),) = refusals(SHARED, job)
    assert name == "tidemill.task.isolation"
    assert problem.startswith("job runs a job, which needs a process of its own. Remove it, or")
    other = Plugin(
        name="other", kind=PluginKind.SINK, version="1", config=BaseModel, task=lambda settings: Job(settings)
    )
    assert list(refusals(SHARED, other)) == [], "only its process finds that out"
