"""A worker's part in its group: what it may do, when it asks for a round, how it goes"""

from collections.abc import Sequence
from typing import TypeVar

import pytest

from tidemill.connect.group import machine as g
from tidemill.connect.group.words import Resolution, decode_resolution, decode_says, encode_resolution, encode_says
from tidemill.connect.herder.placement import CONNECTOR, Holder, Instance, Placement, Plan, WorkerSays
from tidemill.core.client import membership as m

LEASE_MS = 10_000
C = Instance("c", CONNECTOR)
ONE, TWO = Instance("c", 0), Instance("c", 1)

ActionT = TypeVar("ActionT")


class Driven:
    """A group machine, and how things stand around it."""

    def __init__(self, gone: frozenset[str] = frozenset(), topics: tuple[str, ...] = ()) -> None:
        self.placement = Placement()
        self.machine = g.GroupMachine("http://w1", self.placement, lease_ms=LEASE_MS, gone=gone, topics=topics)
        self.wanted: frozenset[Instance] = frozenset()
        self.read = 5
        self.running: frozenset[Instance] = frozenset()
        self.settled = True
        self.now_ms = 1_000
        self.said: g.WorkerSays | None = None

    def tell(self, event: g.Event, later_ms: int = 0) -> list[g.Action]:
        self.now_ms += later_ms
        facts = g.Facts(wanted=self.wanted, config_offset=self.read, running=self.running, settled=self.settled)
        actions = self.machine.step(event, facts, self.now_ms)
        for told in (action.event for action in actions if isinstance(action, g.Tell)):
            if isinstance(told, m.Describe):
                self.said = decode_says("m1", told.metadata)
        return actions

    def look(self, later_ms: int = 0) -> list[g.Action]:
        return self.tell(g.Look(), later_ms)

    def assigned(
        self,
        *mine: Instance,
        generation: int = 1,
        leader: str = "m2",
        offset: int = 5,
        releasing: frozenset[Instance] = frozenset(),
        left: frozenset[str] = frozenset(),
        namesakes: frozenset[str] = frozenset(),
        again_in_ms: int | None = None,
    ) -> list[g.Action]:
        me, other = Holder("m1", "http://w1"), Holder("m2", "http://w2")
        plan = Plan(
            generation=generation,
            config_offset=offset,
            assigned=dict.fromkeys(mine, me),
            holders={**dict.fromkeys(mine, me), Instance("d", 0): other},
            releasing={"m1": releasing} if releasing else {},
            left=left,
        )
        workers = {"m1": me.url, "m2": other.url}
        resolution = Resolution(plan=plan, workers=workers, namesakes=namesakes, again_in_ms=again_in_ms)
        data = encode_resolution(resolution)
        return self.tell(m.Assigned(generation=generation, member_id="m1", leader=leader, assignment=data))

    def lead(
        self,
        *others: WorkerSays,
        generation: int = 1,
        said: frozenset[Instance] = frozenset(),
        before_assigned: g.Event | None = None,
        member_id: str = "m1",
    ) -> Resolution:
        """A round that it leads; what it resolves, and has heard itself."""
        assert self.said is not None
        rows = [m.JoinedMember(member_id=member_id, metadata=encode_says(self.said))]
        rows += [m.JoinedMember(member_id=each.holder.member_id, metadata=encode_says(each)) for each in others]
        decide = m.Decide(generation=generation, member_id=member_id, members=tuple(rows), round_ms=0)
        tells = only_tells(self.tell(g.Lead(decide=decide, said_to_run=said, generation_heard=0)), m.Assign)
        data = tells[0].assignments[member_id]
        if before_assigned is not None:
            self.tell(before_assigned)
        self.tell(m.Assigned(generation=generation, member_id=member_id, leader=member_id, assignment=data))
        return decode_resolution(data)


def only(actions: Sequence[g.Action], kind: type[ActionT]) -> ActionT:
    (found,) = [action for action in actions if isinstance(action, kind)]
    return found


def only_tells(actions: Sequence[g.Action], kind: type[ActionT]) -> list[ActionT]:
    return [action.event for action in actions if isinstance(action, g.Tell) and isinstance(action.event, kind)]


def asks(actions: Sequence[g.Action]) -> bool:
    return bool(only_tells(actions, m.Rejoin))


@pytest.fixture
def worker() -> Driven:
    driven = Driven()
    driven.look()
    return driven


def test_the_first_look_makes_it_join() -> None:
    driven = Driven(gone=frozenset({"m0"}))
    assert only_tells(driven.look(), m.Describe)
    assert driven.said == WorkerSays(holder=Holder("m1", "http://w1"), config_offset=5, gone=frozenset({"m0"}))
    assert not driven.look(), "and the next one finds nothing new"


def test_it_may_do_what_it_is_assigned(worker: Driven) -> None:
    allow = only(worker.assigned(C, ONE), g.Allow)
    assert (allow.instances, allow.generation, allow.leads) == ({C, ONE}, 1, False)
    assert worker.said is not None and worker.said.holds == {C, ONE}
    assert worker.machine.has_seat and not worker.machine.leads


def test_it_begins_nothing_before_it_has_read_what_its_leader_had(worker: Driven) -> None:
    worker.assigned(ONE)
    allow = only(worker.assigned(ONE, TWO, generation=2, offset=7), g.Allow)
    assert allow.instances == {ONE}
    worker.read = 6
    assert not [action for action in worker.look() if isinstance(action, g.Allow)]
    worker.read = 7
    assert only(worker.look(), g.Allow).instances == {ONE, TWO}


def test_what_is_taken_away_ends_at_once_and_is_told_when_it_has(worker: Driven) -> None:
    worker.assigned(ONE, TWO)
    worker.running = frozenset({ONE, TWO})
    actions = worker.assigned(ONE, generation=2, offset=9, releasing=frozenset({TWO}))
    assert only(actions, g.Allow).instances == {ONE} and not asks(actions)
    assert worker.said is not None and worker.said.holds == {ONE, TWO}
    worker.running = frozenset({ONE})
    assert asks(worker.look())
    assert worker.said.holds == {ONE}
    assert not asks(worker.look()), "once is enough"


def test_a_connector_that_is_taken_away_is_given_back_at_once(worker: Driven) -> None:
    worker.assigned(C)
    assert asks(worker.assigned(generation=2, releasing=frozenset({C})))


def test_who_has_lost_its_lease_ends_everything(worker: Driven) -> None:
    worker.assigned(C, ONE)
    worker.running = frozenset({ONE})
    actions = worker.tell(m.Lost(generation=1, reason="silence"))
    assert only(actions, g.Allow).instances == frozenset()
    assert only(actions, g.EndAll).reason == "silence"
    assert worker.said is not None and worker.said.holds == {ONE}, "until its process is gone"
    assert not worker.machine.has_seat and not worker.machine.leads
    worker.running = frozenset()
    worker.look()
    assert worker.said.holds == frozenset()


def test_who_has_lost_its_lease_says_that_what_it_was_is_over_as_soon_as_nothing_runs(worker: Driven) -> None:
    """So that nobody waits for it, should the group have removed it."""
    worker.wanted = worker.running = frozenset({ONE})
    before = worker.lead()
    assert before.plan.of("m1") == {ONE}
    worker.tell(m.Lost(generation=1, reason="silence"))
    assert worker.said is not None and not worker.said.gone
    worker.running = frozenset()
    worker.look()
    assert worker.said.gone == {"m1"}
    alone = worker.lead(generation=3, member_id="m9")
    assert alone.plan.of("m9") == {ONE}
    worker.look()
    assert not worker.said.gone, "nobody holds anything under that name any more"


def test_what_ended_only_after_its_join_is_said_in_one_more_round(worker: Driven) -> None:
    worker.wanted = worker.running = frozenset({ONE})
    worker.lead()
    worker.tell(m.Lost(generation=1, reason="silence"))
    assert worker.said is not None and worker.said.stale == {ONE}
    assert not worker.lead(generation=3, member_id="m9").plan.of("m9")
    worker.running = frozenset()
    assert asks(worker.look())
    assert worker.lead(generation=4, member_id="m9").plan.of("m9") == {ONE}
    assert not asks(worker.look())


def test_what_it_is_given_anew_is_its_own_though_what_it_had_still_ends(worker: Driven) -> None:
    worker.running = frozenset({ONE, TWO})
    worker.assigned(ONE, TWO)
    worker.tell(m.Lost(generation=1, reason="silence"))
    worker.assigned(ONE, generation=2)
    assert worker.said is not None
    assert (worker.said.holds, worker.said.stale) == ({ONE, TWO}, {TWO})
    worker.running = frozenset({ONE})
    worker.look()
    assert not worker.said.stale


def test_a_leader_that_still_waits_is_told_once(worker: Driven) -> None:
    worker.running = frozenset({ONE})
    worker.assigned(ONE)
    worker.tell(m.Lost(generation=1, reason="silence"))
    worker.running = frozenset()
    for generation in (3, 4, 5):
        holders = {ONE: Holder("m1", "http://w1")}
        data = encode_resolution(Resolution(plan=Plan(generation=generation, config_offset=5, holders=holders)))
        told = worker.tell(m.Assigned(generation=generation, member_id="m9", leader="m2", assignment=data))
        assert asks(told) is (generation == 3)


def test_who_comes_back_under_the_member_id_it_had_is_there(worker: Driven) -> None:
    worker.wanted = worker.running = frozenset({ONE})
    worker.lead()
    worker.tell(m.Lost(generation=1, reason="silence"))
    worker.running = frozenset()
    worker.look()
    twin = WorkerSays(holder=Holder("m2", "http://w1"), config_offset=5)
    resolution = worker.lead(twin, generation=2)
    assert resolution.namesakes == {"m2"} and resolution.plan.of("m1") == {ONE}


def test_who_was_there_in_a_round_of_another_leader_is_remembered(worker: Driven) -> None:
    """So the round after it was not of nobody: it was in it, and did not hear who was given what is over now."""
    worker.wanted = frozenset({Instance("d", 0)})
    worker.assigned()
    back = WorkerSays(holder=Holder("m5", "http://w2"), config_offset=5, gone=frozenset({"m2"}))
    assert not worker.lead(back, generation=3).plan.assigned


def test_the_lease_is_handed_on(worker: Driven) -> None:
    assert only(worker.tell(m.Leased(until_ms=77)), g.Lease).until_ms == 77


def test_between_the_lease_and_the_assignment_of_a_round_nothing_is_asked(worker: Driven) -> None:
    """A join of then would be without what is about to be assigned, and somebody else would be given it too."""
    worker.assigned()
    worker.settled = False
    worker.wanted = frozenset({ONE})  # read while the round is under way
    assert not asks(worker.look())
    worker.settled = True
    assert not asks(worker.tell(m.Leased(until_ms=77)))
    told = [each.event for each in worker.assigned(ONE, generation=2) if isinstance(each, g.Tell)]
    assert [type(event) for event in told] == [m.Describe]


def test_who_leads_decides_and_asks_again_when_something_else_is_wanted(worker: Driven) -> None:
    worker.wanted = frozenset({C})
    resolution = worker.lead()
    assert resolution.plan.assigned == {C: Holder("m1", "http://w1")}
    assert dict(resolution.workers) == {"m1": "http://w1"} and worker.machine.leads
    assert not asks(worker.look())
    worker.wanted = frozenset({C, ONE})
    assert asks(worker.look())
    worker.settled = False
    assert not asks(worker.look()), "a round is under way"
    worker.settled = True
    worker.lead(generation=2)
    assert not asks(worker.look())


def test_who_does_not_lead_asks_for_a_round_when_it_reads_of_something_else(worker: Driven) -> None:
    worker.wanted = frozenset({ONE})
    worker.assigned(ONE, offset=7)
    worker.wanted, worker.read = frozenset({ONE, TWO}), 7  # that is what its leader had read
    assert not asks(worker.look())
    worker.wanted, worker.read = frozenset({ONE}), 9
    assert asks(worker.look())


def test_what_somebody_may_be_doing_is_waited_for_and_then_given(worker: Driven) -> None:
    worker.wanted = frozenset({ONE})
    resolution = worker.lead(said=frozenset({ONE}), generation=3)
    assert not resolution.plan.assigned
    wake = only(worker.look(), g.WakeAt)
    assert wake.at_ms == 6_000
    assert asks(worker.look(later_ms=5_000))
    assert worker.lead(generation=4, said=frozenset({ONE})).plan.assigned


def test_who_leads_tells_the_others_when_it_will_ask(worker: Driven) -> None:
    worker.wanted = frozenset({ONE})
    assert worker.lead(said=frozenset({ONE}), generation=3).again_in_ms == 5_000
    worker.look(later_ms=1_000)
    assert worker.lead(generation=4).again_in_ms == 4_000
    worker.look(later_ms=4_000)
    assert worker.lead(generation=5).again_in_ms is None


def test_who_follows_asks_by_itself_when_the_time_has_come_and_has_something_new_to_say(worker: Driven) -> None:
    """Else whoever asks before its leader would be told the same again, and would hear of the round by a heartbeat."""
    before = worker.said
    worker.assigned(generation=4, again_in_ms=5_000)
    wake = only(worker.look(later_ms=1_000), g.WakeAt)
    assert wake.at_ms == worker.now_ms + 4_000
    assert not asks(worker.look(later_ms=3_999))
    assert asks(worker.look(later_ms=1)) and not asks(worker.look())
    assert worker.said != before
    worker.assigned(generation=5)
    assert not asks(worker.look(later_ms=60_000))


def test_what_is_waited_for_is_not_forgotten_if_the_lease_ends_within_the_round(worker: Driven) -> None:
    """The round was slow, so the lease before it is over when its leader hears its own assignment, which is good."""
    worker.wanted = frozenset({ONE})
    resolution = worker.lead(
        generation=3, said=frozenset({ONE, TWO}), before_assigned=m.Lost(generation=2, reason="silence")
    )
    assert worker.machine.leads and not resolution.plan.assigned
    assert asks(worker.look(later_ms=5_000)), "nobody else will"


def test_who_leads_next_knows_who_may_be_doing_what(worker: Driven) -> None:
    worker.wanted = frozenset({Instance("d", 0)})
    worker.assigned(generation=4)  # the other one leads, and has d-0
    resolution = worker.lead(generation=5)
    assert not resolution.plan.assigned and worker.look(later_ms=4_999)
    assert asks(worker.look(later_ms=1))
    assert worker.lead(generation=6).plan.of("m1") == worker.wanted


def test_a_life_before_on_the_same_machine_is_not_waited_for() -> None:
    driven = Driven(gone=frozenset({"m0"}))
    driven.look()
    driven.wanted = frozenset({ONE})
    before = Plan(generation=4, assigned={ONE: Holder("m0", "http://w1")}, holders={ONE: Holder("m0", "http://w1")})
    driven.placement.learn(before)
    assert driven.lead(generation=5).plan.of("m1") == {ONE}


def test_a_member_that_cannot_be_understood_keeps_what_it_had_and_gets_nothing(worker: Driven) -> None:
    worker.wanted = frozenset({ONE, TWO})
    other = WorkerSays(holder=Holder("m2", "http://w2"), config_offset=5)
    first = worker.lead(other).plan
    assert first.of("m2")
    rows = (
        m.JoinedMember(member_id="m1", metadata=encode_says(worker.said)),
        m.JoinedMember(member_id="m2", metadata=b"\xff"),
    )
    decide = m.Decide(generation=2, member_id="m1", members=rows, round_ms=0)
    actions = worker.tell(g.Lead(decide=decide, said_to_run=frozenset(), generation_heard=0))
    assert only(actions, g.Trouble).member_id == "m2"
    plan = decode_resolution(only_tells(actions, m.Assign)[0].assignments["m1"]).plan
    assert not plan.of("m2") and {each for each, holder in plan.holders.items() if holder.member_id == "m2"} == (
        first.of("m2")
    )


def test_an_assignment_that_cannot_be_understood_is_nothing_to_do(worker: Driven) -> None:
    worker.assigned(ONE)
    actions = worker.tell(m.Assigned(generation=2, member_id="m1", leader="m2", assignment=b"?"))
    assert only(actions, g.Trouble).member_id == "m2"
    assert only(actions, g.Allow).instances == frozenset()


def test_who_stops_ends_its_tasks_says_so_and_goes(worker: Driven) -> None:
    worker.assigned(ONE)
    worker.running = frozenset({ONE})
    actions = worker.tell(g.Stop())
    assert only(actions, g.Allow).instances == frozenset() and not asks(actions)
    assert worker.said is not None and (worker.said.holds, worker.said.leaving) == ({ONE}, True)
    worker.running = frozenset()
    assert asks(worker.look())
    assert worker.said.holds == frozenset()
    assert not only_tells(worker.look(), m.Leave)
    assert only_tells(worker.assigned(generation=2, left=frozenset({"m1"})), m.Leave)
    assert only(worker.tell(m.Left()), g.Over).reason is None
    assert not worker.machine.has_seat and not worker.machine.leads
    assert not worker.look()


def test_a_leader_that_has_left_leads_no_longer(worker: Driven) -> None:
    worker.lead()
    assert worker.machine.leads
    worker.tell(g.Stop())
    worker.tell(m.Left())
    assert not worker.machine.leads
    assert not worker.machine.has_seat


@pytest.mark.parametrize("others", [(), (WorkerSays(holder=Holder("m2", "http://w2"), config_offset=5),)])
def test_a_leader_goes_when_the_others_have_had_time_to_ask_for_its_last_plan(
    worker: Driven, others: tuple[WorkerSays, ...]
) -> None:
    worker.lead(*others)
    assert asks(worker.tell(g.Stop()))
    data = encode_resolution(worker.lead(*others, generation=2))
    actions = worker.tell(m.Assigned(generation=2, member_id="m1", leader="m1", assignment=data))
    if others:
        assert not only_tells(actions, m.Leave)
        wake_ms = only(actions, g.WakeAt).at_ms
        assert wake_ms == worker.now_ms + g.LINGER_MS and not only_tells(worker.look(g.LINGER_MS - 1), m.Leave)
        actions = worker.look(1)
    assert only_tells(actions, m.Leave)


def test_a_leader_goes_though_round_follows_round(worker: Driven) -> None:
    other = WorkerSays(holder=Holder("m2", "http://w2"), config_offset=5)
    worker.lead(other)
    worker.tell(g.Stop())
    begun_ms = worker.now_ms
    for generation in range(2, 12):
        data = encode_resolution(worker.lead(other, generation=generation))
        actions = worker.tell(m.Assigned(generation=generation, member_id="m1", leader="m1", assignment=data))
        if only_tells(actions, m.Leave):
            break
        assert not only_tells(worker.look(g.LINGER_MS - 1), m.Leave) or worker.now_ms >= begun_ms + g.LINGER_MAX_MS
    assert worker.now_ms <= begun_ms + g.LINGER_MAX_MS + g.LINGER_MS


def test_a_leader_goes_though_a_round_does_not_end(worker: Driven) -> None:
    other = WorkerSays(holder=Holder("m2", "http://w2"), config_offset=5)
    worker.lead(other)
    worker.tell(g.Stop())
    worker.lead(other, generation=2)
    worker.settled = False
    assert only(worker.look(), g.WakeAt).at_ms == worker.now_ms + g.LINGER_MAX_MS
    assert not only_tells(worker.look(g.LINGER_MAX_MS - 1), m.Leave)
    assert only_tells(worker.look(1), m.Leave)


def test_a_leader_that_was_let_go_before_it_stopped_stays_for_the_others_all_the_same(worker: Driven) -> None:
    """A worker killed and started anew has its own former life's address, and is let go until that one is out."""
    worker.assigned(left=frozenset({"m1"}), namesakes=frozenset({"m1"}))
    worker.assigned(generation=2)
    worker.now_ms += 60_000
    other = WorkerSays(holder=Holder("m2", "http://w2"), config_offset=5)
    worker.lead(other, generation=3)
    worker.tell(g.Stop())
    data = encode_resolution(worker.lead(other, generation=4))
    actions = worker.tell(m.Assigned(generation=4, member_id="m1", leader="m1", assignment=data))
    assert not only_tells(actions, m.Leave)
    assert only(actions, g.WakeAt).at_ms == worker.now_ms + g.LINGER_MS


def test_a_goodbye_that_was_not_taken_is_said_again_after_a_while(worker: Driven) -> None:
    worker.assigned()
    assert asks(worker.tell(g.Stop()))
    actions = worker.assigned(generation=2)
    assert not asks(actions) and only(actions, g.WakeAt).at_ms == worker.now_ms + g.GOODBYE_AGAIN_MS
    assert asks(worker.look(later_ms=g.GOODBYE_AGAIN_MS))


def test_who_stops_without_a_lease_goes_when_its_tasks_have_ended(worker: Driven) -> None:
    worker.assigned(ONE)
    worker.running = frozenset({ONE})
    worker.tell(m.Lost(generation=1, reason="silence"))
    assert not only_tells(worker.tell(g.Stop()), m.Leave)
    worker.running = frozenset()
    assert only_tells(worker.look(), m.Leave)


def test_of_two_workers_under_one_address_the_later_one_goes(worker: Driven) -> None:
    worker.wanted = frozenset({ONE})
    worker.lead()
    namesake = WorkerSays(holder=Holder("m0", "http://w1"), config_offset=5)
    resolution = worker.lead(namesake, generation=2)
    assert resolution.namesakes == {"m0"} and resolution.plan.of("m1") == {ONE}
    actions = worker.assigned(generation=3, namesakes=frozenset({"m1"}))
    assert not worker.machine.has_seat
    wake = only(actions, g.WakeAt).at_ms
    assert not [action for action in worker.look() if isinstance(action, g.Over)]
    assert asks(worker.look(later_ms=wake - worker.now_ms)) and not asks(worker.look())
    actions = worker.assigned(generation=3, namesakes=frozenset({"m1"}))
    assert only_tells(actions, m.Leave)
    assert "another worker of the group answers at http://w1" in str(only(actions, g.Over).reason)


def test_a_life_before_that_was_in_the_last_round_costs_nothing_however_long_the_next_one_takes(worker: Driven) -> None:
    """It was killed while it waited for that round's end, so only the next one tells that it is gone."""
    worker.assigned(namesakes=frozenset({"m1"}))
    worker.settled = False
    assert not only_tells(worker.look(later_ms=10 * LEASE_MS), m.Leave)
    worker.settled = True
    worker.wanted = frozenset({ONE})
    assert only(worker.assigned(ONE, generation=2), g.Allow).instances == {ONE}
    assert worker.machine.has_seat


def test_a_worker_with_other_topics_gets_nothing_keeps_nobody_waiting_and_goes() -> None:
    driven = Driven(topics=("a", "b", "c"))
    driven.wanted = frozenset({ONE, TWO})
    driven.look()
    stranger = WorkerSays(holder=Holder("m0", "http://w1"), config_offset=1_000, topics=("a", "b", "x"))
    fellow = WorkerSays(holder=Holder("m2", "http://w2"), config_offset=5, topics=("a", "b", "c"))
    resolution = driven.lead(stranger, fellow)
    assert resolution.strangers == {"m0"} and not resolution.namesakes and "m0" not in resolution.workers
    assert {holder.member_id for holder in resolution.plan.assigned.values()} == {"m1", "m2"}
    data = encode_resolution(Resolution(plan=Plan(), strangers=frozenset({"m1"}), topics=("x", "y", "z")))
    actions = driven.tell(m.Assigned(generation=2, member_id="m1", leader="m2", assignment=data))
    assert only_tells(actions, m.Leave) and not driven.machine.has_seat
    assert "have the topics x, y, z, this one a, b, c" in str(only(actions, g.Over).reason)


def test_a_life_before_that_is_still_listed_does_not_cost_the_place(worker: Driven) -> None:
    worker.assigned(namesakes=frozenset({"m1"}))
    worker.assigned(ONE, generation=2)
    assert worker.machine.has_seat
    assert not [action for action in worker.look(later_ms=60_000) if isinstance(action, g.Over)]


def test_who_is_refused_is_out(worker: Driven) -> None:
    worker.assigned(ONE)
    actions = worker.tell(m.Refused(error_code=26, reason="not such sessions"))
    assert only(actions, g.Allow).instances == frozenset()
    assert only(actions, g.Over).reason == "not such sessions"


def test_whoever_is_behind_the_config_topic_says_so(worker: Driven) -> None:
    worker.assigned(ONE, offset=5)
    assert worker.machine.behind == ""
    worker.assigned(ONE, generation=2, offset=9)
    assert "read the config topic up to 5 of 9" in worker.machine.behind
    worker.read = 9
    worker.look()
    assert worker.machine.behind == ""
    other = WorkerSays(holder=Holder("m2", "http://w2"), config_offset=20)
    worker.lead(other, generation=3)
    assert "it leads and has read the config topic up to 9 of 20" in worker.machine.behind
    worker.tell(m.Lost(generation=3, reason="silence"))
    assert worker.machine.behind == ""


def test_it_is_alone_where_nobody_else_is_and_nobody_is_waited_for(worker: Driven) -> None:
    def alone_in(generation: int, *others: WorkerSays) -> int:
        worker.lead(*others, generation=generation)
        return worker.machine.alone_in

    worker.wanted = frozenset({ONE})
    assert worker.machine.alone_in == -1
    assert alone_in(1) == 1
    assert alone_in(2, WorkerSays(holder=Holder("m2", "http://w2"), config_offset=5)) == -1
    assert alone_in(3) == 3
    assert alone_in(9) == -1, "in rounds that it knows nothing of somebody may have been given something"
