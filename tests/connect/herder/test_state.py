"""The config topic folded into wishes, the status topic into a board"""

import tracemalloc
from dataclasses import replace

import pytest

from tidemill.connect.herder.state import ConfigState, StatusBoard
from tidemill.connect.stores import (
    ConfigRecord,
    ConnectorConfig,
    InstanceGone,
    InstanceStatus,
    LoggerLevel,
    RestartRequest,
    State,
    TargetState,
    TargetStateChange,
    TaskConfig,
    TasksCommit,
    TasksFencing,
    TopicUnused,
    TopicUse,
    encode_config,
)

CONNECTOR = ConnectorConfig(connector="c", properties={"k": "v"})
DELETED = ConnectorConfig(connector="c", properties=None)


def task(number: int, **properties: str) -> TaskConfig:
    return TaskConfig(connector="c", task=number, properties=properties)


def commit(tasks: int) -> TasksCommit:
    return TasksCommit(connector="c", tasks=tasks)


def folded(*records: ConfigRecord | None) -> ConfigState:
    state = ConfigState()
    for offset, record in enumerate(records):
        state.apply(record, offset)
    return state


def test_tasks_count_only_with_their_commit() -> None:
    state = folded(CONNECTOR, task(0), task(1))
    assert state.tasks("c") == ()
    state.apply(commit(2), 3)
    assert len(state.tasks("c")) == 2


def test_a_commit_replaces_all_tasks() -> None:
    state = folded(CONNECTOR, task(0, v="1"), task(1), commit(2), task(0, v="2"), commit(1))
    assert [dict(config) for config in state.tasks("c")] == [{"v": "2"}]


@pytest.mark.parametrize("tasks", [20_000_000, 2**31 - 1])
def test_a_commit_of_any_number_costs_what_there_is(tasks: int) -> None:
    tracemalloc.start()
    try:
        state = folded(CONNECTOR, task(0), commit(tasks))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    task_set = state.task_set("c")
    assert task_set is not None and not task_set.consistent


@pytest.mark.parametrize("records", [(commit(1),), (task(1), commit(1)), (task(0), task(2), commit(2))])
def test_a_commit_without_its_records_is_inconsistent(records: tuple[ConfigRecord, ...]) -> None:
    state = folded(CONNECTOR, *records)
    task_set = state.task_set("c")
    assert task_set is not None and not task_set.consistent
    assert state.tasks("c") == ()


@pytest.mark.parametrize("left", [0, 1])
def test_fewer_tasks_than_before_are_the_same_after_compaction(left: int) -> None:
    """A record stays of what a later commit leaves out, without the commit that it belonged to."""
    log = [CONNECTOR, task(0), task(1), commit(2), *map(task, range(left)), commit(left)]
    last = {encode_config(record)[0]: offset for offset, record in enumerate(log)}
    compacted = ConfigState()
    for offset in sorted(last.values()):
        compacted.apply(log[offset], offset)
    task_set, lived = compacted.task_set("c"), folded(*log).task_set("c")
    assert task_set is not None and lived is not None and lived.consistent
    assert (task_set.configs, task_set.consistent) == (lived.configs, True)


def test_a_commit_of_nothing_is_consistent() -> None:
    task_set = folded(CONNECTOR, commit(0)).task_set("c")
    assert task_set is not None and task_set.consistent


def test_a_deleted_connector_takes_its_tasks_along_but_not_its_target() -> None:
    state = folded(CONNECTOR, TargetStateChange(connector="c", state=TargetState.PAUSED), task(0), commit(1), DELETED)
    assert state.names() == [] and state.task_set("c") is None
    state.apply(CONNECTOR, 5)
    assert state.tasks("c") == ()
    assert state.target("c") is TargetState.PAUSED
    state.apply(TargetStateChange(connector="c", state=None), 6)
    assert state.target("c") is TargetState.STARTED


def test_tasks_of_a_connector_that_is_not_there_leave_nothing_behind() -> None:
    state = folded(task(0), commit(1), CONNECTOR)
    assert state.task_set("c") is None
    state.apply(commit(1), 3)
    task_set = state.task_set("c")
    assert task_set is not None and not task_set.consistent


def test_the_target_may_come_before_the_connector() -> None:
    state = folded(TargetStateChange(connector="c", state=TargetState.STOPPED), CONNECTOR)
    assert state.target("c") is TargetState.STOPPED


def test_the_version_of_a_configuration_is_its_offset() -> None:
    state = folded(None, CONNECTOR)
    submitted = state.submitted("c")
    assert submitted is not None and submitted.offset == 1
    assert state.end_offset == 2


def test_requests_leave_no_state() -> None:
    state = folded(
        RestartRequest(connector="c", include_tasks=True, only_failed=False),
        TasksFencing(connector="c", tasks=1),
        LoggerLevel(logger="l", level="INFO"),
    )
    assert state.names() == []


def test_offsets_may_skip_but_not_return() -> None:
    state = folded(CONNECTOR)
    state.apply(None, 7)
    with pytest.raises(AssertionError):
        state.apply(None, 7)


def test_what_was_applied_cannot_be_changed_from_outside() -> None:
    properties = {"k": "v"}
    state = folded(ConnectorConfig(connector="c", properties=properties))
    properties["k"] = "changed"
    submitted = state.submitted("c")
    assert submitted is not None and submitted.config["k"] == "v"


def status(task_number: int | None, state: State = State.RUNNING, generation: int = 1) -> InstanceStatus:
    return InstanceStatus(connector="c", task=task_number, state=state, worker_id="w", generation=generation)


def test_the_board_keeps_the_last_word() -> None:
    board = StatusBoard()
    late = status(0, State.UNASSIGNED, generation=3)  # of a worker that had lost the task by then
    for record in (status(None), status(0), status(0, State.FAILED, generation=4), None, late):
        board.apply(record)
    last = board.instance("c", 0)
    assert last is not None and last.state is State.FAILED
    assert len(board.instances("c")) == 2 and board.generation == 4
    board.apply(InstanceGone(connector="c", task=0))
    assert board.instance("c", 0) is None and len(board.every()) == 1


def test_the_last_word_is_the_last_one_where_generations_may_begin_anew() -> None:
    board = StatusBoard(in_order=True)
    for record in (status(0, generation=40), status(0, State.FAILED, generation=2)):
        board.apply(record)
    last = board.instance("c", 0)
    assert last is not None and last.state is State.FAILED


def test_nobody_says_late_of_what_another_has_that_it_is_nobodys() -> None:
    """A worker that was cut off, of what one of Apache's has by now: that one does not say again what it has said."""
    board = StatusBoard(in_order=True)
    theirs = replace(status(0, generation=3), worker_id="java")
    for record in (status(0, generation=2), theirs, status(0, State.UNASSIGNED, generation=2)):
        board.apply(record)
    assert board.instance("c", 0) == theirs
    board.apply(replace(theirs, state=State.UNASSIGNED))
    last = board.instance("c", 0)
    assert last is not None and last.state is State.UNASSIGNED


def test_the_board_knows_topics() -> None:
    board = StatusBoard()
    for topic in ("b", "a"):
        board.apply(TopicUse(connector="c", topic=topic, task=0, discovered_ms=1))
    assert board.topics("c") == ["a", "b"]
    board.apply(TopicUnused(connector="c", topic="a"))
    board.apply(TopicUnused(connector="other", topic="a"))
    assert board.topics("c") == ["b"] and board.topics("other") == []
