"""A real broker's throttle: set, taken away, and left to those whose it is"""

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING

import pytest

from tidemill.cluster.moving import FOLLOWER_LIST, LEADER_LIST, RATE_KEYS, Throttles
from tidemill.cluster.reassigning import Reassigner
from tidemill.cluster.throttling import Throttling
from tidemill.core.client.admin import Admin, NewTopic
from tidemill.core.client.balance import Move
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.errors import KafkaError, PolicyViolation

if TYPE_CHECKING:
    from tidemill.services import Service

pytestmark = pytest.mark.integration

MOVED, OTHERS = "moved", "standing"
MOVES = (Move(topic=MOVED, partition=0, before=(1,), after=(2,)),)
OURS = {MOVED: {LEADER_LIST: "0:1", FOLLOWER_LIST: "0:2"}}


class Asked(Reassigner):
    """A reassigner that says that something moves, cannot set the rates, or knows of none, if it is told to."""

    moving: tuple[Move, ...] = ()
    refuses = False
    behind = False

    async def throttles(self) -> Throttles:
        """What is set, or what a broker says that has not heard of it yet."""
        return Throttles() if self.behind else await super().throttles()

    async def ongoing(self) -> tuple[Move, ...]:
        """What moves."""
        return self.moving

    async def set_rates(self, node: int, settings: Mapping[str, str | None]) -> None:
        """Set them, or not."""
        if self.refuses and any(settings.values()):
            raise PolicyViolation("not here")
        await super().set_rates(node, settings)


@pytest.fixture
async def reassigner(tidemill_broker: "Service") -> AsyncIterator[Asked]:
    async with ClusterClient(tidemill_broker.facts["address"]) as client:
        topics = [NewTopic(name=name, partitions=1, replication_factor=1) for name in (MOVED, OTHERS)]
        await Admin(client).create_topics(topics)
        asked = Asked(client)
        (node,) = await asked.who_runs()
        yield asked
        asked.refuses = asked.behind = False
        await asked.set_rates(node, dict.fromkeys(RATE_KEYS))
        await asked.set_lists({name: {LEADER_LIST: None, FOLLOWER_LIST: None} for name in (MOVED, OTHERS)})


async def test_it_is_set_and_taken_away(reassigner: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    (node,) = reassigner.running
    throttling = Throttling(reassigner)
    await throttling.begin(1000, MOVES)
    rates = {node: dict.fromkeys(RATE_KEYS, "1000")}
    assert await reassigner.throttles() == Throttles(rates=rates, lists=OURS)
    await throttling.end()
    assert await reassigner.throttles() == Throttles()
    told = capsys.readouterr()
    assert (told.out, told.err) == ("throttle removed: 1 brokers, 1 topics\n", "")


async def test_one_that_a_killed_command_left_goes_with_the_next(reassigner: Asked) -> None:
    await Throttling(reassigner).begin(1000, MOVES)
    again = Throttling(reassigner)
    await again.begin(2000, MOVES)
    await again.end()
    assert await reassigner.throttles() == Throttles()
    await Throttling(reassigner).begin(1000, MOVES)
    await Throttling(reassigner).end()
    assert await reassigner.throttles() == Throttles()


async def test_what_others_have_set_is_told_and_put_back(reassigner: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    (node,) = reassigner.running
    own = Throttles(
        rates={node: {RATE_KEYS[0]: "777"}}, lists={OTHERS: {FOLLOWER_LIST: "*"}, MOVED: {LEADER_LIST: "*"}}
    )
    await reassigner.set_rates(node, own.rates[node])
    await reassigner.set_lists(own.lists)
    await Throttling(reassigner).end()
    assert await reassigner.throttles() == own, "nothing of it is of moves"
    throttling = Throttling(reassigner)
    await throttling.begin(1000, MOVES)
    told = capsys.readouterr().err
    assert f"broker {node}: {RATE_KEYS[0]}=777 was set before" in told
    assert "all replicas of moved, standing are throttled for good" in told
    found = await reassigner.throttles()
    assert found.rates[node] == dict.fromkeys(RATE_KEYS, "1000")
    assert found.lists == {OTHERS: {FOLLOWER_LIST: "*"}, MOVED: {LEADER_LIST: "*", FOLLOWER_LIST: "0:2"}}
    await throttling.end()
    assert await reassigner.throttles() == own


async def test_rates_stay_where_what_is_left_behind_cannot_be_told_from_what_is_wanted(
    reassigner: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    (node,) = reassigner.running
    await reassigner.set_lists({OTHERS: {FOLLOWER_LIST: "*"}})
    await Throttling(reassigner).begin(1000, MOVES)
    await Throttling(reassigner).end()
    found = await reassigner.throttles()
    assert (list(found.rates), found.lists) == ([node], {OTHERS: {FOLLOWER_LIST: "*"}})
    assert "the brokers' rates stay" in capsys.readouterr().err


async def test_it_stays_as_long_as_anybody_moves_something(
    reassigner: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    throttling = Throttling(reassigner)
    await throttling.begin(1000, MOVES)
    reassigner.moving = (Move(topic=OTHERS, partition=0, before=(1,), after=(2,)),)
    await throttling.end()
    assert (await reassigner.throttles()).of_moves
    assert "the throttle stays: standing-0 is on the move still" in capsys.readouterr().err
    reassigner.moving = ()
    await throttling.end()
    assert await reassigner.throttles() == Throttles()


async def test_half_of_it_is_none(reassigner: Asked) -> None:
    reassigner.refuses = True
    with pytest.raises(KafkaError, match="not here"):
        await Throttling(reassigner).begin(1000, MOVES)
    assert await reassigner.throttles() == Throttles()


async def test_what_was_set_is_taken_away_though_the_broker_asked_has_not_heard_of_it(reassigner: Asked) -> None:
    throttling = Throttling(reassigner)
    reassigner.behind = True
    await throttling.begin(1000, MOVES)
    await throttling.end()
    reassigner.behind = False
    assert await reassigner.throttles() == Throttles()
