"""A worker's part in a group of Kafka's protocol: what it may do, what it tells, when it asks for a round"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import pytest

from tidemill.connect.group import machine as g
from tidemill.connect.group.incremental import GRACE_MS, Assignor
from tidemill.connect.group.sessioned import BEHIND_MS, SessionedMachine
from tidemill.connect.group.sessioned_words import (
    CONFIG_MISMATCH,
    Assignment,
    WorkerState,
    decode_assignment,
    decode_state,
    encode_assignment,
    encode_state,
)
from tidemill.connect.herder.placement import CONNECTOR, SOMEBODY, Holder, Instance
from tidemill.core.client import membership as m

C = Instance("c", CONNECTOR)
ONE, TWO, THREE = (Instance("c", task) for task in range(3))
DELAY_MS = 60_000

ActionT = TypeVar("ActionT")
Held = Mapping[str, frozenset[Instance]]


def of(*instances: Instance) -> frozenset[Instance]:
    return frozenset(instances)


class Driven:
    """A machine, and how things stand around it."""

    def __init__(self) -> None:
        self.machine = SessionedMachine("http://w1", Assignor(DELAY_MS, lease_ms=10_000, rebalance_timeout_ms=60_000))
        self.wanted = of(C, ONE, TWO)
        self.read = 5
        self.running = of()
        self.settled = True
        self.now_ms = 1_000
        self.words = b""

    @property
    def said(self) -> WorkerState:
        return decode_state(self.words)

    def tell(self, event: g.Event, later_ms: int = 0) -> list[g.Action]:
        self.now_ms += later_ms
        facts = g.Facts(wanted=self.wanted, config_offset=self.read, running=self.running, settled=self.settled)
        actions = self.machine.step(event, facts, self.now_ms)
        for told in only_tells(actions, m.Describe):
            self.words = told.metadata
        return actions

    def look(self, later_ms: int = 0) -> list[g.Action]:
        return self.tell(g.Look(), later_ms)

    def assigned(
        self,
        *new: Instance,
        revoked: frozenset[Instance] = frozenset(),
        generation: int = 1,
        offset: int = 5,
        delay_ms: int = 0,
        error: int = 0,
        said: bytes | None = None,
    ) -> list[g.Action]:
        """What another one leads, for what was said before it or, if that is not given, now."""
        assignment = Assignment(
            leader="m2",
            leader_url="http://w2/",
            config_offset=offset,
            assigned=frozenset(new),
            revoked=revoked,
            delay_ms=delay_ms,
            error=error,
        )
        return self.receive(encode_assignment(assignment), "m2", generation, said)

    def receive(self, assignment: bytes, leader: str, generation: int, said: bytes | None = None) -> list[g.Action]:
        words = self.words if said is None else said
        return self.tell(
            m.Assigned(generation=generation, member_id="m1", leader=leader, assignment=assignment, said=words)
        )

    def lead(self, others: Held, generation: int = 1, offset: int = 5) -> dict[str, Assignment]:
        """A round that it leads; who gets what."""
        states = {
            name: WorkerState(
                url=f"http://{name}/",
                config_offset=offset,
                assignment=Assignment(leader="?", leader_url="", config_offset=1, assigned=held),
            )
            for name, held in others.items()
        }
        said = self.words
        rows = [m.JoinedMember(member_id="m1", metadata=said)]
        rows += [m.JoinedMember(member_id=name, metadata=encode_state(state)) for name, state in states.items()]
        return self.decide(rows, generation)

    def decide(self, rows: Sequence[m.JoinedMember], generation: int) -> dict[str, Assignment]:
        decide = m.Decide(generation=generation, member_id="m1", members=tuple(rows), round_ms=0)
        actions = self.tell(g.Lead(decide=decide, said_to_run=of(), generation_heard=0))
        (assign,) = only_tells(actions, m.Assign)
        assert assign.generation == generation
        return {name: decode_assignment(data) for name, data in assign.assignments.items()}

    def led(self, others: Held, generation: int = 1, offset: int = 5) -> list[g.Action]:
        """Such a round, and what comes of it here."""
        said = self.words
        answers = self.lead(others, generation, offset)
        return self.receive(encode_assignment(answers["m1"]), "m1", generation, said)


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


# -------------------------------------------------------------------- following


def test_it_joins_with_its_address_and_how_far_it_has_read(worker: Driven) -> None:
    assert worker.said == WorkerState(url="http://w1", config_offset=5)
    assert not worker.look(), "and finds nothing new the next time"


def test_a_topic_without_a_record_was_read_as_far_as_apaches_workers_say() -> None:
    driven = Driven()
    driven.read, driven.wanted = 0, of()
    driven.look()
    assert driven.said.config_offset == -1


def test_what_comes_is_added_to_what_it_has(worker: Driven) -> None:
    allow = only(worker.assigned(C, ONE), g.Allow)
    assert (allow.instances, allow.generation, allow.leads, allow.busy) == (of(C, ONE), 1, False, of())
    assert worker.said.holds == of(C, ONE)
    assert only(worker.assigned(TWO, generation=2), g.Allow).instances == of(C, ONE, TWO)
    machine = worker.machine
    assert machine.has_seat and not machine.leads
    assert machine.workers == {"m1": "http://w1"}, "what the others do it does not know"
    assert machine.leader_url == "http://w2/"
    assert machine.plan.assigned == dict.fromkeys(of(C, ONE, TWO), Holder("m1", "http://w1"))


def test_an_assignment_told_twice_is_the_same(worker: Driven) -> None:
    """A broker answers so who joins again with the same words."""
    worker.assigned(C, ONE)
    said = worker.words
    worker.assigned(revoked=of(ONE), generation=2, said=said)
    assert not worker.assigned(revoked=of(ONE), generation=2)
    assert worker.said.holds == of(C)


def test_what_is_revoked_ends_and_then_there_is_another_round(worker: Driven) -> None:
    worker.assigned(C, ONE, TWO)
    worker.running = of(ONE, TWO)
    actions = worker.assigned(revoked=of(C, TWO), generation=2)
    assert only(actions, g.Allow).instances == of(ONE)
    assert not asks(actions) and worker.said.holds == of(ONE, TWO), "it may still be doing it"
    worker.running = of(ONE)
    assert asks(worker.look()) and worker.said.holds == of(ONE)
    assert not asks(worker.look()), "once"


def test_what_is_revoked_and_does_not_run_is_followed_by_a_round_at_once(worker: Driven) -> None:
    worker.assigned(C)
    assert asks(worker.assigned(revoked=of(C), generation=2))


def test_what_it_has_goes_by_what_it_said_in_the_join(worker: Driven) -> None:
    """TWO was on its way out when the round began, and has ended; the leader has left it here."""
    worker.assigned(ONE, TWO)
    worker.running = of(ONE, TWO)
    worker.assigned(revoked=of(TWO), generation=2)
    said = worker.words
    worker.running = of(ONE)
    worker.settled = False
    worker.look()
    worker.settled = True
    assert only(worker.assigned(generation=3, said=said), g.Allow).instances == of(ONE, TWO)


def test_it_begins_nothing_before_it_has_read_what_its_leader_had(worker: Driven) -> None:
    worker.assigned(ONE)
    allow = only(worker.assigned(TWO, generation=2, offset=7), g.Allow)
    assert allow.instances == of(ONE)
    worker.read = 6
    assert not [action for action in worker.look() if isinstance(action, g.Allow)]
    worker.read = 7
    assert only(worker.look(), g.Allow).instances == of(ONE, TWO)


def test_a_round_that_assigns_nothing_changes_nothing(worker: Driven) -> None:
    worker.assigned(ONE)
    actions = worker.assigned(generation=2, offset=9, error=CONFIG_MISMATCH)
    assert only(actions, g.Allow).instances == of(ONE) and not asks(actions)
    assert not asks(worker.look(DELAY_MS)), "the leader will"


def test_it_asks_for_a_round_when_something_else_is_wanted(worker: Driven) -> None:
    worker.assigned(ONE)
    worker.read, worker.wanted = 6, of(C, ONE)
    actions = worker.look()
    assert asks(actions) and worker.said.config_offset == 6
    assert not asks(worker.look())


def test_it_asks_for_no_round_while_there_is_one(worker: Driven) -> None:
    worker.assigned(ONE)
    worker.read, worker.wanted, worker.settled = 6, of(C, ONE), False
    assert not asks(worker.look())
    worker.settled = True
    assert not asks(worker.look()), "it does not know yet what came of it"
    assert not asks(worker.assigned(generation=2, offset=6))


@pytest.mark.parametrize("has", [of(), of(ONE)])
def test_who_follows_asks_by_itself_when_a_delay_is_over(worker: Driven, has: frozenset[Instance]) -> None:
    """As Apache's workers do; and tells the delay it was given, as they do: without news a broker begins no round."""
    worker.assigned(*has)
    before = worker.words
    worker.assigned(delay_ms=1_000, generation=2)
    assert only(worker.look(400), g.WakeAt).at_ms == worker.now_ms + 600
    assert not asks(worker.look(599))
    assert asks(worker.look(1)) and not asks(worker.look())
    assert worker.words != before and worker.said.holds == has
    worker.assigned(generation=3)
    assert not asks(worker.look(60_000)) and worker.words == before


def test_who_has_lost_its_lease_has_no_delay_to_tell_of_or_to_wait_for(worker: Driven) -> None:
    worker.assigned(delay_ms=1_000)
    worker.tell(m.Lost(generation=1, reason="silence"))
    assert worker.said.assignment is None and not asks(worker.look(2_000))


def test_a_delay_that_is_none_is_no_reason_to_ask(worker: Driven) -> None:
    worker.assigned(ONE, delay_ms=-1)
    assert not asks(worker.look(60_000))


def test_who_has_lost_its_lease_ends_everything_and_says_what_has_not_ended(worker: Driven) -> None:
    worker.assigned(C, ONE, TWO)
    worker.running = of(ONE, TWO)
    actions = worker.tell(m.Lost(generation=1, reason="silence"))
    assert only(actions, g.Allow).instances == of() and only(actions, g.EndAll).reason == "silence"
    assert worker.said.holds == of(ONE, TWO)
    worker.running = of()
    worker.look()
    assert worker.said.assignment is None
    assert not worker.machine.has_seat
    assert only(worker.assigned(THREE, generation=4), g.Allow).instances == of(THREE)


def test_a_group_that_begins_anew_does_not_make_its_own_words_look_old(worker: Driven) -> None:
    worker.assigned(ONE, generation=7)
    worker.tell(m.Lost(generation=7, reason="anew"))
    assert only(worker.assigned(TWO, generation=1), g.Allow).generation == 7
    assert worker.machine.plan.generation == 1


def test_who_stops_goes_when_all_has_ended(worker: Driven) -> None:
    worker.assigned(ONE)
    worker.running = of(ONE)
    actions = worker.tell(g.Stop())
    assert only(actions, g.Allow).instances == of() and not only_tells(actions, m.Leave)
    assert worker.said.holds == of(ONE)
    worker.assigned(TWO, generation=2)
    assert worker.said.holds == of(ONE, TWO), "it waits for its return"
    worker.running = of()
    assert only_tells(worker.look(), m.Leave)
    assert only(worker.tell(m.Left()), g.Over).reason is None
    assert not worker.look()


def test_who_is_refused_is_out(worker: Driven) -> None:
    worker.assigned(ONE)
    actions = worker.tell(m.Refused(error_code=23, reason="another protocol"))
    assert only(actions, g.Over).reason == "another protocol"
    assert not worker.machine.holds_lease


@pytest.mark.parametrize("assignment", [b"", b"\0\2\0"])
def test_words_that_say_nothing_change_nothing(worker: Driven, assignment: bytes) -> None:
    worker.assigned(ONE)
    actions = worker.receive(assignment, "m2", 2)
    assert only(actions, g.Trouble).member_id == "m2"
    assert not asks(actions) and worker.said.holds == of(ONE)
    assert worker.machine.leader_url is None


def test_a_lease_is_told(worker: Driven) -> None:
    assert only(worker.tell(m.Leased(until_ms=9_000)), g.Lease).until_ms == 9_000


# ---------------------------------------------------------------------- leading


def test_it_shares_the_work_out(worker: Driven) -> None:
    answers = worker.lead({"m2": of()})
    mine, other = answers["m1"], answers["m2"]
    assert mine.assigned | other.assigned == worker.wanted and not mine.assigned & other.assigned
    assert (mine.leader, mine.leader_url, mine.config_offset, mine.error) == ("m1", "http://w1", 5, 0)


def test_a_leader_knows_who_has_what(worker: Driven) -> None:
    allow = only(worker.led({"m2": of(C, ONE)}), g.Allow)
    assert allow.instances == of(TWO) and allow.leads and allow.busy == of(C, ONE)
    machine = worker.machine
    assert machine.leader_url == machine.url
    assert machine.leads and machine.workers == {"m1": "http://w1", "m2": "http://m2/"}
    assert machine.plan.assigned[ONE] == Holder("m2", "http://m2/")
    assert machine.plan.assigned[TWO] == Holder("m1", "http://w1")


def test_what_is_revoked_is_its_workers_until_that_says_otherwise(worker: Driven) -> None:
    worker.led({"m2": worker.wanted | of(THREE)})
    assert THREE not in worker.machine.plan.assigned
    assert worker.machine.plan.holders[THREE].member_id == "m2"


def test_a_leader_that_has_read_less_than_others_assigns_nothing(worker: Driven) -> None:
    answers = worker.lead({"m2": of()}, offset=8)
    for answer in answers.values():
        assert (answer.error, answer.config_offset, answer.assigned, answer.revoked) == (CONFIG_MISMATCH, 8, of(), of())
    actions = worker.receive(encode_assignment(answers["m1"]), "m1", 1)
    assert only(actions, g.WakeAt).at_ms == worker.now_ms + BEHIND_MS and not asks(actions)
    worker.read = 7
    assert not asks(worker.look())
    worker.read = 8
    assert asks(worker.look())


def test_whoever_is_behind_the_config_topic_says_so(worker: Driven) -> None:
    worker.assigned(ONE, offset=5)
    assert worker.machine.behind == ""
    worker.assigned(TWO, offset=9, generation=2)
    assert "read the config topic up to 5 of 9" in worker.machine.behind
    worker.read = 9
    worker.look()
    assert worker.machine.behind == ""
    worker.assigned(offset=12, generation=3, error=CONFIG_MISMATCH)
    assert worker.machine.behind.startswith("the leader") and "up to 12" in worker.machine.behind
    worker.led({"m2": of()}, 4, offset=20)
    assert "it leads and has read the config topic up to 9 of 20" in worker.machine.behind
    worker.tell(m.Lost(generation=4, reason="silence"))
    assert worker.machine.behind == ""


def test_a_leader_that_has_read_less_than_others_is_in_no_office(worker: Driven) -> None:
    """It no longer knows what they do: as a leader it would say that nobody does anything."""
    worker.led({"m2": of(C, ONE)})
    answers = worker.lead({"m2": of(C, ONE)}, generation=2, offset=8)
    worker.receive(encode_assignment(answers["m1"]), "m1", 2)
    assert ONE not in worker.machine.plan.holders and not worker.machine.leads
    worker.read = 8
    assert asks(worker.look())
    worker.led({"m2": of(C, ONE)}, generation=3, offset=8)
    assert worker.machine.leads and worker.machine.plan.holders[ONE].member_id == "m2"


def test_a_leader_that_stays_behind_asks_again(worker: Driven) -> None:
    answers = worker.lead({"m2": of()}, offset=8)
    worker.receive(encode_assignment(answers["m1"]), "m1", 1)
    assert asks(worker.look(BEHIND_MS))


def test_a_leader_asks_for_a_round_when_a_delay_is_over(worker: Driven) -> None:
    worker.led({"m2": of()})
    actions = worker.led({}, generation=2)
    assert only(actions, g.WakeAt).at_ms == worker.now_ms + DELAY_MS
    assert not asks(worker.look(DELAY_MS - 1))
    assert asks(worker.look(1))
    assert worker.lead({}, generation=3)["m1"].assigned


def test_a_leader_counts_a_delay_from_its_decision(worker: Driven) -> None:
    """So it is not the last to ask: a broker begins no round for a follower that has nothing new to say."""
    worker.led({"m2": of()})
    said = worker.words
    answers = worker.lead({}, generation=2)
    decided_ms = worker.now_ms
    worker.look(7)
    actions = worker.receive(encode_assignment(answers["m1"]), "m1", 2, said)
    assert only(actions, g.WakeAt).at_ms == decided_ms + DELAY_MS


def test_a_leader_remembers_what_it_has_decided_for(worker: Driven) -> None:
    """What it has read between its decision and its assignment is new."""
    said = worker.words
    answers = worker.lead({"m2": of()})
    worker.read, worker.wanted = 6, worker.wanted | of(THREE)
    assert asks(worker.receive(encode_assignment(answers["m1"]), "m1", 1, said))


def test_a_member_that_is_not_understood_keeps_what_it_had(worker: Driven) -> None:
    worker.led({"m2": of(C, ONE)})
    rows = [m.JoinedMember(member_id="m1", metadata=worker.words), m.JoinedMember(member_id="m2", metadata=b"{}")]
    answers = worker.decide(rows, 2)
    assert not answers["m1"].assigned and not answers["m2"].assigned
    worker.wanted |= of(THREE)
    answers = worker.decide(rows, 3)
    assert answers["m1"].assigned == of(THREE) and answers["m2"].assigned == of()


def test_a_leader_knows_what_one_that_has_gone_may_be_doing(worker: Driven) -> None:
    """Whoever wants to change the offsets of what was stopped meanwhile has to hear of it."""
    worker.led({"m2": of(ONE)}, 2)
    worker.running = of(C, TWO)
    worker.wanted = of(C)
    worker.look()
    actions = worker.led({}, 3)
    assert worker.machine.plan.holders[ONE] == SOMEBODY and ONE not in worker.machine.plan.assigned
    assert only(actions, g.Allow).busy == of(ONE)
    worker.running = of(C)
    assert asks(worker.look())
    worker.led({}, 4)
    assert set(worker.machine.plan.holders) == of(C, ONE)
    assert asks(worker.look(GRACE_MS)), "when it has ended there is a round that says so"
    actions = worker.led({}, 5)
    assert set(worker.machine.plan.holders) == of(C) and only(actions, g.Allow).busy == of()


def test_a_name_that_the_protocol_cannot_say_is_no_ones_and_told(worker: Driven) -> None:
    worker.wanted |= of(Instance("é" * 20_000, CONNECTOR))
    actions = worker.led({})
    assert only(actions, g.Allow).instances == of(C, ONE, TWO)
    assert not asks(worker.look())


def test_a_leader_that_was_out_remembers_nothing(worker: Driven) -> None:
    """Somebody else may have led meanwhile: nobody is waited for."""
    worker.led({"m2": of(ONE)})
    worker.tell(m.Lost(generation=1, reason="silence"))
    assert worker.lead({}, generation=2)["m1"].assigned == worker.wanted
