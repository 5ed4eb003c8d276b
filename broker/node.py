"""One broker: its parts put together, started and stopped in order

Opening goes from the disk outwards, and a part that cannot do its work refuses to open with a sentence: the folder is
locked and identified, the metadata log replayed, partition folders compared with the image, logs recovered
(`tidemill.broker.opening`), groups replayed, the node registered, and only then are clients let in. Closing goes the
other way round.

Afterwards the node follows the image: a new partition gets its log before anybody is told that it exists, a deleted
topic loses its logs and its groups' offsets, changed settings reach the logs they are about.

Not here: any decision about requests (handlers, machines) and command lines (`tidemill.broker.cli`).
"""

import asyncio
import errno
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final

import structlog
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from tidemill.broker.admission import Admission
from tidemill.broker.config import BrokerConfig, ListenAddress
from tidemill.broker.dispatch import Dispatcher, Route
from tidemill.broker.fetch_sessions import FetchSessions
from tidemill.broker.folders import still_there
from tidemill.broker.groups.coordinator import OFFSETS_TOPIC, GroupCoordinator
from tidemill.broker.groups.table import GroupLimits
from tidemill.broker.live_settings import cleaner_settings, producer_id_expiration_ms, record_validation, server_limits
from tidemill.broker.log.cleaner import LogCleaner
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.store import CHECKPOINT_INTERVAL_S, LogStore
from tidemill.broker.log.turns import Turns
from tidemill.broker.opening import open_logs, open_metadata
from tidemill.broker.producer_ids import ProducerIds
from tidemill.broker.quorum.controller import Controller, SnapshotRules
from tidemill.broker.quorum.metadata import ClusterImage, NewTopic, Rules, TopicImage
from tidemill.broker.quorum.records import BrokerEndpoint
from tidemill.broker.quorum.store import MetadataCorruptError, MetadataStore, why_not_ours
from tidemill.broker.routes import ROUTES
from tidemill.broker.server import Server
from tidemill.broker.server_limits import ConnectionCounts, RequestMemory
from tidemill.broker.topic_config import Layers, topic_settings
from tidemill.core.errors import KafkaError
from tidemill.core.runtime.clock import Clock, SystemClock
from tidemill.core.runtime.disk import Directory, OsDirectory
from tidemill.core.wire.api import ApiKey

log = structlog.get_logger("tidemill.broker.node")

REPAIR_INTERVAL_S: Final = 30
"""How often a log that could not be made (full disk) is tried again."""

SNAPSHOT_CHECK_INTERVAL_S: Final = 5
"""How often a node that decides nothing looks whether a snapshot of the metadata is due."""

PROMISES: Final = {
    "group": "an acknowledged record is on the disk (one fsync for all that wait): it survives a power cut",
    "os": "an acknowledged record is in the operating system's page cache: it survives a crash of the broker, but a "
    "power cut can lose the last seconds",
}


class StartRefused(Exception):
    """The broker cannot start; the message is one line that says why and what to do."""


class Broker:
    """A running node; made by `open_broker`. Satisfies `tidemill.broker.dispatch.BrokerServices`."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        clock: Clock,
        logs: LogStore,
        controller: Controller,
        groups: GroupCoordinator,
        routes: Iterable[Route],
    ) -> None:
        self.config = config
        self.clock = clock
        self.logs = logs
        self.controller = controller
        self.groups = groups
        self.admission = Admission()
        self.cleaner = LogCleaner(logs, clock, cleaner_settings(self.config_layers()))
        self.fetch_sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots, _new_session_id)
        self.producer_ids = ProducerIds(controller.allocate_producer_ids)
        self.dispatcher = Dispatcher(self, routes)
        self.servers: list[Server] = []
        self.jobs = AsyncIOScheduler(job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None})
        self.stop = asyncio.Event()
        self.failure: OSError | None = None
        self._take_live_settings()

    # --- what handlers see

    @property
    def node_id(self) -> int:
        """`node.id`."""
        return self.config.node_id

    @property
    def cluster_id(self) -> str:
        """The cluster that the data folder belongs to."""
        return self.logs.cluster_id

    @property
    def host(self) -> str:
        """Host of the first listener, as advertised if it is."""
        return self._first().host

    @property
    def port(self) -> int:
        """Port of the first listener, as advertised if it is; the real one where the configuration says 0."""
        return self._first().port

    def _first(self) -> ListenAddress:
        address = self.config.listen[0]
        advertised = self.config.advertised.get(address.name)
        if advertised is not None and advertised.port:
            return advertised
        port = self.servers[0].port if self.servers else address.port
        return ListenAddress(address.name, advertised.host if advertised else address.host, port)

    @property
    def served_apis(self) -> Mapping[ApiKey, tuple[int, int]]:
        """First and last version of every API."""
        return self.dispatcher.served_apis

    def config_layers(self) -> Layers:
        """This broker's settings by strength."""
        configs = self.controller.image.broker_configs
        return Layers(
            dynamic_broker=configs.get(str(self.node_id), {}),
            dynamic_default=configs.get("", {}),
            static=self.config.static,
        )

    async def ensure_offsets_topic(self) -> None:
        """Create `__consumer_offsets` if it is not there; raises KafkaError when it cannot be."""
        if OFFSETS_TOPIC in self.controller.image.topics:
            return
        await self.controller.ensure_topic(
            NewTopic(
                name=OFFSETS_TOPIC,
                partitions=self.config.offsets_topic_num_partitions,
                replication_factor=self.config.offsets_topic_replication_factor,
                configs={
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(self.config.offsets_topic_segment_bytes),
                },
            )
        )

    # --- following the image

    def log_config(self, topic: TopicImage | None) -> LogConfig:
        """The settings that a topic's logs obey."""
        layers = self.config_layers()
        settings = topic_settings(topic.configs if topic else {}, layers)
        return LogConfig.of({**settings, "record.validation": record_validation(layers)})

    async def follow(self, before: ClusterImage, after: ClusterImage) -> None:
        """Make the logs what the image says; a log that cannot be made now is tried again later."""
        changed = sorted(after.topics.changed_since(before.topics))
        gone = [
            name
            for name in changed
            if (old := before.topics.get(name)) is not None
            and ((now := after.topics.get(name)) is None or now.topic_id != old.topic_id)
        ]
        self.groups.image_changed(after, frozenset(gone))  # before anything that waits: offsets are judged by the image
        for name in gone:
            try:
                await self.logs.delete(name)
            except OSError as error:  # the next start finds the folder and knows that its topic is gone
                log.error("files of a deleted topic are still there", topic=name, reason=str(error))
        every_topic = before.broker_configs != after.broker_configs
        if every_topic:
            self._take_live_settings()
        turns = Turns(self.clock.monotonic)
        for topic in [
            after.topics[name] for name in (after.topics if every_topic else changed) if name in after.topics
        ]:
            await turns.give_way()
            old = before.topics.get(topic.name)
            await self._make_logs(topic)
            if old is not None and (every_topic or old.configs != topic.configs):
                await self.logs.apply_config(topic.name, self.log_config(topic))

    def _take_live_settings(self) -> None:
        layers = self.config_layers()
        for server in self.servers:
            server.limits = server_limits(self.config, layers)
        self.cleaner.settings = cleaner_settings(layers)
        self.logs.producer_id_expiration_ms = producer_id_expiration_ms(layers)

    async def make_missing_logs(self) -> None:
        """Make the logs of all partitions that live here and have none."""
        turns = Turns(self.clock.monotonic)
        for topic in list(self.controller.image.topics.values()):
            await turns.give_way()
            await self._make_logs(topic)

    async def _make_logs(self, topic: TopicImage) -> None:
        """Make what `topic` lacks, as long as it is there: it may be deleted while this waits for the disk."""

        def still_wanted() -> bool:
            current = self.controller.image.topics.get(topic.name)
            return current is not None and current.topic_id == topic.topic_id

        missing = self.without_log(topic)
        if not missing:
            return
        try:
            await self.logs.create_many(topic.name, topic.topic_id, missing, self.log_config(topic), still_wanted)
        except KafkaError as error:
            log.error("partitions have no log", topic=topic.name, reason=str(error))

    def without_log(self, topic: TopicImage) -> list[int]:
        """The partitions of `topic` that live here and have no log."""
        return [
            partition.partition
            for partition in topic.partitions
            if self.node_id in partition.replicas and self.logs.get(topic.name, partition.partition) is None
        ]

    # --- life

    def disk_failed(self, error: OSError) -> None:
        """The data folder cannot be trusted any more: stop, so that a restart recovers what is really there."""
        self.failure = error
        self.stop.set()

    async def register(self) -> None:
        """Tell the quorum that this node is up, under the addresses it has."""
        end_points = []
        for index, address in enumerate(self.config.listen):
            told = self.config.advertised.get(address.name, address)
            port = told.port or (self.servers[index].port if self.servers else 0)
            end_points.append(BrokerEndpoint(name=address.name, host=told.host, port=port))
        try:
            await self.controller.register_broker(end_points, self.config.broker_rack)
        except KafkaError as error:
            if self.node_id not in self.controller.image.brokers:
                raise StartRefused(f"the broker cannot write to {self.config.data_dir}: {error}") from error
            log.warning("registration not written; the one before stays", reason=str(error))


@asynccontextmanager
async def open_broker(
    config: BrokerConfig,
    *,
    clock: Clock | None = None,
    new_uuid: Callable[[], uuid.UUID] = uuid.uuid4,
    routes: Iterable[Route] = ROUTES,
) -> AsyncIterator[Broker]:
    """A broker that serves from enter to exit; raises StartRefused, FolderRefused or ConfigError."""
    clock = clock or SystemClock()
    brokers: list[Broker] = []

    def disk_failed(error: OSError) -> None:
        for broker in brokers:
            broker.disk_failed(error)

    logs = LogStore.at(
        config.data_dir,
        clock=clock,
        node_id=config.node_id,
        flush_policy=config.flush_policy,
        on_failure=disk_failed,
    )
    try:
        controller = _open_controller(config, clock, new_uuid, logs, disk_failed)
    except BaseException:
        await logs.close()
        raise
    groups = GroupCoordinator(
        limits=_group_limits(config),
        logs=logs,
        clock=clock,
        new_id=lambda: str(new_uuid()),
    )
    broker = Broker(config=config, clock=clock, logs=logs, controller=controller, groups=groups, routes=routes)
    brokers.append(broker)
    try:
        async with _running(broker, new_uuid):
            yield broker
    finally:
        broker.admission.close()
        controller.close()
        await logs.close()


def _open_controller(
    config: BrokerConfig,
    clock: Clock,
    new_uuid: Callable[[], uuid.UUID],
    logs: LogStore,
    on_failure: Callable[[OSError], None],
) -> Controller:
    directory = OsDirectory(config.data_dir)
    foreign = why_not_ours(directory)
    if foreign is not None:
        raise StartRefused(foreign)
    try:
        controller = Controller(
            MetadataStore(directory),
            clock=clock,
            rules=_rules(config),
            node_id=config.node_id,
            new_uuid=new_uuid,
            snapshots=SnapshotRules(
                max_bytes=config.metadata_log_max_record_bytes_between_snapshots,
                max_interval_ms=config.metadata_log_max_snapshot_interval_ms,
            ),
            on_failure=on_failure,
            still_there=partial(
                still_there, directory, is_open=lambda topic, partition: logs.get(topic, partition) is not None
            ),
        )
        open_metadata(directory, controller)
    except MetadataCorruptError as error:
        raise StartRefused(str(error)) from error
    except OSError as error:
        raise StartRefused(
            f"the broker cannot write to {config.data_dir}: {_reason(error)}; free space or make it writable"
        ) from error
    return controller


def _rules(config: BrokerConfig) -> Rules:
    return Rules(
        num_partitions=config.num_partitions,
        default_replication_factor=config.default_replication_factor,
        delete_topic_enable=config.delete_topic_enable,
        max_topics=config.max_topics,
        max_partitions=config.max_partitions,
    )


def _group_limits(config: BrokerConfig) -> GroupLimits:
    return GroupLimits(
        min_session_timeout_ms=config.group_min_session_timeout_ms,
        max_session_timeout_ms=config.group_max_session_timeout_ms,
        max_size=config.group_max_size,
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        offset_metadata_bytes_max=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * 60_000,
    )


def _new_session_id() -> int:
    """A session id that a client of an earlier run of this broker is unlikely to know."""
    return 1 + uuid.uuid4().int % (2**31 - 1)


async def recover(broker: Broker, data: Directory, new_uuid: Callable[[], uuid.UUID]) -> int:
    """Take up what the folder holds and follow the image from there; returns the number of group records."""
    open_logs(data, broker.controller, broker.logs, broker.log_config, new_uuid)
    begun = [
        f"{topic.name}-{each}"
        for topic in broker.controller.image.topics.values()
        for each in broker.without_log(topic)
    ]
    if begun:  # a crash behind the decision to make them, or somebody took the folders away
        log.warning("partitions without a folder begin empty", partitions=len(begun), first=begun[0])
    await broker.make_missing_logs()
    records = broker.groups.replay(broker.controller.image)
    broker.controller.subscribe(broker.follow)
    return records


@asynccontextmanager
async def _running(broker: Broker, new_uuid: Callable[[], uuid.UUID]) -> AsyncIterator[None]:
    records = await recover(broker, OsDirectory(broker.config.data_dir), new_uuid)
    async with _working(broker):
        await broker.register()
        async with _serving(broker):
            if any(address.port == 0 for address in broker.config.listen):
                await broker.register()
            _log_start(broker, records)
            yield


@asynccontextmanager
async def _working(broker: Broker) -> AsyncIterator[None]:
    """The node's own tasks; one that fails ends the broker, and a single failure is raised as what it is."""
    try:
        async with asyncio.TaskGroup() as tasks:
            controller = broker.controller
            running = [
                tasks.create_task(work) for work in (controller.run(), controller.keep_snapshots(), broker.groups.run())
            ]
            if broker.config.log_cleaner_enable:
                running.append(tasks.create_task(broker.cleaner.run()))
            try:
                yield
            finally:
                for task in running:
                    task.cancel()
    except BaseExceptionGroup as failures:
        if len(failures.exceptions) > 1:
            raise
        raise failures.exceptions[0] from None


@asynccontextmanager
async def _serving(broker: Broker) -> AsyncIterator[None]:
    for name, seconds, work in _jobs(broker):
        broker.jobs.add_job(_quiet_end(work), "interval", seconds=seconds, id=name, name=name)
    broker.jobs.start()
    try:
        await _listen(broker)
        yield
    finally:
        broker.jobs.shutdown(wait=False)
        for server in reversed(broker.servers):
            await server.__aexit__(None, None, None)


def _quiet_end(work: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    """`work` for the scheduler, which cancels it when the broker stops and would report that as a failure."""

    async def run() -> None:
        with suppress(asyncio.CancelledError):
            await work()

    return run


def _jobs(broker: Broker) -> list[tuple[str, float, Callable[[], Awaitable[None]]]]:
    async def enforce_retention() -> None:
        await broker.logs.enforce_retention(broker.clock.now_ms())

    async def checkpoint() -> None:
        await broker.logs.checkpoint()

    async def snapshot() -> None:
        broker.controller.want_snapshot_when_due()

    config = broker.config
    return [
        ("log-retention", config.log_retention_check_interval_ms / 1000, enforce_retention),
        ("log-checkpoint", CHECKPOINT_INTERVAL_S, checkpoint),
        ("group-expiry", config.offsets_retention_check_interval_ms / 1000, broker.groups.expire_offsets),
        ("metadata-snapshot", SNAPSHOT_CHECK_INTERVAL_S, snapshot),
        ("missing-logs", REPAIR_INTERVAL_S, broker.make_missing_logs),
    ]


async def _listen(broker: Broker) -> None:
    config = broker.config
    limits = server_limits(config, broker.config_layers())
    memory, counts = RequestMemory(config.queued_max_request_bytes), ConnectionCounts()
    for address in config.listen:
        server = Server(
            broker.dispatcher,
            host=address.host,
            port=address.port,
            listener=address.name,
            limits=limits,
            memory=memory,
            counts=counts,
            monotonic=broker.clock.monotonic,
        )
        try:
            await server.__aenter__()
        except OSError as error:
            advice = (
                "stop the process that has it, or choose another" if error.errno == errno.EADDRINUSE else "choose an"
            )
            raise StartRefused(
                f"cannot listen on {address.host}:{address.port}: {_reason(error)}; "
                f"{advice} address with --listen HOST:PORT"
            ) from error
        broker.servers.append(server)


def _reason(error: OSError) -> str:
    """The system's own short text; asyncio wraps some errors in a longer one."""
    return os.strerror(error.errno) if error.errno is not None and error.errno > 0 else str(error.strerror or error)


def _log_start(broker: Broker, group_records: int) -> None:
    log.info(
        "broker started",
        node_id=broker.node_id,
        cluster_id=broker.cluster_id,
        topics=len(broker.controller.image.topics),
        partitions=len(broker.logs.partitions()),
        group_records=group_records,
        flush_policy=broker.config.flush_policy,
        durability=PROMISES[broker.config.flush_policy],
    )
