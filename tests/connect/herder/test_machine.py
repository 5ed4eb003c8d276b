"""The herder machine: scenarios in words"""

from dataclasses import replace

import pytest

from tests.connect.herder.machine_world import (
    ONE,
    TWO,
    World,
    config,
    create,
)
from tidemill.connect.herder import events as e
from tidemill.connect.herder.commands import Configure, Create, Delete, Restart, SetTarget, decide
from tidemill.connect.herder.machine import HerderMachine
from tidemill.connect.stores import (
    ConfigRecord,
    ConnectorConfig,
    InstanceGone,
    InstanceStatus,
    State,
    TargetState,
    TargetStateChange,
    TaskConfig,
    TasksCommit,
    WorkerClaim,
    decode_config,
    decode_status,
    encode_config,
    encode_status,
)
from tidemill.connect.task_spec import (
    InitialState,
    TaskFailed,
    TaskReport,
)


def test_a_created_connector_runs_its_tasks(world: World) -> None:
    create(world)
    assert set(world.processes) == {ONE, TWO}
    assert [process.config["part"] for process in world.processes.values()] == ["0", "1"]
    assert world.state("c") is State.RUNNING
    assert [world.state("c", task) for task in (0, 1)] == [State.RUNNING, State.RUNNING]
    status = world.machine.board.instance("c", 0)
    assert status is not None and (status.worker_id, status.generation, status.version) == ("w:1", 1, "1.0")


def test_the_connector_itself_is_told_with_the_version_it_has_now(world: World) -> None:
    """Not the state but the plugin changes: an upgrade pinned by the configuration, or found at a restart."""

    def versions() -> list[str | None]:
        told = [world.machine.board.instance("c", task) for task in (None, 0)]
        return [None if each is None else each.version for each in told]

    create(world)
    for version in ("2.0", "3.0"):
        world.version = version
        world.command(Configure(connector="c", config={**config(), "connector.plugin.version": version}))
        world.settle()
        assert versions() == [version, version]
    world.version = "3.1"
    world.tell(e.RestartConnector(connector="c"))
    world.settle()
    assert versions()[0] == "3.1"


def test_nothing_happens_before_the_assignment() -> None:
    world = World()
    world.append(decide(world.machine.state, Create(connector="c", config=config())).records)
    assert not world.splits and not world.processes
    world.tell(e.Assigned(generation=1))
    world.settle()
    assert set(world.processes) == {ONE, TWO}


def test_a_restarted_worker_starts_what_the_topic_says_without_writing_it_again(world: World) -> None:
    create(world)
    later = World(config_log=list(world.config_log))
    for offset, (key, value) in enumerate(world.config_log):
        later.tell(e.ConfigSeen(record=decode_config(key, value), offset=offset))
    for key, value in world.status_log:
        later.tell(e.StatusSeen(record=decode_status(key, value)))
    later.tell(e.Assigned(generation=2))
    assert not later.processes  # the plugin is asked first
    later.settle()
    assert set(later.processes) == {ONE, TWO}
    assert len(later.config_log) == len(world.config_log)
    status = later.machine.board.instance("c", 0)
    assert status is not None and status.generation == 2


def test_an_unchanged_configuration_leaves_running_tasks_alone(world: World) -> None:
    create(world)
    before = {task: process.incarnation for task, process in world.processes.items()}
    world.command(Configure(connector="c", config=config()))
    world.settle()
    assert {task: process.incarnation for task, process in world.processes.items()} == before


def test_a_changed_configuration_replaces_tasks_one_process_at_a_time(world: World) -> None:
    create(world)
    world.command(Configure(connector="c", config=config("1", colour="red")))
    world.split(world.splits[0])
    world.write(world.writes[0])
    assert world.processes[ONE].stopping and world.processes[TWO].stopping
    world.settle()
    assert set(world.processes) == {ONE}
    assert world.processes[ONE].config["colour"] == "red"
    assert world.state("c", 1) is None


def test_pause_and_resume_keep_the_process(world: World) -> None:
    create(world, "1")
    before = world.processes[ONE].incarnation
    world.command(SetTarget(connector="c", target=TargetState.PAUSED))
    world.settle()
    assert (world.state("c"), world.state("c", 0)) == (State.PAUSED, State.PAUSED)
    world.command(SetTarget(connector="c", target=TargetState.STARTED))
    world.settle()
    assert (world.state("c"), world.state("c", 0)) == (State.RUNNING, State.RUNNING)
    assert world.processes[ONE].incarnation == before


def test_a_connector_created_paused_starts_paused(world: World) -> None:
    world.command(Create(connector="c", config=config("1"), initial_state=TargetState.PAUSED))
    world.split(world.splits[0])
    (write,) = world.writes
    world.writes.clear()
    actions = []
    for record in write.records:
        key, value = encode_config(record)
        world.config_log.append((key, value))
        actions += world.tell(e.ConfigSeen(record=record, offset=len(world.config_log) - 1))
    assert [action.initial_state for action in actions if isinstance(action, e.StartTask)] == [InitialState.PAUSED]


def test_stop_ends_every_task_and_resume_computes_them_anew(world: World) -> None:
    create(world)
    world.command(SetTarget(connector="c", target=TargetState.STOPPED))
    world.settle()
    assert not world.processes and not world.machine.state.tasks("c")
    assert world.state("c") is State.STOPPED
    assert world.state("c", 0) is None and world.state("c", 1) is None
    world.command(SetTarget(connector="c", target=TargetState.STARTED))
    world.settle()
    assert set(world.processes) == {ONE, TWO}


def test_half_a_stop_does_not_outlast_the_next_round(world: World) -> None:
    """Who led was killed when the tasks were taken back, and the connector was not stopped yet."""
    create(world)
    world.append([TasksCommit(connector="c", tasks=0)])
    world.settle()
    assert not world.processes
    world.tell(e.Assigned(generation=2))
    world.settle()
    assert set(world.processes) == {ONE, TWO}


def test_a_stop_overtakes_tasks_that_are_being_computed(world: World) -> None:
    world.command(Create(connector="c", config=config()))
    world.split(world.splits[0])
    world.command(SetTarget(connector="c", target=TargetState.STOPPED))
    world.settle()
    assert not world.machine.state.tasks("c") and not world.processes


def test_delete_ends_tasks_and_clears_statuses(world: World) -> None:
    create(world)
    world.tell(TaskReport(task=ONE, incarnation=world.processes[ONE].incarnation, facts={"topics": {"t": 1}}))
    world.see_statuses()
    assert world.machine.board.topics("c") == ["t"]
    world.command(Delete(connector="c"))
    world.settle()
    assert not world.processes
    assert not world.machine.board.instances("c") and not world.machine.board.topics("c")


def test_topics_come_back_only_when_they_are_used_again(world: World) -> None:
    create(world)
    incarnation = world.processes[ONE].incarnation

    def report(uses: int) -> list[str]:
        world.tell(TaskReport(task=ONE, incarnation=incarnation, facts={"topics": {"t": uses}}))
        world.see_statuses()
        return world.machine.board.topics("c")

    assert report(1) == ["t"]
    world.tell(e.ForgetTopics(connector="c"))
    assert report(1) == []
    assert report(2) == ["t"]
    world.command(SetTarget(connector="c", target=TargetState.STOPPED))
    world.tell(e.ForgetTopics(connector="c"))
    assert report(3) == []  # the last words of a task that is being stopped


def test_restart_of_what_has_failed_only(world: World) -> None:
    create(world)
    world.tell(TaskFailed(task=TWO, incarnation=world.processes[TWO].incarnation, trace="boom"))
    world.exit(TWO, 1)
    world.settle()
    healthy = world.processes[ONE].incarnation
    world.command(Restart(connector="c", include_tasks=True, only_failed=True))
    world.settle()
    assert world.processes[ONE].incarnation == healthy
    assert world.state("c", 1) is State.RUNNING


def test_restart_of_everything(world: World) -> None:
    create(world)
    before = {task: process.incarnation for task, process in world.processes.items()}
    world.command(Restart(connector="c", include_tasks=True, only_failed=False))
    assert all(process.stopping for process in world.processes.values())
    world.settle()
    assert all(world.processes[task].incarnation > incarnation for task, incarnation in before.items())
    assert world.state("c") is State.RUNNING


def test_leaving_stops_everything_and_says_so(world: World) -> None:
    create(world)
    world.tell(e.Assigned(generation=1, connectors=frozenset(), tasks=frozenset()))
    world.settle()
    assert not world.processes and not world.machine.alive()
    assert {world.state("c"), world.state("c", 0), world.state("c", 1)} == {State.UNASSIGNED}


def test_an_assignment_of_a_part_runs_that_part() -> None:
    world = World()
    world.tell(e.Assigned(generation=1))
    create(world)
    world.tell(e.Assigned(generation=2, connectors=frozenset(), tasks=frozenset({TWO})))
    world.settle()
    assert set(world.processes) == {TWO}
    assert world.state("c", 0) is State.UNASSIGNED and world.state("c", 1) is State.RUNNING


def test_statuses_of_connectors_deleted_meanwhile_are_cleared(world: World) -> None:
    create(world, "1")
    world.command(Delete(connector="c"))
    # The worker dies before it can write the tombstones.
    later = World()
    for offset, (key, value) in enumerate(world.config_log):
        later.tell(e.ConfigSeen(record=decode_config(key, value), offset=offset))
    for key, value in world.status_log:
        record = decode_status(key, value)
        if value is not None:
            later.tell(e.StatusSeen(record=record))
    later.tell(e.Assigned(generation=2))
    later.settle()
    assert not later.machine.board.instances("c")


def test_what_a_worker_that_lost_a_task_says_late_does_not_count() -> None:
    world, later = World(), World(machine=HerderMachine("w:2"))
    world.tell(e.Assigned(generation=1))
    create(world)
    later.config_log, later.status_log = world.config_log, world.status_log
    for offset, (key, value) in enumerate(world.config_log):
        later.tell(e.ConfigSeen(record=decode_config(key, value), offset=offset))
    later.see_statuses()
    world.tell(e.Assigned(generation=2, connectors=frozenset(), tasks=frozenset(), leads=False))
    for task in list(world.processes):
        world.exit(task, 0)
    later.tell(e.Assigned(generation=3))
    later.settle()
    assert later.state("c", 0) is State.RUNNING
    late = InstanceStatus(connector="c", task=0, state=State.UNASSIGNED, worker_id="w:1", generation=2)
    later.status_log.append(encode_status(late))
    later.see_statuses()
    world.see_statuses()
    for each in (world, later):
        shown = each.machine.board.instance("c", 0)
        assert shown is not None and (shown.worker_id, shown.state) == ("w:2", State.RUNNING)
    assert decode_status(*later.status_log[-1]) == shown, "and it is not what the topic ends with"


@pytest.mark.parametrize(
    ("worker_id", "generation", "corrected"),
    [
        ("w:1", 1, False),  # its own
        ("w:1", 0, True),  # its own, of an earlier life
        ("w:1", 9, False),  # of a later assignment, which this worker is about to hear of
        ("w:2", 2, False),
        ("w:2", 1, True),
        ("w:2", 0, True),
    ],
)
def test_whose_word_is_put_right(world: World, worker_id: str, generation: int, corrected: bool) -> None:
    create(world)
    written = len(world.status_log)
    status = InstanceStatus(connector="c", task=0, state=State.PAUSED, worker_id=worker_id, generation=generation)
    world.tell(e.StatusSeen(record=status))
    assert (len(world.status_log) > written) is corrected


@pytest.mark.parametrize("state", [State.UNASSIGNED, State.RUNNING])
def test_a_late_word_that_it_is_nobodys_is_put_right_in_a_group_with_apaches_workers(state: State) -> None:
    """Their generations begin anew with the group, and so one above may be of long ago."""
    world = World(machine=HerderMachine("w:1", statuses_in_order=True))
    world.tell(e.Assigned(generation=1))
    create(world, "1")
    late = InstanceStatus(connector="c", task=0, state=state, worker_id="w:2", generation=9)
    world.status_log.append(encode_status(late))
    world.settle()
    last = decode_status(*world.status_log[-1])
    assert isinstance(last, InstanceStatus)
    assert (last.worker_id, last.state) == (("w:1" if state is State.UNASSIGNED else "w:2"), State.RUNNING)


def test_only_who_leads_clears_what_nobody_does() -> None:
    gone = told("w:0", 7)
    for leads, busy, cleared in ((True, False, True), (True, True, False), (False, False, False)):
        world = World()
        world.tell(e.Assigned(generation=1))
        create(world)
        others = frozenset({("c", 7)}) if busy else frozenset()
        tasks = frozenset({ONE, TWO})
        world.tell(e.Assigned(generation=2, connectors=frozenset({"c"}), tasks=tasks, leads=leads, busy=others))
        world.settle()
        world.status_log.append(encode_status(gone.record))
        world.see_statuses()
        world.settle()
        assert (world.state("c", 7) is None) is cleared, (leads, busy)
        if busy:  # until its worker is known to be gone
            world.tell(e.Assigned(generation=3, connectors=frozenset({"c"}), tasks=tasks))
            world.settle()
            assert world.state("c", 7) is None


def test_a_worker_clears_the_statuses_of_its_own_when_they_are_deleted() -> None:
    world = World()
    world.tell(e.Assigned(generation=1))
    create(world)
    world.tell(e.Assigned(generation=2, connectors=frozenset({"c"}), tasks=frozenset({ONE, TWO}), leads=False))
    world.command(Delete(connector="c"))
    world.settle()
    assert not world.processes and not world.machine.board.instances("c")


def test_tasks_that_a_worker_before_has_written_late_are_replaced(world: World) -> None:
    create(world)
    late: list[ConfigRecord] = [TaskConfig(connector="c", task=0, properties={"old": "1"})]
    world.append([*late, TasksCommit(connector="c", tasks=1)])
    world.settle()
    assert set(world.processes) == {ONE, TWO} and "old" not in world.processes[ONE].config


def test_a_restart_of_a_connector_reaches_only_who_has_it() -> None:
    world = World()
    world.tell(e.Assigned(generation=1))
    create(world)
    world.tell(e.Assigned(generation=2, connectors=frozenset(), tasks=frozenset({TWO}), leads=False))
    world.settle()
    world.command(Restart(connector="c", include_tasks=True, only_failed=False))
    assert not world.splits and world.processes[TWO].stopping
    world.settle()
    assert world.state("c") is State.UNASSIGNED and world.state("c", 1) is State.RUNNING


def told(worker_id: str, task: int | None, state: State = State.RUNNING) -> e.StatusSeen:
    return e.StatusSeen(record=InstanceStatus(connector="c", task=task, state=state, worker_id=worker_id, generation=0))


def test_late_words_of_a_worker_that_is_gone_are_put_right(world: World) -> None:
    create(world)
    written = len(world.status_log)
    world.tell(told("w:0", 0, State.UNASSIGNED))
    world.tell(told("w:0", None, State.UNASSIGNED))
    world.tell(told("w:0", 7))  # a task there no longer is
    world.tell(e.StatusSeen(record=InstanceGone(connector="c", task=1)))
    world.settle()
    assert [world.state("c", task) for task in (None, 0, 1, 7)] == [State.RUNNING] * 3 + [None]
    assert len(world.status_log) == written + 4


def test_what_waits_to_be_said_of_something_deleted_does_not_outlast_the_tombstone_of_somebody_else(
    world: World,
) -> None:
    create(world)
    world.command(Delete(connector="c"))
    for task in (None, 0):  # of whoever had it before; what this one has said may come to be written after it
        world.tell(e.StatusSeen(record=InstanceGone(connector="c", task=task)))
    assert world.processes, "it ends, and has the rest of its words to say"
    world.settle()
    last = dict(world.status_log)
    assert [last[encode_status(InstanceGone(connector="c", task=task))[0]] for task in (None, 0, 1)] == [None] * 3


def test_a_tombstone_of_what_somebody_else_has_is_not_answered(world: World) -> None:
    """Who has it may know already that it is there again, and its word would be taken away."""
    create(world)
    mine = frozenset({ONE})
    world.tell(e.Assigned(generation=2, connectors=frozenset({"c"}), tasks=mine, leads=False))
    world.settle()
    assert world.state("c", 1) is State.UNASSIGNED, "its word of the task that it had"
    world.append([ConnectorConfig(connector="c", properties=config("1")), TasksCommit(connector="c", tasks=1)])
    written = len(world.status_log)
    world.tell(e.StatusSeen(record=InstanceGone(connector="c", task=1)))
    assert encode_status(InstanceGone(connector="c", task=1)) not in world.status_log[written:]


@pytest.mark.parametrize("stopped", [False, True])
def test_statuses_of_tasks_that_went_while_nobody_was_there_are_cleared(world: World, stopped: bool) -> None:
    create(world, tasks="2")
    later = World(status_log=list(world.status_log))
    records: list[ConfigRecord] = [ConnectorConfig(connector="c", properties=config("1"))]
    records += [TaskConfig(connector="c", task=0, properties={}), TasksCommit(connector="c", tasks=1)]
    records += [TargetStateChange(connector="c", state=TargetState.STOPPED)] if stopped else []
    later.append(records)
    later.see_statuses()
    later.tell(e.Assigned(generation=2))
    later.settle()
    assert later.state("c", 0) is (None if stopped else State.RUNNING)
    assert later.state("c", 1) is None


def test_claims_of_workers_of_before_are_nothing_but_a_generation(world: World) -> None:
    world.tell(e.StatusSeen(record=WorkerClaim(worker_id="w:1", generation=7, life="another", group="g")))
    create(world)
    assert world.machine.board.generation == 7 and set(world.processes) == {ONE, TWO}


@pytest.mark.parametrize(
    ("said", "kept"), [("short", "short"), ("x" * 1_500_000, "characters left out"), ("no \udcff", "no ?")]
)
def test_error_texts_fit_into_a_record(world: World, said: str, kept: str) -> None:
    create(world)
    world.tell(TaskFailed(task=ONE, incarnation=world.processes[ONE].incarnation, trace=said))
    world.see_statuses()
    assert kept in (world.trace("c", 0) or "")
    assert max(len(value or b"") for _, value in world.status_log) < 400_000
    world.exit(TWO, -9, reason=said)
    world.see_statuses()
    assert kept in (world.trace("c", 1) or "")
    assert max(len(str(note.facts)) for note in world.notes) < 400_000


def test_tasks_that_cannot_be_written_fail_the_connector_until_it_is_changed(world: World) -> None:
    world.command(Create(connector="c", config=config()))
    world.split(world.splits[0])
    (write,) = world.writes
    world.writes.clear()
    world.tell(e.TasksRefused(connector="c", config_offset=write.config_offset, trace="too large"))
    world.settle()
    assert world.state("c") is State.FAILED and world.trace("c") == "too large"
    world.command(Configure(connector="c", config=config("1")))
    world.settle()
    assert world.state("c") is State.RUNNING and set(world.processes) == {ONE}
    world.tell(e.TasksRefused(connector="c", config_offset=write.config_offset, trace="too late"))
    world.settle()
    assert world.state("c") is State.RUNNING


def test_tasks_computed_earlier_are_not_written_after_later_ones(world: World) -> None:
    """The broker is away while the plugin, asked again, answers otherwise: what it said first has its turn last."""
    world.command(Create(connector="c", config=config()))
    (asked,) = world.splits
    answer = e.Split(connector="c", config_offset=asked.config_offset, version="1", tasks=({"part": "old"},))
    world.splits.clear()
    world.tell(answer)
    (old,) = world.writes
    world.writes.clear()
    world.tell(e.RestartConnector(connector="c"))
    world.splits.clear()
    world.tell(replace(answer, tasks=({"part": "new"},)))
    (new,) = world.writes
    assert world.machine.wants(new) and not world.machine.wants(old)
    world.append(new.records)
    assert not world.machine.wants(old)


def test_tasks_are_written_again_over_others_that_are_on_their_way(world: World) -> None:
    world.command(Create(connector="c", config=config()))
    (asked,) = world.splits
    answer = e.Split(connector="c", config_offset=asked.config_offset, version="1", tasks=({"part": "1"},))
    for part, written in (("1", True), ("2", True), ("1", True), ("1", False)):
        world.splits.clear()
        world.tell(replace(answer, tasks=({"part": part},)))
        assert bool(world.writes) is written
        if world.writes and part == "1":
            world.append(world.writes[0].records)  # those of part 2 are still under way
        world.writes.clear()
        world.tell(e.RestartConnector(connector="c"))
