import uuid
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.broker.quorum.raft.voters import (
    Voter,
    VoterEndpoint,
    VoterSet,
    parse_bootstrap_servers,
    parse_voters,
)
from tidemill.core.config import ConfigError
from tidemill.core.types import ZERO_UUID

HERE = uuid.UUID(int=7)
THERE = uuid.UUID(int=8)


def voters(*ids: int, directory_id: uuid.UUID = ZERO_UUID) -> VoterSet:
    return VoterSet.of(Voter(node_id=each, directory_id=directory_id) for each in ids)


def test_configured_voters_are_read() -> None:
    found = parse_voters(" 3@third:9093, 1@[::1]:19093 ,")
    assert found.ids == (1, 3)
    assert found.get(1) == Voter(node_id=1, endpoints=(VoterEndpoint("CONTROLLER", "::1", 19093),))
    assert parse_voters("") == VoterSet()
    third = parse_voters("3@third:9093", "QUORUM").get(3)
    assert third is not None
    assert third.endpoints[0].name == "QUORUM"


def test_every_mistake_is_told() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_voters("1@first:9093,first:9093,-2@x:1,3@:9093,4@x:0,5@x:nine,1@again:9093,²@x:1")
    assert len(caught.value.problems) == 7
    assert all(each.startswith("controller.quorum.voters: ") for each in caught.value.problems)


def test_bootstrap_servers_are_read() -> None:
    assert parse_bootstrap_servers("a:1,b:2,a:1,") == (("a", 1), ("b", 2))
    assert parse_bootstrap_servers("") == ()
    with pytest.raises(ConfigError) as caught:
        parse_bootstrap_servers("a:1,b,:3")
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(("count", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_a_majority_is_more_than_half(count: int, majority: int) -> None:
    everybody = voters(*range(count))
    assert everybody.majority == majority
    assert everybody.has_majority(range(majority))
    assert not everybody.has_majority(range(majority - 1))
    assert not everybody.has_majority([0] * count + [99]) or count == 1


def test_whoever_has_another_directory_is_somebody_else() -> None:
    known = voters(1, 2, directory_id=HERE)
    assert known.is_voter(1, HERE)
    assert known.is_voter(1)
    assert not known.is_voter(1, THERE)
    assert not known.is_voter(3, HERE)
    assert voters(1).is_voter(1, THERE)
    assert len(known) == 2
    assert [each.node_id for each in known] == [1, 2]


def test_ids_are_in_order_and_there_once() -> None:
    with pytest.raises(ValueError):
        VoterSet(voters=(Voter(node_id=2), Voter(node_id=1)))
    with pytest.raises(ValueError):
        voters(1, 1)


def test_changes() -> None:
    three = voters(1, 2, 3, directory_id=HERE)
    assert three.adding(Voter(node_id=4)).ids == (1, 2, 3, 4)
    assert three.removing(2).ids == (1, 3)
    moved = three.updating(Voter(node_id=2, endpoints=(VoterEndpoint("C", "new", 1),)))
    second = moved.get(2)
    assert second is not None
    assert (second.directory_id, second.endpoints[0].host) == (HERE, "new")
    with pytest.raises(ValueError):
        three.adding(Voter(node_id=1))
    with pytest.raises(KeyError):
        three.removing(4)
    with pytest.raises(KeyError):
        three.updating(Voter(node_id=4))
    with pytest.raises(KeyError):
        three.updating(Voter(node_id=1, directory_id=THERE))


def test_one_change_at_a_time() -> None:
    three = voters(1, 2, 3)
    assert three.overlaps(three)
    assert three.overlaps(voters(1, 2))
    assert three.overlaps(voters(1, 2, 3, 4))
    assert not three.overlaps(voters(1, 2, 4))
    assert not three.overlaps(voters(1))
    here = voters(1, 2, 3, directory_id=HERE)
    assert three.overlaps(here)  # what was any is known now
    assert not here.overlaps(here.removing(3).adding(Voter(node_id=3, directory_id=THERE)))


ids = st.sets(st.integers(1, 6), min_size=1)


@given(one=ids, other=ids)
def test_what_overlaps_has_no_two_majorities_apart(one: set[int], other: set[int]) -> None:
    before, after = voters(*one), voters(*other)
    assert before.overlaps(after) is after.overlaps(before)
    if before.overlaps(after):
        for mine in combinations(before.ids, before.majority):
            for theirs in combinations(after.ids, after.majority):
                assert set(mine) & set(theirs)
