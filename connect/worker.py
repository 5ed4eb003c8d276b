"""A Connect worker, put together

One asyncio process: the REST API, the herder with its three topics, the host of the task processes and alarms for
everything that happens by the clock, started in an order in which each part finds what it needs and stopped in the
opposite one. The port is taken first, because the worker's name is its address, and served last: whoever connects
early waits instead of being refused.

The Kafka cluster may come up after the worker: it is waited for, for as long as `request.timeout.ms` says.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from ipaddress import ip_address

import structlog
from confluent_kafka import KafkaError, KafkaException

from tidemill.connect.config import WorkerConfig
from tidemill.connect.entities import API_VERSION, ServerInfo, WorkerInfo
from tidemill.connect.environments.folder import Folder
from tidemill.connect.environments.rest import Environments
from tidemill.connect.environments.rest import routes as environment_routes
from tidemill.connect.environments.shelf import Shelf
from tidemill.connect.forwarding import Forwarding
from tidemill.connect.group.lives import Life, LifeFacts, Lives, is_running
from tidemill.connect.group.seat import GroupRefused, GroupSettings
from tidemill.connect.group.words import PROTOCOL
from tidemill.connect.group_history import GroupHistory, routes
from tidemill.connect.herder.service import Alarm, Herder, Surroundings
from tidemill.connect.internal_rest import internal
from tidemill.connect.loader import Plugins
from tidemill.connect.loggers import LoggerLevels
from tidemill.connect.metrics import WorkerMetrics
from tidemill.connect.operations import Operations
from tidemill.connect.process_commands import announced
from tidemill.connect.remote.cgroups import AUTO, NONE, Cgroups, NoCgroups, cgroups
from tidemill.connect.remote.host import TaskHost
from tidemill.connect.remote.process_ties import end_marked
from tidemill.connect.rest import Asgi, Parts, create_app
from tidemill.connect.serving import serving
from tidemill.connect.topic_log import TopicLogError, admin_client, ensure_topics
from tidemill.connect.validation import Surroundings as ValidationSurroundings
from tidemill.connect.validation import Validator
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.client.security import dialer_of
from tidemill.core.config import ConfigError
from tidemill.core.runtime.clock import Clock, SystemClock
from tidemill.core.security.client_tls import is_security

log = structlog.get_logger("tidemill.connect.worker")

CHECK_TIMEOUT_S = 30.0
"""How long a plugin's preflight may take; Terraform's provider gives up on a create after 10 to 60 s."""

TICK_MS = 1_000
"""How often the herder is told the time even if nothing happens."""

CLUSTER_RETRY_S = 2.0

DYING_S = 5.0
"""How long the end of a life before this one is waited for, which was killed a moment ago."""

DYING_PAUSE_S = 0.02


class StartRefused(Exception):
    """The worker cannot start; one line that says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A running worker."""

    host: str
    port: int
    worker_id: str
    group_id: str
    cluster_id: str
    herder: Herder

    @property
    def url(self) -> str:
        """Where the REST API answers."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


@asynccontextmanager
async def open_worker(
    config: WorkerConfig, *, plugins: Plugins | None = None, clock: Clock | None = None
) -> AsyncIterator[Worker]:
    """Run a worker for as long as the context is open; raises StartRefused."""
    clock = clock or SystemClock()
    shelf = Shelf(Folder(config.environments.folder) if config.environments.folder else None)
    plugins = (plugins or Plugins.installed()).with_others(lambda: shelf.plugins)
    for note in config.notes:
        log.info("setting accepted", note=note)
    with _listener(config) as listener:
        host, port = listener.getsockname()[:2]
        if not ip_address(host).is_loopback:
            log.warning("the REST API is open to the network and asks nobody who they are", host=host, port=port)
        worker_id = f"{config.advertised_host or _reachable(host)}:{config.advertised_port or port}"
        cluster_id = await _wait_for_cluster(config, clock)
        await _ensure_topics(config)
        async with AsyncExitStack() as stack:
            alarm = stack.enter_context(_alarms())
            levels = LoggerLevels(clock)
            lives, life, over = await _begin_life(config, cluster_id, worker_id, clock)
            inherited = () if life is None else (life.descriptor,)
            runnable = stack.enter_context(announced(config.process_commands))
            environ = {**os.environ, **({} if life is None else life.environ), **runnable}
            if life is not None:
                stack.callback(life.close)
            await stack.enter_async_context(shelf.kept())
            taken, no_cgroups = _take_cgroups(config, stack)
            task_host = await stack.enter_async_context(
                TaskHost(
                    clock=clock,
                    inherited=inherited,
                    environ=environ,
                    cgroups=taken,
                    shared_max=config.task_shared_max,
                )
            )
            surroundings = Surroundings(
                config=config,
                worker_id=worker_id,
                plugins=plugins,
                host=task_host,
                clock=clock,
                alarm=alarm,
                set_level=levels.set_level,
                group=group_settings(config, worker_id),
                life=life,
                over=over,
            )
            try:
                herder = await stack.enter_async_context(Herder(surroundings))
            except* (TopicLogError, GroupRefused) as group:
                raise StartRefused("; ".join(sorted({str(error) for error in group.exceptions}))) from group
            for each in over:
                lives.forget(each)  # the group knows
            _repeat(alarm, "herder tick", TICK_MS, herder.look_around)
            info = WorkerInfo(
                url=herder.seat.url, cgroup=None if taken is None else str(taken.root), no_cgroup=no_cgroups
            )
            app = _app(config, plugins, shelf, herder, levels, cluster_id, clock, info)
            await stack.enter_async_context(serving(app, listener))
            yield Worker(
                host=host,
                port=port,
                worker_id=worker_id,
                group_id=config.group_id,
                cluster_id=cluster_id,
                herder=herder,
            )


def _app(
    config: WorkerConfig,
    plugins: Plugins,
    shelf: Shelf,
    herder: Herder,
    levels: LoggerLevels,
    cluster_id: str,
    clock: Clock,
    info: WorkerInfo,
) -> Asgi:
    validator = Validator(
        ValidationSurroundings(
            group_id=config.group_id,
            override_policy=config.override_policy,
            check=lambda plugin, settings: herder.calls.check(plugin, settings, CHECK_TIMEOUT_S),
            check_timeout_s=CHECK_TIMEOUT_S + 5.0,  # the host's own deadline gives the better message
            versions=lambda plugin: [each.version for each in plugins.versions(plugin.name)],
            no_cgroups=info.no_cgroup or "",
        )
    )
    own_version = version("tidemill")
    operations = Operations(herder, plugins, validator, config, shelf.look)
    environments = Environments(shelf, config.environments, operations.users, herder.calls.let_go)
    api = create_app(
        Parts(
            operations=operations,
            server_info=ServerInfo(version=API_VERSION, commit=f"tidemill-{own_version}", kafka_cluster_id=cluster_id),
            loggers=levels,
            health=lambda: herder.health,
            metrics=WorkerMetrics(herder.machine, plugins, herder.seat).text,
            session_key=lambda: herder.session_key,
            verification=config.inter_worker.verification,
            worker_info=info,
        ),
        [internal, routes(GroupHistory(herder.peers, lambda: herder.known_urls)), environment_routes(environments)],
    )
    return Forwarding(
        api,
        group=herder.whereabouts,
        trouble=herder.whereabouts.trouble,
        exists=herder.knows,
        reads=herder.positions,
        peers=herder.peers,
        clock=clock,
    )


def _take_cgroups(config: WorkerConfig, stack: AsyncExitStack) -> tuple[Cgroups | None, str | None]:
    """Control groups for tasks, or why there are none."""
    try:
        taken = stack.enter_context(cgroups(config.task_cgroup))
    except NoCgroups as error:
        if config.task_cgroup not in (AUTO, NONE):
            raise StartRefused(f"tidemill.task.cgroup: {error}") from error
        log.info(
            "tasks have no control groups: memory limits are watched, limits of processors refused", reason=str(error)
        )
        return None, str(error)
    log.info("tasks have control groups", folder=str(taken.root))
    return taken, None


# -------------------------------------------------------------------- the group


def group_settings(config: WorkerConfig, worker_id: str) -> GroupSettings:
    """The group as the worker's settings have it."""
    client = {name: str(value) for name, value in config.client.items() if is_security(name)}
    dialer, alone_because = None, ""
    try:
        dialer = dialer_of(client)
    except ConfigError as error:
        alone_because = str(error)
    if alone_because and config.group_protocol != PROTOCOL:
        raise StartRefused(
            f"cannot be in a group, as tidemill.group.protocol={config.group_protocol} asks: {alone_because}"
        )
    return GroupSettings(
        group=config.group_id,
        worker_id=worker_id,
        client=lambda: ClusterClient(config.bootstrap_servers, client_id=config.client_id, dialer=dialer),
        session_timeout_ms=config.session_timeout_ms,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        rebalance_timeout_ms=config.rebalance_timeout_ms,
        return_ms=config.return_ms,
        protocol=config.group_protocol,
        topics=tuple(topic.name for topic in (config.config_topic, config.offset_topic, config.status_topic)),
        alone_because=alone_because,
    )


async def _begin_life(
    config: WorkerConfig, cluster_id: str, worker_id: str, clock: Clock
) -> tuple[Lives, Life | None, tuple[LifeFacts, ...]]:
    """This worker's life, and those on this machine that are over; nothing where lives cannot be kept."""
    lives = Lives.of_group(cluster_id, config.group_id)
    try:
        life = lives.begin(worker_id)
    except OSError as error:
        log.warning(
            "the next worker here will wait for the session of this one, should it be killed", reason=str(error)
        )
        return lives, None, ()
    until = clock.monotonic() + DYING_S
    while True:
        over, going_on = lives.look(but=life)
        own = [each for each in going_on if each.worker_id == worker_id]
        dying = [each for each in going_on if each in own or not is_running(each.process)]
        if not dying or clock.monotonic() >= until:
            break
        await asyncio.sleep(DYING_PAUSE_S)
    for each in own:
        if is_running(each.process):
            life.close()
            raise StartRefused(
                f"another worker of group {config.group_id!r} has the address {worker_id}: process {each.process}; "
                "give this one another (listeners, rest.advertised.host.name, rest.advertised.port)"
            )
    # Programs of tasks whose guardian was killed, too; a life of which something cannot be killed is not over.
    return lives, life, tuple(each for each in over if end_marked(each.mark))


# ------------------------------------------------------------------ the address


@contextmanager
def _listener(config: WorkerConfig) -> Iterator[socket.socket]:
    host, port = config.listener
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise StartRefused(f"cannot listen on {host}:{port}: {error.strerror}") from error
    # Every interface means IPv4's, as for most programs; name an IPv6 address to listen on that.
    family, kind, protocol, _, address = sorted(found, key=lambda each: each[0] != socket.AF_INET)[0]
    with contextlib.closing(socket.socket(family, kind, protocol)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except OSError as error:
            raise StartRefused(
                f"cannot listen on {host}:{port}: {error.strerror}; choose another address with --rest HOST:PORT"
            ) from error
        listener.listen(128)
        yield listener


def _reachable(host: str) -> str:
    return socket.gethostname() if host in ("0.0.0.0", "::") else host


# -------------------------------------------------------------------- the clock


@contextmanager
def _alarms() -> Iterator[Alarm]:
    """Alarms by the event loop's clock, which goes on evenly whoever sets that of the machine."""
    loop = asyncio.get_running_loop()
    waiting: dict[str, asyncio.TimerHandle] = {}

    def alarm(name: str, delay_ms: int, callback: Callable[[], None]) -> None:
        def ring() -> None:
            del waiting[name]
            callback()

        if (before := waiting.get(name)) is not None:
            before.cancel()
        waiting[name] = loop.call_later(delay_ms / 1000, ring)

    try:
        yield alarm
    finally:
        for each in waiting.values():
            each.cancel()


def _repeat(alarm: Alarm, name: str, interval_ms: int, callback: Callable[[], None]) -> None:
    """Call it now and again, whatever becomes of one call."""

    def again() -> None:
        alarm(name, interval_ms, again)
        callback()

    alarm(name, interval_ms, again)


# ------------------------------------------------------------------ the cluster


async def _wait_for_cluster(config: WorkerConfig, clock: Clock) -> str:
    client: Mapping[str, str] = {**config.client, "client.id": config.client_id, "log_level": "0"}
    deadline = clock.monotonic() + config.request_timeout_ms / 1000
    heard = ""  # the last error of no call, which says more: what is wrong with a certificate, for one

    def hear(error: KafkaError) -> None:
        nonlocal heard
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # that one only counts them
            heard = error.str()

    try:
        admin = admin_client(client, hear)
    except TopicLogError as error:
        raise StartRefused(str(error)) from error
    while True:
        remaining_s = max(0.5, deadline - clock.monotonic())
        try:
            metadata = await asyncio.to_thread(admin.list_topics, timeout=min(2.0, remaining_s))
            return str(metadata.cluster_id or "")
        except KafkaException as error:
            admin.poll(0)
            reason = heard or error.args[0].str()
        if clock.monotonic() >= deadline:
            raise StartRefused(
                f"no Kafka cluster at {config.bootstrap_servers} after {config.request_timeout_ms / 1000:g} s "
                f"({reason}): start it, or name another with --bootstrap-server HOST:PORT"
            )
        log.warning("waiting for the Kafka cluster", bootstrap=config.bootstrap_servers, reason=reason)
        await asyncio.sleep(min(CLUSTER_RETRY_S, remaining_s))


async def _ensure_topics(config: WorkerConfig) -> None:
    specs = (config.config_topic, config.offset_topic, config.status_topic)
    try:
        await asyncio.to_thread(ensure_topics, config.client, *specs, timeout_s=config.request_timeout_ms / 1000)
    except TopicLogError as error:
        raise StartRefused(str(error)) from error
