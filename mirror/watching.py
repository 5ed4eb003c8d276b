"""What a mirror tells those who watch it

Ready is a mirror whose flows have taken their topics on, run, and reach both of their clusters. A topic or group in
trouble does not make it unready: the others go on, and metrics and `mirror status` name it.
"""

import asyncio
from collections.abc import Callable, Sequence

from tidemill.core.runtime.clock import SystemClock
from tidemill.core.runtime.collected_parts import CollectedParts
from tidemill.core.runtime.probe import Probe, Reason, on_loop
from tidemill.mirror.health import FlowHealth
from tidemill.mirror.progress import FlowMetrics
from tidemill.mirror.troubles import CLUSTER


def probe_of(loop: asyncio.AbstractEventLoop, flows: Sequence[FlowHealth], has_started: Callable[[], bool]) -> Probe:
    """The answers of a mirror that runs on `loop`."""
    parts = CollectedParts(FlowMetrics(flows, SystemClock()).parts())

    async def live() -> None:
        return None

    async def ready() -> Sequence[Reason]:
        return unready(flows, has_started())

    def metrics() -> bytes:
        """Written on the server's thread: for thousands of partitions it takes longer than the loop may stand still."""
        return parts.text()

    return Probe(live=on_loop(loop, live), ready=on_loop(loop, ready), metrics=metrics)


def unready(flows: Sequence[FlowHealth], has_started: bool) -> list[Reason]:
    """What is not ready and why; empty when the mirror is ready."""
    reasons = [Reason(what=f"flow {each.flow.config.name}", why=each.ended) for each in flows if each.ended]
    clusters = {
        trouble.problem.name: Reason(
            what=f"cluster {trouble.problem.name}", why=f"{trouble.problem.reason}; {trouble.problem.remedy}"
        )
        for each in flows
        for trouble in each.troubles
        if trouble.problem.kind == CLUSTER
    }
    reasons += clusters.values()
    if not has_started and not reasons:
        reasons.append(Reason(what="mirror", why="its flows are taking their topics on"))
    return reasons
