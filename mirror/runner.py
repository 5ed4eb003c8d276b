"""The mirror process: flows, and what is done regularly beside them

Each enabled flow runs under one task group; everything that is done at an interval is a named APScheduler job. A job
that fails because a cluster is away says so once and is run again at its next turn. A flow ends only when another
mirror takes it over or its clusters turn out to be one and the same; then the process ends too, with the reason.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime

import structlog
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from tidemill.core.client.cluster import ClusterClient
from tidemill.core.client.connection import ConnectionFailed
from tidemill.core.errors import KafkaError
from tidemill.core.runtime.clock import Clock, SystemClock
from tidemill.mirror.config import FlowConfig, Interval, MirrorConfig
from tidemill.mirror.flow import Flow
from tidemill.mirror.group_sync import GroupSync
from tidemill.mirror.heartbeats import Heartbeats
from tidemill.mirror.offset_syncs import SYNC_INTERVAL_SECONDS, OffsetSyncs
from tidemill.mirror.progress import Progress

PROGRESS_SECONDS = 10


class MirrorRunner:
    """All flows of a configuration, or those into the clusters named by `targets`."""

    def __init__(
        self, config: MirrorConfig, *, targets: Iterable[str] | None = None, clock: Clock | None = None
    ) -> None:
        self._config = config
        self._targets = None if targets is None else frozenset(targets)
        self._clock = clock or SystemClock()
        self._clients: list[ClusterClient] = []
        self._log = structlog.get_logger("tidemill.mirror")
        self._failing: set[str] = set()
        self._scheduler = AsyncIOScheduler(
            job_defaults={"coalesce": True, "max_instances": 2, "misfire_grace_time": None}, timezone=UTC
        )
        self.flows: tuple[Flow, ...] = tuple(self._flow(flow) for flow in config.enabled_flows(self._targets))

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Mirror until cancelled; calls `on_ready` once every flow has taken its topics on."""
        for key in self._config.without_effect:
            self._log.warning("setting accepted, has no effect", key=key)
        try:
            self._schedule_heartbeats()
            self._scheduler.start()
            async with asyncio.TaskGroup() as group:
                for flow in self.flows:
                    group.create_task(flow.run())
                for flow in self.flows:
                    await flow.ready.wait()
                    self._schedule_flow(flow)
                on_ready()
        finally:
            self._scheduler.shutdown(wait=False)
            for client in self._clients:
                client.close()

    def jobs(self) -> tuple[str, ...]:
        """Names of the jobs, for display."""
        return tuple(job.name for job in self._scheduler.get_jobs())

    def _client(self, alias: str, purpose: str) -> ClusterClient:
        client = ClusterClient(
            self._config.clusters[alias].bootstrap_servers, client_id=f"tidemill-mirror-{purpose}", clock=self._clock
        )
        self._clients.append(client)
        return client

    def _flow(self, config: FlowConfig) -> Flow:
        purpose = f"{config.source}-{config.target}"
        return Flow(
            config,
            self._client(config.source, purpose),
            self._client(config.target, purpose),
            self._config.clusters[config.source],
            self._clock,
        )

    # -- jobs

    def _schedule_heartbeats(self) -> None:
        for flow in self._config.flows:
            if self._targets is not None and flow.target not in self._targets:
                continue
            if flow.emit_heartbeats.enabled:
                heartbeats = Heartbeats(flow, self._client(flow.target, "heartbeats"), self._clock)
                self._every(flow.emit_heartbeats, f"{flow.name} heartbeat", heartbeats.beat)

    def _schedule_flow(self, flow: Flow) -> None:
        config, name = flow.config, flow.config.name
        groups = GroupSync(config, flow.source, flow.target, flow.entries, self._clock)
        syncs = OffsetSyncs(config, flow.source, flow.target, self._clock)
        self._every(config.refresh_topics, f"{name} refresh topics", flow.refresh_topics, at_once=False)
        self._every(config.sync_topic_configs, f"{name} sync topic settings", flow.topics.sync_configs)
        if config.emit_checkpoints.enabled or config.sync_group_offsets.enabled:
            self._every(config.refresh_groups, f"{name} refresh groups", groups.refresh)
        if config.emit_checkpoints.enabled:
            self._every(config.emit_checkpoints, f"{name} checkpoints", groups.emit_checkpoints)
        if config.sync_group_offsets.enabled:
            self._every(config.sync_group_offsets, f"{name} sync group positions", groups.sync_offsets)
        if config.emit_offset_syncs:
            interval = Interval(enabled=True, seconds=SYNC_INTERVAL_SECONDS)
            self._every(interval, f"{name} offset syncs", lambda: syncs.emit(flow.entries))
        interval = Interval(enabled=True, seconds=PROGRESS_SECONDS)
        self._every(interval, f"{name} progress", Progress(flow, self._clock).report, at_once=False)

    def _every(
        self, interval: Interval, name: str, work: Callable[[], Awaitable[None]], *, at_once: bool = True
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
            except asyncio.CancelledError:
                return  # by the scheduler when it shuts down, which nobody else waits for
            except Exception:
                self._log.exception("job failed unexpectedly", job=name)
            else:
                self._failing.discard(name)
            finally:
                busy = False

        delay_ms = 0 if at_once else interval.seconds * 1000
        first = datetime.fromtimestamp((self._clock.now_ms() + delay_ms) / 1000, tz=UTC)
        self._scheduler.add_job(guarded, "interval", seconds=interval.seconds, name=name, id=name, next_run_time=first)
