"""One broker: its parts put together, started and stopped in order

Opening goes from the disk outwards, and a part that cannot do its work refuses to open with a sentence: the folder is
locked and identified, the metadata log replayed, partition folders compared with the image, logs recovered
(`tidemill.broker.opening`), groups replayed, the node registered, and only then are clients let in. Closing goes the
other way round.

Afterwards the node follows the image (`following`).

Not here: any decision about requests (handlers, machines) and command lines (`tidemill.broker.cli`).
"""

import asyncio
import errno
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Executor
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from tidemill.broker.admission import Admission
from tidemill.broker.authorization import ALLOW_ALL, Authorizer
from tidemill.broker.config import BrokerConfig
from tidemill.broker.dispatch import NONE_LATER, Dispatcher, LaterRoutes, Route
from tidemill.broker.endpoints import end_points_of, named, nameless
from tidemill.broker.fetch_sessions import FetchSessions
from tidemill.broker.first_routes import FIRST, LATER
from tidemill.broker.folders import still_there
from tidemill.broker.following import REPAIR_INTERVAL_S, Following
from tidemill.broker.groups.coordinator import OFFSETS_TOPIC, GroupCoordinator
from tidemill.broker.groups.table import GroupLimits
from tidemill.broker.listeners import ListenAddress, ListenerSpec
from tidemill.broker.live_settings import cleaner_settings, producer_id_expiration_ms, record_validation, server_limits
from tidemill.broker.log.cleaner import LogCleaner
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.identity import is_claimed
from tidemill.broker.log.store import CHECKPOINT_INTERVAL_S, LogStore
from tidemill.broker.log.threads import LogThreads
from tidemill.broker.opening import StartRefused as StartRefused
from tidemill.broker.opening import open_logs, open_metadata, usable
from tidemill.broker.producer_ids import ProducerIds
from tidemill.broker.quorum.controller import Controller, SnapshotRules
from tidemill.broker.quorum.metadata import NewTopic, Rules, TopicImage
from tidemill.broker.quorum.rules import UNCLEAN_KEY
from tidemill.broker.quorum.store import ELECTION_STATE, FOLDER, MetadataCorruptError, MetadataStore, why_not_ours
from tidemill.broker.quotas import UNLIMITED, QuotaManager
from tidemill.broker.replication.replicas import Replicas
from tidemill.broker.request_meter import RequestMeter
from tidemill.broker.running import working
from tidemill.broker.server import Server
from tidemill.broker.server_limits import ConnectionCounts, RequestMemory
from tidemill.broker.surroundings import Surroundings
from tidemill.broker.topic_config import Layers, topic_settings
from tidemill.core.errors import KafkaError
from tidemill.core.ids import encode_id
from tidemill.core.runtime.clock import Clock
from tidemill.core.runtime.disk import Directory
from tidemill.core.wire.api import ApiKey

if TYPE_CHECKING:
    from tidemill.broker.clustered import ClusterPlace
    from tidemill.broker.tls_watch import ListenerTls
    from tidemill.broker.watching import Watch

log = structlog.get_logger("tidemill.broker.node")

METADATA_THREADS: Final = 2
"""One for decisions, one for the snapshot that is written meanwhile."""

CERTIFICATES_INTERVAL_S: Final = 10
"""How often the files of keys and certificates are looked at; a look costs a microsecond for each."""

SNAPSHOT_CHECK_INTERVAL_S: Final = 5
"""How often a node that decides nothing looks whether a snapshot of the metadata is due."""

PROMISES: Final = {
    "group": "an acknowledged record is on the disk (one fsync for all that wait): it survives a power cut",
    "os": "an acknowledged record is in the operating system's page cache: it survives a crash of the broker, but a "
    "power cut can lose the last seconds",
}


class Broker:
    """A running node; made by `open_broker`. Satisfies `tidemill.broker.dispatch.BrokerServices`."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        around: Surroundings,
        logs: LogStore,
        replicas: Replicas,
        controller: Controller,
        groups: GroupCoordinator,
        routes: Iterable[Route],
        later: LaterRoutes = NONE_LATER,
        place: "ClusterPlace | None" = None,
    ) -> None:
        self.config = config
        self.place = place
        self.around = around
        self.clock = clock = around.clock
        self.logs = logs
        self.controller = controller
        self.groups = groups
        self.replicas = replicas
        self.authorizer: Authorizer = ALLOW_ALL
        self.quotas: QuotaManager = UNLIMITED
        self.admission = Admission(around.threads, (lambda: True) if place is None else place.in_touch)
        cleaning = cleaner_settings(self.config_layers())
        self.cleaner = LogCleaner(logs, clock, cleaning, thread=around.threads.pool("cleaner"))
        self.fetch_sessions = FetchSessions(
            config.max_incremental_fetch_session_cache_slots, partial(_new_session_id, around.new_uuid)
        )
        self.producer_ids = ProducerIds(controller.allocate_producer_ids)
        self.meter = None if config.metrics_address is None else RequestMeter(clock.monotonic)
        self.dispatcher = Dispatcher(self, routes, later, notes_errors=self.meter is not None)
        self.servers: list[Server] = []
        self.jobs = around.new_jobs()
        self.stop = asyncio.Event()
        self.failure: OSError | None = None
        self.following = Following(
            config.node_id,
            controller,
            logs,
            replicas,
            groups,
            monotonic=clock.monotonic,
            settings=self.log_config,
            new_settings=self._take_live_settings,
        )
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
        address = (self.config.listen or self.config.listening.controllers)[0]
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
            spread=self.config.spread,
        )

    def misses(self, node_id: int) -> bool:
        """Whether that broker's process has just gone, as far as can be seen from here."""
        return self.place is not None and self.place.misses(node_id)

    @property
    def control_tls(self) -> "ListenerTls | None":
        """What this node shows to controllers, and as one, where they speak TLS."""
        return None if self.place is None else self.place.control_tls

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

    # --- settings

    def log_config(self, topic: TopicImage | None) -> LogConfig:
        """The settings that a topic's logs obey."""
        layers = self.config_layers()
        settings = topic_settings(topic.configs if topic else {}, layers)
        return LogConfig.of({**settings, "record.validation": record_validation(layers)})

    def _take_live_settings(self) -> None:
        layers = self.config_layers()
        for server in self.servers:
            server.limits = server_limits(self.config, layers)
        self.cleaner.settings = cleaner_settings(layers)
        self.logs.producer_id_expiration_ms = producer_id_expiration_ms(layers)
        if self.place is not None:
            self.place.take_live_settings(layers)

    # --- life

    def disk_failed(self, error: OSError) -> None:
        """The data folder cannot be trusted any more: stop, so that a restart recovers what is really there."""
        self.failure = error
        self.stop.set()
        if self.place is not None:
            self.place.disk_failed(error)

    async def register(self) -> None:
        """Tell the quorum that this node is up, under the addresses it has."""
        end_points = end_points_of(self.config, [server.port for server in self.servers])
        try:
            await self.controller.register_broker(end_points, self.config.broker_rack)
        except KafkaError as error:
            if self.node_id not in self.controller.image.brokers:
                where = self.config.data_dir
                raise StartRefused(
                    f"the broker cannot write to {where}: {error}; free space or make it writable"
                ) from error
            log.warning("registration not written; the one before stays", reason=str(error))


@asynccontextmanager
async def open_broker(
    config: BrokerConfig,
    *,
    around: Surroundings | None = None,
    routes: Iterable[Route] | None = None,
) -> AsyncIterator[Broker]:
    """A broker that serves from enter to exit; raises StartRefused, FolderRefused or ConfigError.

    `routes` are those of a test; without them it is all that there are.
    """
    around = around or Surroundings()
    if nameless(config):
        config = named(config, await asyncio.to_thread(around.host_name))
    async with _watched(config) as watch, _open(config, around, routes, watch) as broker:
        yield broker


@asynccontextmanager
async def _watched(config: BrokerConfig) -> "AsyncIterator[Watch | None]":
    """What answers at `metrics.listener`, from before anything is opened until all of it is closed."""
    if config.metrics_address is None:
        yield None
        return
    from tidemill.broker.watching import Watch  # with an HTTP server in memory
    from tidemill.core.runtime.probe import ProbeServer

    host, port = config.metrics_address
    watch = Watch(asyncio.get_running_loop(), config.data_dir, config.metrics_series_max)
    try:
        server = ProbeServer(host, port, watch.probe).start()
    except OSError as error:
        raise StartRefused(_cannot_listen(host, port, error, "metrics.listener=HOST:PORT")) from error
    log.info("watched", host=host, port=server.port)
    try:
        yield watch
    finally:
        await asyncio.to_thread(server.close)  # it may be waiting for this loop's answer


@asynccontextmanager
async def _open(
    config: BrokerConfig, around: Surroundings, routes: Iterable[Route] | None, watch: "Watch | None"
) -> AsyncIterator[Broker]:
    brokers: list[Broker] = []

    def disk_failed(error: OSError) -> None:
        for broker in brokers:
            broker.disk_failed(error)

    logs = _open_store(config, around, disk_failed)
    metadata_threads = around.threads.pool("metadata", METADATA_THREADS)
    try:
        place = _place(config, around, logs)
        controller = _open_controller(config, around, logs, disk_failed, metadata_threads, place)
    except BaseException:
        await logs.close()
        raise
    replicas = Replicas(config.node_id, logs, around.clock.monotonic, lag_max_ms=config.replica_lag_time_max_ms)
    groups = GroupCoordinator(
        node_id=config.node_id,
        limits=_group_limits(config),
        logs=replicas,
        clock=around.clock,
        new_id=lambda: str(around.new_uuid()),
    )
    broker = Broker(
        config=config,
        around=around,
        logs=logs,
        replicas=replicas,
        controller=controller,
        groups=groups,
        routes=_routes(FIRST if routes is None else routes, place),
        later=_later(place) if routes is None else NONE_LATER,
        place=place,
    )
    brokers.append(broker)
    try:
        async with _running(broker, watch):
            yield broker
    finally:
        broker.admission.close()
        controller.close()
        metadata_threads.shutdown(wait=False)
        await logs.close()


def _place(config: BrokerConfig, around: Surroundings, logs: LogStore) -> "ClusterPlace | None":
    """Its part in a cluster of several; a node by itself loads nothing of that."""
    if config.cluster is None:
        return None
    from tidemill.broker.clustered import ClusterPlace

    return ClusterPlace(config.cluster, config, around, logs)


def _routes(routes: Iterable[Route], place: "ClusterPlace | None") -> Iterable[Route]:
    return routes if place is None else place.forwarded(routes)


def _later(place: "ClusterPlace | None") -> LaterRoutes:
    return LATER if place is None else replace(LATER, load=lambda: tuple(place.forwarded(LATER.load())))


def _open_store(config: BrokerConfig, around: Surroundings, on_failure: Callable[[OSError], None]) -> LogStore:
    directory, unlock = around.open_folder(config.data_dir)
    try:
        cluster = config.cluster
        if cluster is not None:
            from tidemill.broker.formatting import is_half_formatted

            if is_half_formatted(directory):
                raise StartRefused(
                    f"{config.data_dir} was not formatted to its end: run 'tidemill broker format' again"
                )
        if cluster is not None and cluster.cluster_id is None and not is_claimed(directory):
            raise StartRefused(
                f"{config.data_dir} is new, and nobody has said which cluster it becomes part of: give every node the "
                "same cluster.id, that of 'tidemill cluster status' where the cluster is there already, for a new one "
                f"for example --set cluster.id={encode_id(around.new_uuid())}"
            )
        return LogStore(
            directory,
            cluster_id=None if cluster is None else cluster.cluster_id,
            clock=around.clock,
            node_id=config.node_id,
            flush_policy=config.flush_policy,
            on_failure=on_failure,
            new_id=around.new_uuid,
            threads=LogThreads.start(around.threads),
            unlock=unlock,
        )
    except BaseException:
        unlock()
        raise


def _open_controller(
    config: BrokerConfig,
    around: Surroundings,
    logs: LogStore,
    on_failure: Callable[[OSError], None],
    threads: Executor,
    place: "ClusterPlace | None",
) -> Controller:
    directory = logs.directory
    foreign = why_not_ours(directory)
    if foreign is not None:
        raise StartRefused(foreign)
    if place is None and directory.is_directory(FOLDER) and directory.subdirectory(FOLDER).exists(ELECTION_STATE):
        raise StartRefused(
            f"{config.data_dir} is that of one of several nodes, and the settings name no other: give the same "
            "controller.quorum.voters, or controller.quorum.bootstrap.servers, as the nodes that know it"
        )
    try:
        store = MetadataStore(directory, replicated=place is not None)
        controller = Controller(
            store,
            clock=around.clock,
            rules=_rules(config, logs.cluster_id),
            node_id=config.node_id,
            new_uuid=around.new_uuid,
            snapshots=SnapshotRules(
                max_bytes=config.metadata_log_max_record_bytes_between_snapshots,
                max_interval_ms=config.metadata_log_max_snapshot_interval_ms,
            ),
            on_failure=on_failure,
            still_there=partial(
                still_there, directory, is_open=lambda topic, partition: logs.get(topic, partition) is not None
            ),
            executor=threads,
            directory_id=logs.identity.directory_id,
            join=None if place is None else partial(place.join, store, on_failure),
        )
        open_metadata(directory, controller, alone=place is None)
    except MetadataCorruptError as error:
        raise StartRefused(str(error)) from error
    except OSError as error:
        raise StartRefused(
            f"the broker cannot write to {config.data_dir}: {_reason(error)}; free space or make it writable"
        ) from error
    return controller


def _rules(config: BrokerConfig, cluster_id: str) -> Rules:
    several = Rules()
    if config.cluster is not None:
        several = Rules(
            cluster_id=cluster_id,
            min_insync_replicas=config.min_insync_replicas if "min.insync.replicas" in config.static else None,
            leader_imbalance_percentage=config.cluster.leader_imbalance_percentage,
        )
    return replace(
        several,
        num_partitions=config.num_partitions,
        default_replication_factor=config.default_replication_factor,
        delete_topic_enable=config.delete_topic_enable,
        unclean_leader_election_enable=config.static.get(UNCLEAN_KEY, "").lower() == "true",
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


def _new_session_id(new_uuid: Callable[[], uuid.UUID]) -> int:
    """A session id that a client of an earlier run of this broker is unlikely to know."""
    return 1 + new_uuid().int % (2**31 - 1)


async def recover(broker: Broker, data: Directory, new_uuid: Callable[[], uuid.UUID]) -> int:
    """Take up what the folder holds and follow the image from there; returns the number of group records."""
    open_logs(data, broker.controller, broker.logs, broker.log_config, new_uuid)
    begun = [
        f"{topic.name}-{each}"
        for topic in broker.controller.image.topics.values()
        for each in broker.following.without_log(topic)
    ]
    if begun:  # a crash behind the decision to make them, or somebody took the folders away
        log.warning("partitions without a folder begin empty", partitions=len(begun), first=begun[0])
    await broker.following.make_missing_logs()
    for topic in broker.controller.image.topics.values():
        broker.replicas.assign(topic, broker.logs.high_watermarks)
    records = broker.groups.replay(broker.controller.image)
    broker.controller.watch(broker.following.hear)
    broker.controller.subscribe(broker.following.follow)
    broker.following.image = broker.controller.image
    return records


@asynccontextmanager
async def _running(broker: Broker, watch: "Watch | None") -> AsyncIterator[None]:
    if watch is not None:
        watch.broker = broker
    if broker.place is None:
        runs = _by_itself(broker)
    elif broker.config.listen:
        runs = _among_others(broker, broker.place)
    else:
        runs = _as_controller(broker, broker.place)
    async with runs as records:
        _log_start(broker, records)
        with nullcontext() if watch is None else watch.running():
            yield


@asynccontextmanager
async def _by_itself(broker: Broker) -> AsyncIterator[int]:
    """A cluster of one, until exit; the number of group records."""
    with usable(broker.config.data_dir):
        records = await recover(broker, broker.logs.directory, broker.around.new_uuid)
    controller = broker.controller
    async with working() as start:
        for work in (controller.run, controller.keep_snapshots, broker.groups.run):
            start(work())
        if broker.config.log_cleaner_enable:
            start(broker.cleaner.run())
        await broker.register()
        async with _serving(broker):
            if any(address.port == 0 for address in broker.config.listen):
                await broker.register()
            yield records


@asynccontextmanager
async def _among_others(broker: Broker, place: "ClusterPlace") -> AsyncIterator[int]:
    """One of several, until exit; the number of group records."""
    async with place.living(broker) as records, _serving(broker):
        await place.ready()
        try:
            yield records
        finally:
            if broker.failure is None:
                await place.hand_over()


@asynccontextmanager
async def _as_controller(broker: Broker, place: "ClusterPlace") -> AsyncIterator[int]:
    """A controller that is no broker, until exit: it has no partitions, and so no group records."""
    async with place.controlling(broker), _serving(broker):
        yield 0


@asynccontextmanager
async def _serving(broker: Broker) -> AsyncIterator[None]:
    for name, seconds, work in _jobs(broker):
        broker.jobs.add(name, seconds, work)
    broker.jobs.start()
    try:
        await _listen(broker)
        yield
    finally:
        broker.jobs.stop()
        for server in reversed(broker.servers):
            await server.__aexit__(None, None, None)


Job = tuple[str, float, Callable[[], Awaitable[None]]]


def _jobs(broker: Broker) -> list[Job]:
    async def refresh_certificates() -> None:
        for tls in (*(server.tls for server in broker.servers), broker.control_tls):
            if tls is not None:
                await tls.refresh()

    async def snapshot() -> None:
        broker.controller.want_snapshot_when_due()

    config = broker.config
    encrypted = broker.control_tls is not None or any(spec.tls for spec in config.listening.specs.values())
    return [
        *([("certificates", CERTIFICATES_INTERVAL_S, refresh_certificates)] if encrypted else []),
        ("metadata-snapshot", SNAPSHOT_CHECK_INTERVAL_S, snapshot),
        *(_jobs_of_partitions(broker) if config.listen else []),
    ]


def _jobs_of_partitions(broker: Broker) -> list[Job]:
    async def enforce_retention() -> None:
        await broker.logs.enforce_retention(broker.clock.now_ms())

    async def checkpoint() -> None:
        await broker.logs.checkpoint()

    config = broker.config
    return [
        ("log-retention", config.log_retention_check_interval_ms / 1000, enforce_retention),
        ("log-checkpoint", CHECKPOINT_INTERVAL_S, checkpoint),
        ("group-expiry", config.offsets_retention_check_interval_ms / 1000, broker.groups.expire_offsets),
        ("missing-logs", REPAIR_INTERVAL_S, broker.following.make_missing_logs),
    ]


async def _listen(broker: Broker) -> None:
    config = broker.config
    limits = server_limits(config, broker.config_layers())
    memory, counts = RequestMemory(config.queued_max_request_bytes), ConnectionCounts()
    for address in config.listen:
        spec = config.listening.specs[address.name]
        server = Server(
            broker.dispatcher,
            host=address.host,
            port=address.port,
            spec=spec,
            tls=_tls_of(spec, broker.clock),
            limits=limits,
            memory=memory,
            counts=counts,
            monotonic=broker.clock.monotonic,
            meter=broker.meter,
        )
        try:
            await server.__aenter__()
        except OSError as error:
            raise StartRefused(_cannot_listen(address.host, address.port, error, _given_by(config, address))) from error
        broker.servers.append(server)


def _tls_of(spec: ListenerSpec, clock: Clock) -> "ListenerTls | None":
    """What the listener shows to its clients, if it speaks TLS."""
    if spec.tls is None:
        return None
    from tidemill.broker.tls_watch import ListenerTls  # a broker that encrypts nothing starts without
    from tidemill.core.runtime.tls import TlsProblem

    try:
        tls = ListenerTls(spec.name, spec.tls)
    except TlsProblem as problem:
        raise StartRefused(f"listener {spec.name} cannot speak TLS: {problem}") from None
    tls.tell("certificate", now_s=clock.now_ms() / 1000)
    return tls


def _given_by(config: BrokerConfig, address: ListenAddress) -> str:
    """The setting with which that address can be changed; `--listen` would take away all listeners but one."""
    if len(config.listen) > 1 or address.name != "PLAINTEXT":
        return f"listeners={address.name}://HOST:PORT"
    return "--listen HOST:PORT"


def _cannot_listen(host: str, port: int, error: OSError, setting: str) -> str:
    advice = "stop the process that has it, or choose another" if error.errno == errno.EADDRINUSE else "choose an"
    return f"cannot listen on {host}:{port}: {_reason(error)}; {advice} address with {setting}"


def _reason(error: OSError) -> str:
    """The system's own short text; asyncio wraps some errors in a longer one."""
    return os.strerror(error.errno) if error.errno is not None and error.errno > 0 else str(error.strerror or error)


def _log_start(broker: Broker, group_records: int) -> None:
    if not broker.config.listen:
        log.info(
            "controller started",
            node_id=broker.node_id,
            cluster_id=broker.cluster_id,
            leader_id=broker.controller.member.leader_id,
            listeners=",".join(map(str, broker.config.listening.controllers)),
        )
        return
    log.info(
        "broker started",
        node_id=broker.node_id,
        cluster_id=broker.cluster_id,
        topics=len(broker.controller.image.topics),
        partitions=len(broker.logs.partitions()),
        group_records=group_records,
        listeners=",".join(
            str(replace(address, port=server.port))
            for address, server in zip(broker.config.listen, broker.servers, strict=True)
        ),
        flush_policy=broker.config.flush_policy,
        durability=PROMISES[broker.config.flush_policy],
    )
