"""What keeps a node from its work in its cluster

The active controller is the one to ask: who gets no answer to its heartbeats for a session counts as gone, there or
here, and nobody in the cluster goes by what it says any more. Shorter silences are elections, which every cluster has
now and then and during which records flow on: a node that told of each would have all nodes taken out of service at
once.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tidemill.broker.quorum.lifecycle import Stage
from tidemill.core.runtime.probe import Reason

if TYPE_CHECKING:
    from tidemill.broker.clustered import ClusterPlace
    from tidemill.broker.quorum.raft.voters import VoterSet


def waits(place: "ClusterPlace", logs_are_open: bool) -> Iterator[Reason]:
    """What a node waits for that does not serve yet, apart from its own disk."""
    life, quorum = place.life.machine, place.member.machine
    trouble = f": {life.trouble}" if life.trouble else ""
    if life.stage is Stage.REGISTERING:
        unreached = f" ({place.unreached})" if place.unreached else ""
        leader = f"node {quorum.leader_id} leads them" if quorum.leader_id >= 0 else f"none of them leads{unreached}"
        why = f"{trouble}; controllers {named(quorum.voters)}, {leader}"
        if place.why_nobody_leads:
            why = f": {place.why_nobody_leads}{unreached}"
        yield Reason(what="cluster", why=f"waiting for the active controller{why}")
    elif life.stage is Stage.STARTING and logs_are_open:
        yield Reason(what="cluster", why=f"registered, and waiting for the active controller to let it in{trouble}")


def is_out(place: "ClusterPlace", now_ms: int) -> Iterable[Reason]:
    """Why a node that serves is none of those that the cluster counts on."""
    life, quorum = place.life.machine, place.member.machine
    if life.stage is Stage.REGISTERING:
        yield from _is_without_leader(place, now_ms)
        return
    silent_ms = now_ms - life.answered_ms
    if silent_ms >= place.settings.session_timeout_ms:
        missing = f"start a majority of the controllers ({named(quorum.voters)}) and see that they are reached"
        trouble = f" ({life.trouble})" if life.trouble else ""
        why = (
            f"no active controller has answered for {silent_ms // 1000} s{trouble}; it is fenced, or will be: {missing}"
        )
        yield Reason(what="cluster", why=why)
    elif life.is_fenced and life.stage is Stage.RUNNING:
        why = "fenced by the active controller: it leads nothing until it has taken in what it missed of the metadata"
        yield Reason(what="cluster", why=why)


def is_in_touch(place: "ClusterPlace", now_ms: int) -> bool:
    """Whether a broker may count on being told who leads.

    An active controller has answered what it was asked less than half a session ago, and not that this broker is out:
    until half a session later nobody is put in its place for being silent. Who is missed (`quorum.vigil`), or whose
    partitions are moved, hears of it with the metadata only, which may come a moment later.
    """
    life = place.life.machine
    is_in = life.stage in (Stage.RUNNING, Stage.STOPPING) and not life.is_fenced
    return is_in and (now_ms - life.known_ms) * 2 < place.settings.session_timeout_ms


def _is_without_leader(place: "ClusterPlace", now_ms: int) -> Iterator[Reason]:
    """A controller without a broker registers nowhere and beats for nobody: it goes by whether somebody leads."""
    without_ms = now_ms - place.led_ms
    if without_ms >= place.settings.session_timeout_ms:
        missing = f"start a majority of them ({named(place.member.machine.voters)}) and see that they are reached"
        yield Reason(what="cluster", why=f"no controller has led for {without_ms // 1000} s: {missing}")


def named(voters: "VoterSet") -> str:
    """The controllers as `controller.quorum.voters` has them."""
    return ", ".join(
        f"{each.node_id}@{each.endpoints[0].host}:{each.endpoints[0].port}" if each.endpoints else str(each.node_id)
        for each in voters
    )
