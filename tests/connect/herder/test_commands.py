"""What REST commands mean"""

import pytest

from tidemill.connect.herder.commands import (
    Command,
    Configure,
    Conflict,
    Create,
    Delete,
    NotFound,
    Restart,
    SetLogLevel,
    SetTarget,
    SubmitTasks,
    decide,
    patched,
    plan_restart,
)
from tidemill.connect.herder.state import ConfigState, StatusBoard
from tidemill.connect.stores import (
    ConfigRecord,
    ConnectorConfig,
    InstanceStatus,
    LoggerLevel,
    RestartRequest,
    State,
    TargetState,
    TargetStateChange,
    TaskConfig,
    TasksCommit,
)


@pytest.fixture
def state() -> ConfigState:
    state = ConfigState()
    for offset, record in enumerate(
        [
            ConnectorConfig(connector="c", properties={"a": "1"}),
            TaskConfig(connector="c", task=0, properties={}),
            TaskConfig(connector="c", task=1, properties={}),
            TasksCommit(connector="c", tasks=2),
        ]
    ):
        state.apply(record, offset)
    return state


@pytest.mark.parametrize(
    ("command", "records", "created"),
    [
        (Create(connector="n", config={"b": "2"}), (ConnectorConfig(connector="n", properties={"b": "2"}),), True),
        (
            Create(connector="n", config={}, initial_state=TargetState.PAUSED),
            (
                TargetStateChange(connector="n", state=TargetState.PAUSED),
                ConnectorConfig(connector="n", properties={}),
            ),
            True,
        ),
        (Configure(connector="n", config={}), (ConnectorConfig(connector="n", properties={}),), True),
        (Configure(connector="c", config={}), (ConnectorConfig(connector="c", properties={}),), False),
        (Configure(connector="c", config={}, seen_offset=0), (ConnectorConfig(connector="c", properties={}),), False),
        (
            SetTarget(connector="c", target=TargetState.PAUSED),
            (TargetStateChange(connector="c", state=TargetState.PAUSED),),
            False,
        ),
        (
            SetTarget(connector="c", target=TargetState.STOPPED),
            (TasksCommit(connector="c", tasks=0), TargetStateChange(connector="c", state=TargetState.STOPPED)),
            False,
        ),
        (
            Delete(connector="c"),
            (ConnectorConfig(connector="c", properties=None), TargetStateChange(connector="c", state=None)),
            False,
        ),
        (
            Restart(connector="c", include_tasks=True, only_failed=False),
            (RestartRequest(connector="c", include_tasks=True, only_failed=False),),
            False,
        ),
        (SetLogLevel(logger="l", level="INFO"), (LoggerLevel(logger="l", level="INFO"),), False),
    ],
)
def test_commands_become_records(
    state: ConfigState, command: Command, records: tuple[ConfigRecord, ...], created: bool
) -> None:
    decision = decide(state, command)
    assert (decision.records, decision.created) == (records, created)


@pytest.mark.parametrize("left", [TargetState.STOPPED, TargetState.PAUSED])
@pytest.mark.parametrize("command", [Create(connector="n", config={}), Configure(connector="n", config={})])
def test_a_new_connector_starts_whatever_one_of_its_name_was_told(
    state: ConfigState, command: Command, left: TargetState
) -> None:
    """A deletion, or a creation that was refused, got no further than its first record."""
    state.apply(TargetStateChange(connector="n", state=left), state.end_offset)
    for record in decide(state, command).records:
        state.apply(record, state.end_offset)
    assert state.submitted("n") is not None and state.target("n") is TargetState.STARTED


@pytest.mark.parametrize(
    ("command", "refusal", "text"),
    [
        (Create(connector="c", config={}), Conflict, "Connector c already exists"),
        (Configure(connector="c", config={}, seen_offset=7), Conflict, "stale configuration"),
        (Configure(connector="n", config={}, seen_offset=0), Conflict, "stale configuration"),
        (SetTarget(connector="n", target=TargetState.PAUSED), NotFound, "Unknown connector n"),
        (Delete(connector="n"), NotFound, "Connector n not found"),
        (Restart(connector="n", include_tasks=True, only_failed=True), NotFound, "Unknown connector: n"),
    ],
)
def test_commands_are_refused(state: ConfigState, command: Command, refusal: type[Exception], text: str) -> None:
    with pytest.raises(refusal, match=text):
        decide(state, command)


def test_a_patch_adds_changes_and_removes() -> None:
    assert patched({"a": "1", "b": "2", "c": "3"}, {"a": None, "b": "4", "d": "5"}) == {"b": "4", "c": "3", "d": "5"}
    assert list(patched({"a": "1"}, {})) == ["a"]


@pytest.mark.parametrize(
    ("include_tasks", "only_failed", "connector", "tasks"),
    [
        (False, False, True, set()),
        (True, False, True, {0, 1}),
        (False, True, False, set()),
        (True, True, False, {1}),
    ],
)
def test_a_restart_reaches_what_was_asked_for(
    state: ConfigState, include_tasks: bool, only_failed: bool, connector: bool, tasks: set[int]
) -> None:
    board = StatusBoard()
    for task, each in ((None, State.RUNNING), (0, State.RUNNING), (1, State.FAILED), (2, State.FAILED)):
        board.apply(InstanceStatus(connector="c", task=task, state=each, worker_id="w", generation=1))
    request = RestartRequest(connector="c", include_tasks=include_tasks, only_failed=only_failed)
    plan = plan_restart(state, board, request)
    assert (plan.connector, plan.tasks) == (connector, tasks)


def test_submitted_tasks_are_written_with_their_commit(state: ConfigState) -> None:
    decision = decide(state, SubmitTasks(connector="c", tasks=({"x": "1"},), seen_offset=0))
    assert decision.records == (
        TaskConfig(connector="c", task=0, properties={"x": "1"}),
        TasksCommit(connector="c", tasks=1),
    )
    assert decide(state, SubmitTasks(connector="c", tasks=())).records == (TasksCommit(connector="c", tasks=0),)


def test_tasks_that_the_topic_holds_are_not_written_again(state: ConfigState) -> None:
    assert decide(state, SubmitTasks(connector="c", tasks=({}, {}), seen_offset=0)).records == ()


def test_tasks_of_another_configuration_or_of_a_stopped_connector_are_refused(state: ConfigState) -> None:
    with pytest.raises(Conflict, match="stale configuration"):
        decide(state, SubmitTasks(connector="c", tasks=({},), seen_offset=1))
    with pytest.raises(NotFound, match="Connector none not found"):
        decide(state, SubmitTasks(connector="none", tasks=({},)))
    state.apply(TargetStateChange(connector="c", state=TargetState.STOPPED), 4)
    with pytest.raises(Conflict):
        decide(state, SubmitTasks(connector="c", tasks=({},), seen_offset=0))
