"""Bookkeeping of one group against a plain reading of its rules."""

from hypothesis import given
from hypothesis import strategies as st

from tidemill.broker.groups.events import Protocol
from tidemill.broker.groups.membership import ClassicGroup, Member
from tidemill.broker.groups.states import GroupState

offers = st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True)


def member(member_id: str, names: list[str], instance: str | None = None) -> Member:
    return Member(
        member_id=member_id,
        group_instance_id=instance,
        client_id="c",
        client_host="/h",
        session_timeout_ms=1,
        rebalance_timeout_ms=len(member_id),
        protocols=tuple(Protocol(name, f"{member_id}-{name}".encode()) for name in names),
    )


def group_of(*members: Member) -> ClassicGroup:
    group = ClassicGroup("g")
    group.protocol_type = "consumer"
    for entry in members:
        group.add(entry)
    return group


@given(st.lists(offers, min_size=1, max_size=5))
def test_the_chosen_protocol_is_spoken_by_all_and_wanted_by_most(lists: list[list[str]]) -> None:
    group = group_of(*(member(f"m{index}", names) for index, names in enumerate(lists)))
    shared = set.intersection(*(set(names) for names in lists))
    assert group.shared_protocols() == shared
    if not shared:
        return
    votes = [next(name for name in names if name in shared) for names in lists]
    chosen = group.select_protocol()
    assert votes.count(chosen) == max(votes.count(name) for name in shared)
    assert chosen == group.select_protocol(), "the same members choose the same again"


@given(st.lists(offers, min_size=1, max_size=4), offers)
def test_a_newcomer_needs_one_protocol_that_all_have(lists: list[list[str]], names: list[str]) -> None:
    group = group_of(*(member(f"m{index}", entry) for index, entry in enumerate(lists)))
    offered = tuple(Protocol(name, b"") for name in names)
    assert group.can_speak("consumer", offered) == bool(set(names).intersection(*(set(entry) for entry in lists)))
    assert not group.can_speak("connect", offered)


def test_an_empty_group_takes_any_protocol_but_not_none() -> None:
    group = ClassicGroup("g")
    assert group.can_speak("consumer", (Protocol("a", b""),))
    assert not group.can_speak("", (Protocol("a", b""),))
    assert not group.can_speak("consumer", ())


def test_the_first_member_leads_and_another_one_when_it_goes() -> None:
    a, b = member("a", ["x"]), member("b", ["x"])
    group = group_of(a, b)
    assert group.leader == "a"
    group.remove(a)
    assert group.leader == "b"
    group.remove(b)
    assert group.leader is None


def test_a_leader_that_has_not_joined_gives_way_to_one_that_has() -> None:
    a, b = member("a", ["x"]), member("b", ["x"])
    group = group_of(a, b)
    assert not group.elect_joined_leader()
    b.join_request = 1
    assert group.elect_joined_leader()
    assert group.leader == "b"


def test_a_new_life_of_an_instance_takes_over_everything() -> None:
    one = member("old", ["x"], "one")
    group = group_of(member("a", ["x"]), one)
    group.leader = "old"
    group.pending_syncs.add("old")
    group.rename(one, "new")
    assert list(group.members) == ["a", "new"]
    assert group.instances == {"one": "new"}
    assert (group.leader, group.pending_syncs) == ("new", {"new"})


def test_restoring_a_record_gives_the_group_it_was_made_from() -> None:
    group = group_of(member("a", ["x"]), member("bb", ["x"], "one"))
    group.protocol_name, group.generation_id, group.leader = "x", 7, "bb"
    record = group.record({"a": b"1", "bb": b"2"}, 99)
    copy = ClassicGroup("g")
    copy.restore(record)
    assert copy.record({entry.member_id: entry.assignment for entry in copy.members.values()}, 99) == record
    assert (copy.state, copy.state_timestamp_ms) == (GroupState.STABLE, 99)
    assert copy.instances == {"one": "bb"}
    assert copy.rebalance_timeout_ms == 2
    empty = ClassicGroup("g")
    empty.restore(ClassicGroup("g").record({}, 1))
    assert (empty.state, empty.protocol_type) == (GroupState.EMPTY, None)


def test_views_are_for_people_and_come_with_what_is_settled() -> None:
    group = group_of(member("a", ["x"]))
    group.protocol_name = "x"
    group.members["a"].assignment = b"mine"
    assert (group.views()[0].metadata, group.views()[0].assignment) == (b"", b"")
    group.state = GroupState.STABLE
    assert (group.views()[0].metadata, group.views()[0].assignment) == (b"a-x", b"mine")
