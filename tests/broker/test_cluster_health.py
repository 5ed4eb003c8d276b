"""What a node says that waits for its cluster, or is none of those that it counts on."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.broker.test_clustered import cluster_of_three, until
from tests.broker.test_watching import health, reasons
from tidemill.broker.cluster_health import is_in_touch, is_out, named, waits
from tidemill.broker.quorum.lifecycle import Stage
from tidemill.broker.quorum.raft.voters import Voter, VoterEndpoint, VoterSet
from tidemill.core.types import ZERO_UUID
from tidemill.free_ports import free_port

VOTERS = VoterSet.of(
    Voter(node_id=node, directory_id=ZERO_UUID, endpoints=(VoterEndpoint("CONTROLLER", f"host-{node}", 9093),))
    for node in (1, 2)
)


def place(
    stage: Stage,
    *,
    leader_id: int = -1,
    trouble: str = "",
    is_fenced: bool = False,
    answered_ms: int = 0,
    known_ms: int = 0,
    led_ms: int = 0,
    unreached: str = "",
    why_nobody_leads: str = "",
) -> Any:
    life = SimpleNamespace(
        stage=stage, trouble=trouble, is_fenced=is_fenced, answered_ms=answered_ms, known_ms=known_ms
    )
    return SimpleNamespace(
        life=SimpleNamespace(machine=life),
        member=SimpleNamespace(machine=SimpleNamespace(leader_id=leader_id, voters=VOTERS)),
        settings=SimpleNamespace(session_timeout_ms=9_000),
        led_ms=led_ms,
        unreached=unreached,
        why_nobody_leads=why_nobody_leads,
    )


def test_a_broker_is_in_touch_until_half_a_session_after_it_asked() -> None:
    running = place(Stage.RUNNING, known_ms=1_000, answered_ms=5_400)
    assert is_in_touch(running, 5_499) and not is_in_touch(running, 5_500)
    assert is_in_touch(place(Stage.STOPPING), 0)
    assert not is_in_touch(place(Stage.RUNNING, is_fenced=True), 0)
    assert not any(is_in_touch(place(stage), 0) for stage in (Stage.REGISTERING, Stage.STARTING, Stage.STOPPED))


def test_a_start_says_whom_it_waits_for() -> None:
    (reason,) = waits(place(Stage.REGISTERING, trouble="nobody answers"), False)
    assert reason.why == (
        "waiting for the active controller: nobody answers; "
        "controllers 1@host-1:9093, 2@host-2:9093, none of them leads"
    )
    (reason,) = waits(place(Stage.REGISTERING, unreached="host-1:9093: it hangs up"), False)
    assert reason.why.endswith("none of them leads (host-1:9093: it hangs up)")
    begun = place(Stage.REGISTERING, trouble="nobody answers", unreached="a:9093: no", why_nobody_leads="none began it")
    (reason,) = waits(begun, False)
    assert reason.why == "waiting for the active controller: none began it (a:9093: no)", "it knows no controllers"
    (reason,) = waits(place(Stage.REGISTERING, leader_id=2), False)
    assert reason.why.endswith("node 2 leads them")
    assert list(waits(place(Stage.STARTING), False)) == [], "its own logs come first"
    (reason,) = waits(place(Stage.STARTING), True)
    assert reason.why == "registered, and waiting for the active controller to let it in"
    assert list(waits(place(Stage.RUNNING), True)) == []


def test_an_election_takes_nobody_out_and_a_lost_majority_does() -> None:
    running = place(Stage.RUNNING, trouble="no leader", answered_ms=100_000)
    assert list(is_out(running, 108_999)) == []
    (reason,) = is_out(running, 112_000)
    assert reason.what == "cluster"
    assert reason.why.startswith("no active controller has answered for 12 s (no leader); it is fenced, or will be")
    assert named(VOTERS) in reason.why


def test_a_controller_without_a_broker_goes_by_whether_somebody_leads() -> None:
    alone = place(Stage.REGISTERING, leader_id=2, led_ms=100_000)
    assert list(is_out(alone, 108_999)) == [], "it beats for nobody, and nobody answers it"
    (reason,) = is_out(alone, 112_000)
    assert reason.why.startswith("no controller has led for 12 s: start a majority of them (1@host-1:9093")


def test_who_is_fenced_says_so() -> None:
    (reason,) = is_out(place(Stage.RUNNING, is_fenced=True), 10)
    assert reason.why.startswith("fenced by the active controller")


@pytest.mark.integration
async def test_a_node_that_is_left_alone_is_not_ready_until_others_are_back(tmp_path: Path) -> None:
    watched = free_port()
    async with cluster_of_three(tmp_path, metrics_listener=f"127.0.0.1:{watched}") as cluster:
        assert (await health(watched, "ready"))[0] == 200
        others = [node for node in cluster.brokers if node != 1]
        await cluster.stop(*others)
        broker = cluster.brokers[1]
        assert broker.place is not None
        machine = broker.place.life.machine
        now = broker.clock.monotonic
        await until(lambda: now() * 1000 - machine.answered_ms > 1100, "a session without an answer")
        (reason,) = reasons(await health(watched, "ready"))
        assert reason["what"] == "cluster"
        assert "start a majority of the controllers" in reason["why"]
        assert (await health(watched, "live"))[0] == 200
        await cluster.start(*others)
        await until(lambda: now() * 1000 - machine.answered_ms < 900 and not machine.is_fenced, "answered again")
        assert (await health(watched, "ready"))[0] == 200
