"""The mirror process: flows, and what is done regularly beside them

Each enabled flow runs under one task group; everything that is done at an interval is a named APScheduler job. A job
that fails because a cluster is away says so once and is run again at its next turn. A flow ends when it must not run;
the others go on. When none is left the process ends, with the reasons.

How each flow is goes into the status topics once a second (`tidemill.mirror.health`), from the first second on.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from tidemill.core.client.cluster import ClusterClient
from tidemill.core.client.connection import ConnectionFailed
from tidemill.core.client.security import dialer_of
from tidemill.core.errors import KafkaError
from tidemill.core.runtime.clock import Clock, SystemClock
from tidemill.mirror.config import FlowConfig, Interval, MirrorConfig
from tidemill.mirror.flow import Flow, Preflight
from tidemill.mirror.group_sync import GroupSync
from tidemill.mirror.health import FlowHealth
from tidemill.mirror.heartbeats import Heartbeats
from tidemill.mirror.map_store import Fenced
from tidemill.mirror.offset_syncs import SYNC_INTERVAL_SECONDS, OffsetSyncs
from tidemill.mirror.probing import ClusterProbe
from tidemill.mirror.progress import Progress
from tidemill.mirror.status_records import INTERVAL_MS, FlowState, status_topic
from tidemill.mirror.status_writer import StatusWriter

PROGRESS_SECONDS = 10
LOOK_SECONDS = 1.0
PATIENCE_MS = 3000
LOOK_SHARE_MAX = 0.05  # of the time; a look at very many topics or partitions takes longer and is made less often
LOOK_PAUSE_MAX_SECONDS = 5.0  # however long it took: most of that may have been waiting for a cluster, or a processor

_HEARTBEAT = " heartbeat"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """A flow and what goes with it."""

    flow: Flow
    health: FlowHealth
    groups: GroupSync
    writers: tuple[StatusWriter, ...]
    failing: dict[str, str]  # jobs whose last turn failed, and why


class MirrorRunner:
    """All flows of a configuration, or those into the clusters named by `targets`."""

    def __init__(
        self, config: MirrorConfig, *, targets: Iterable[str] | None = None, clock: Clock | None = None
    ) -> None:
        self._config = config
        self._dialers = {alias: dialer_of(cluster.security) for alias, cluster in config.clusters.items()}
        self._targets = None if targets is None else frozenset(targets)
        self._clock = clock or SystemClock()
        self._clients: list[ClusterClient] = []
        self._log = structlog.get_logger("tidemill.mirror")
        self._scheduler = AsyncIOScheduler(
            job_defaults={"coalesce": True, "max_instances": 2, "misfire_grace_time": None}, timezone=UTC
        )
        self._failing: set[str] = set()
        self._aliases: dict[str, str] = {}
        self._name = f"{socket.gethostname()}:{os.getpid()}:{self._clock.now_ms()}"
        flows = config.enabled_flows(self._targets)
        self._probes = {
            alias: ClusterProbe(self._connect(alias, "probe"), self._clock)
            for flow in flows
            for alias in (flow.source, flow.target)
        }
        self._runs = tuple(self._run_of(flow) for flow in flows)
        self._ended: list[Exception] = []

    @property
    def flows(self) -> tuple[Flow, ...]:
        """The flows, whether or not they still run."""
        return tuple(run.flow for run in self._runs)

    @property
    def health(self) -> tuple[FlowHealth, ...]:
        """How each of them is."""
        return tuple(run.health for run in self._runs)

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Mirror until cancelled; calls `on_ready` once every flow has taken its topics on or has ended.

        Raises an ExceptionGroup of Fenced and Preflight when no flow is left.
        """
        for key in self._config.without_effect:
            self._log.info("setting accepted, changes nothing", key=key)
        try:
            async with asyncio.TaskGroup() as beside:
                tasks = [beside.create_task(probe.run()) for probe in self._probes.values()]
                tasks += [beside.create_task(work) for run in self._runs for work in self._telling(run)]
                self._schedule_heartbeats()
                self._scheduler.start()
                async with asyncio.TaskGroup() as group:
                    for run in self._runs:
                        group.create_task(self._keep(run))
                    settled = [group.create_task(self._settle(run)) for run in self._runs]
                    await asyncio.gather(*settled)
                    on_ready()
                for task in tasks:
                    task.cancel()
            if self._ended:
                raise ExceptionGroup("no flow is left", self._ended)
        except ExceptionGroup as problems:
            reason = f"unexpectedly, its log says where: {'; '.join(map(repr, _leaves(problems)))}"
            for run in self._runs:
                run.health.ended = run.health.ended or reason
            raise
        finally:
            self._scheduler.shutdown(wait=False)
            await self._say_goodbye()
            for run in self._runs:
                for writer in run.writers:
                    writer.close()
            for client in self._clients:
                client.close()

    async def _keep(self, run: _Run) -> None:
        """Run one flow; its end is not that of the others."""
        try:
            await run.flow.run()
        except* (Fenced, Preflight) as problems:
            reasons = _leaves(problems)
            run.health.ended = "; ".join(map(str, reasons))
            run.flow.ready.set()
            self._ended.extend(reasons)
            self._log.error("flow ended", flow=run.flow.config.name, reason=run.health.ended)
            for job in self._scheduler.get_jobs():
                if job.id.startswith(f"{run.flow.config.name} ") and not job.id.endswith(_HEARTBEAT):
                    job.remove()

    async def _settle(self, run: _Run) -> None:
        """Wait until the flow has taken its topics on, or has ended, and schedule what belongs to it."""
        await run.flow.ready.wait()
        if not run.health.ended:
            self._schedule_flow(run)

    def _telling(self, run: _Run) -> list[Coroutine[None, None, None]]:
        work = (self._look(run), self._ask(run), self._look_after(run))
        return [*work, *(writer.run() for writer in run.writers)]

    async def _ask(self, run: _Run) -> None:
        while True:
            await run.health.ask()
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self, run: _Run) -> None:
        """Tell every second how the flow is, a sign of life, and look as often as that takes a small share of time."""
        due = self._clock.monotonic()
        while True:
            began = self._clock.monotonic()
            if began >= due:
                run.health.look()
                due = began + rest_s(self._clock.monotonic() - began)
            for writer in run.writers:
                writer.put(run.health.row())
            await asyncio.sleep(INTERVAL_MS / 1000)

    async def _look_after(self, run: _Run) -> None:
        await run.flow.ready.wait()
        while not run.health.ended:
            began = self._clock.monotonic()
            with contextlib.suppress(ConnectionFailed, KafkaError):  # whether it answers is the probe's business
                await run.flow.look_after()
            await asyncio.sleep(max(LOOK_SECONDS, rest_s(self._clock.monotonic() - began)))

    async def _say_goodbye(self) -> None:
        async with asyncio.TaskGroup() as group:
            for run in self._runs:
                run.health.look()  # why it ended is to be told, too
                row = run.health.row(None if run.health.ended else FlowState.STOPPED)
                for writer in run.writers:
                    group.create_task(writer.last(row))

    def jobs(self) -> tuple[str, ...]:
        """Names of the jobs, for display."""
        return tuple(job.name for job in self._scheduler.get_jobs())

    # -- parts

    def _client(self, alias: str, purpose: str) -> ClusterClient:
        client = ClusterClient(
            self._config.clusters[alias].bootstrap_servers,
            client_id=f"tidemill-mirror-{purpose}",
            dialer=self._dialers[alias],
            clock=self._clock,
        )
        self._clients.append(client)
        return client

    def _connect(self, alias: str, purpose: str) -> Callable[[], ClusterClient]:
        """Make clients that give up soon, for what is tried again every second."""

        def connect() -> ClusterClient:
            return ClusterClient(
                self._config.clusters[alias].bootstrap_servers,
                client_id=f"tidemill-mirror-{purpose}",
                dialer=self._dialers[alias],
                clock=self._clock,
                request_timeout_ms=PATIENCE_MS,
                call_timeout_ms=PATIENCE_MS,
            )

        return connect

    def _run_of(self, config: FlowConfig) -> _Run:
        purpose = f"{config.source}-{config.target}"
        flow = Flow(
            config,
            self._client(config.source, purpose),
            self._client(config.target, purpose),
            self._config.clusters[config.source],
            self._clock,
            self._aliases,
        )
        groups = GroupSync(config, flow.source, flow.target, flow.entries, self._clock)
        failing: dict[str, str] = {}
        health = FlowHealth(flow, self._probes, self._clock, mirror=self._name, jobs=failing, groups=groups.problems)
        writers = tuple(
            StatusWriter(
                self._connect(here, "status"),
                status_topic(there),
                factor=config.replication_factors["offset-map"],
                clock=self._clock,
                failing=failing,
            )
            for here, there in ((config.target, config.source), (config.source, config.target))
            if here == config.target or config.syncs_on_source
        )
        return _Run(flow=flow, health=health, groups=groups, writers=writers, failing=failing)

    # -- jobs

    def _schedule_heartbeats(self) -> None:
        for flow in self._config.flows:
            if self._targets is not None and flow.target not in self._targets:
                continue
            if flow.emit_heartbeats.enabled:
                heartbeats = Heartbeats(flow, self._client(flow.target, "heartbeats"), self._clock)
                failing = next((run.failing for run in self._runs if run.flow.config is flow), {})
                self._every(flow.emit_heartbeats, flow.name + _HEARTBEAT, heartbeats.beat, failing)

    def _schedule_flow(self, run: _Run) -> None:
        flow, groups, failing = run.flow, run.groups, run.failing
        config, name = flow.config, flow.config.name
        syncs = OffsetSyncs(config, flow.source, flow.target, self._clock)
        flow.on_set_back += [groups.forget_written, syncs.forget_written]
        self._every(config.refresh_topics, f"{name} refresh topics", flow.refresh_topics, failing, at_once=False)
        self._every(config.sync_topic_configs, f"{name} sync topic settings", flow.topics.sync_configs, failing)
        if config.emit_checkpoints.enabled:
            self._every(config.emit_checkpoints, f"{name} checkpoints", groups.emit_checkpoints, failing)
        if config.sync_group_offsets.enabled:
            self._every(config.sync_group_offsets, f"{name} sync group positions", groups.sync_offsets, failing)
        if config.emit_offset_syncs:
            interval = Interval(enabled=True, seconds=SYNC_INTERVAL_SECONDS)
            self._every(interval, f"{name} offset syncs", lambda: syncs.emit(flow.entries), failing)
        interval = Interval(enabled=True, seconds=PROGRESS_SECONDS)
        self._every(interval, f"{name} progress", Progress(flow, self._clock).report, failing, at_once=False)

    def _every(
        self,
        interval: Interval,
        name: str,
        work: Callable[[], Awaitable[None]],
        failing: dict[str, str],
        *,
        at_once: bool = True,
    ) -> None:
        if not interval.enabled:
            return

        busy = False

        async def guarded() -> None:
            nonlocal busy
            if busy:
                return  # a cluster is slow or away: the round that is running will do
            busy = True
            try:
                await work()
            except (ConnectionFailed, KafkaError) as error:
                if name not in self._failing:
                    self._failing.add(name)
                    self._log.warning("job failed, will be run again", job=name, error=str(error))
                if isinstance(error, KafkaError):  # a cluster that does not answer is named as such
                    failing[name] = str(error)
            except asyncio.CancelledError:
                return  # by the scheduler when it shuts down, which nobody else waits for
            except Exception as bug:
                failing[name] = f"unexpectedly: {bug!r}"
                self._log.exception("job failed unexpectedly", job=name)
            else:
                self._failing.discard(name)
                failing.pop(name, None)
            finally:
                busy = False

        delay_ms = 0 if at_once else interval.seconds * 1000
        first = datetime.fromtimestamp((self._clock.now_ms() + delay_ms) / 1000, tz=UTC)
        self._scheduler.add_job(guarded, "interval", seconds=interval.seconds, name=name, id=name, next_run_time=first)


def rest_s(took_s: float) -> float:
    """How long nobody looks again after a look that took so long.

    >>> rest_s(0.1), rest_s(10.0)  # the second one mostly waited: for a cluster that is cut off, for one
    (2.0, 5.0)
    """
    return min(took_s / LOOK_SHARE_MAX, LOOK_PAUSE_MAX_SECONDS)


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[Exception]:
    found: list[Exception] = []
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            found.extend(_leaves(error))
        elif isinstance(error, Exception):
            found.append(error)
    return found
