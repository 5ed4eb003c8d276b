"""One of several nodes: its place in the cluster, taken and left in order

The metadata comes first. The node takes part in the quorum, or follows it, until the cluster has taken in its
registration and its image has passed that: from there on it knows which partitions it has, and that it leads none of
them. Only then are its logs opened, by that image; clients are let in; and the controller hears that this broker has
taken in its registration, upon which it may lead.

It leaves the other way round: others lead what it led before its listeners close, and a controller that decides lets
another one be elected at once.

Not here: what is decided about brokers (`quorum.active`), copying (`replication`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog

from tidemill.broker.cluster_health import is_in_touch
from tidemill.broker.cluster_settings import ClusterSettings
from tidemill.broker.config import BrokerConfig
from tidemill.broker.dispatch import Route
from tidemill.broker.endpoints import end_points_of
from tidemill.broker.forwarding import Forwarder, serve_envelope
from tidemill.broker.full_disk import LOOK_INTERVAL_S, FullDisk, can_be_spared
from tidemill.broker.listeners import SecurityProtocol
from tidemill.broker.live_settings import replication_rate
from tidemill.broker.log.checkpoints import was_closed_in_order
from tidemill.broker.log.store import LogStore
from tidemill.broker.opening import StartRefused, open_logs, usable
from tidemill.broker.principals import USER, Principal
from tidemill.broker.quorum.active import ActiveController
from tidemill.broker.quorum.broker_life import BrokerIdentity, BrokerLife
from tidemill.broker.quorum.channel import ControllerChannel
from tidemill.broker.quorum.controller import Controller
from tidemill.broker.quorum.delta import ImageDelta
from tidemill.broker.quorum.disk_thread import DiskThread
from tidemill.broker.quorum.elected import Elected, Identity
from tidemill.broker.quorum.election_state import ElectionStateFile
from tidemill.broker.quorum.image import BrokerImage
from tidemill.broker.quorum.in_sync import IsrProposal
from tidemill.broker.quorum.lifecycle import Stage
from tidemill.broker.quorum.metadata import NewTopic, TopicImage
from tidemill.broker.quorum.node_wire import isr_to_wire
from tidemill.broker.quorum.raft.machine import CommittedDataLost
from tidemill.broker.quorum.raft.voters import VoterEndpoint
from tidemill.broker.quorum.records import MetadataFormatError
from tidemill.broker.quorum.store import MetadataStore
from tidemill.broker.quorum.vigil import Vigil
from tidemill.broker.registration_file import PastRegistration, epoch_held, read_registration, write_registration
from tidemill.broker.replication.actions import ProposeIsr
from tidemill.broker.replication.fetcher import Surrounded
from tidemill.broker.replication.replica import Replica
from tidemill.broker.replication.replicas import among_others
from tidemill.broker.replication.throttle import RateThrottle, names_replica
from tidemill.broker.running import Start, working
from tidemill.broker.surroundings import Surroundings
from tidemill.broker.topic_config import Layers
from tidemill.broker.ways_to_nodes import WaysToNodes
from tidemill.core.client.connection import Address
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import CoordinatorLoadInProgress, CorruptMessage, KafkaError, error_for_code
from tidemill.core.runtime.chance import chance_from
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.message import Message
from tidemill.core.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from tidemill.core.wire.messages.alter_partition import AlterPartitionResponse
from tidemill.core.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tidemill.core.wire.messages.envelope import EnvelopeRequest

if TYPE_CHECKING:
    from tidemill.broker.node import Broker
    from tidemill.broker.tls_watch import ListenerTls

log = structlog.get_logger("tidemill.broker.cluster")

_MYSELF: Final = Principal(USER, "broker")

QUORUM_THREADS: Final = 2
"""One for what is written, one for what is read meanwhile."""

ASK_TIMEOUT_S: Final = 5.0
"""So long a broker waits for the active controller before it asks again."""

KNOWN_WITHIN_S: Final = 10.0
"""How long a broker waits to hear of what it has had made by the active controller."""

TELL_INTERVAL_S: Final = 5.0
"""How often a start that waits for others says so."""

LED_INTERVAL_S: Final = 0.5
"""How often a controller without a broker looks whether somebody leads."""

GRANTED: Final = ErrorCode.NONE
AGAIN: Final = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""What the controller says of a whole AlterPartition that may be otherwise a moment later."""


class ClusterPlace:
    """A node's part in its cluster. It is made with the node, `join` gives it its controller, `living` is its life."""

    def __init__(self, settings: ClusterSettings, config: BrokerConfig, around: Surroundings, logs: LogStore) -> None:
        self.settings = settings
        self._config = config
        self._around = around
        self._logs = logs
        self._executor = around.threads.pool("quorum", QUORUM_THREADS)
        self._thread = DiskThread(self._executor)
        self._ways = WaysToNodes(config, around)
        self._transport = self._ways.transport()
        self._election = ElectionStateFile(logs.directory)
        self._past = read_registration(logs.directory)
        self._held_epoch = epoch_held(logs.directory, closed_in_order=was_closed_in_order(logs.directory))
        self._incarnation_id = (self._past and self._past.registering) or around.new_uuid()
        self._changed = asyncio.Event()
        self._left = False
        self._failed = ""
        self._rates: dict[str, int] = {}
        self._addresses: dict[int, tuple[BrokerImage | None, Address | None]] = {}
        self.driven_out = ""
        self.led_ms = 0  # when a controller without a broker last saw that somebody leads, by the monotonic clock
        self.store: MetadataStore
        self.member: Elected
        self.controller: Controller
        self.active: ActiveController
        self.channel: ControllerChannel
        self.forwarder: Forwarder
        self.life: BrokerLife

    # -- taken

    def join(self, store: MetadataStore, on_failure: Callable[[OSError], None], controller: Controller) -> Elected:
        """The member of the quorum for `controller`, whose log is loaded."""
        address = self.settings.controller
        self.controller, self.store = controller, store
        self.member = Elected(
            store,
            self._election,
            self._transport,
            controller,
            identity=Identity(
                node_id=self._config.node_id,
                cluster_id=self._logs.cluster_id,
                directory_id=self._logs.identity.directory_id,
                endpoints=() if address is None else (VoterEndpoint(address.name, *self._told()),),
            ),
            clock=self._around.clock,
            thread=self._thread,
            voters=self.settings.voters,
            bootstrap=self.settings.bootstrap,
            settings=self.settings.quorum,
            chance=chance_from(self._around.new_uuid()),
            on_failure=on_failure,
        )
        self._vigil = Vigil(self._config.node_id, self._ways.dialer(), self._address_of)
        controller.watch(self._vigil.hear)
        self.active = ActiveController(
            controller,
            self.member.serve,
            clock=self._around.clock,
            session_timeout_ms=self.settings.session_timeout_ms,
            balance_interval_ms=self.settings.balance_interval_ms,
            vigil=self._vigil,
        )
        self.channel = ControllerChannel(self.member, self._transport, self.active.serve)
        self.forwarder = Forwarder(self.channel)
        self.life = BrokerLife(
            self.channel,
            BrokerIdentity(
                broker_id=self._config.node_id,
                cluster_id=self._logs.cluster_id,
                incarnation_id=self._incarnation_id,
                end_points=end_points_of(self._config),
                rack=self._config.broker_rack,
                previous_broker_epoch=self._held_epoch,
            ),
            clock=self._around.clock,
            settings=self.settings.life,
            on_change=lambda _stage: self._changed.set(),
        )
        controller.elsewhere = self
        return self.member

    @property
    def control_tls(self) -> "ListenerTls | None":
        """What this node shows to controllers, and as one, where they speak TLS."""
        return None if self._ways.control is None else self._ways.control.watch

    def _told(self) -> tuple[str, int]:
        """Where the other controllers find this one, as the settings of all nodes say, or else its own."""
        me, told = self.settings.voters.get(self._config.node_id), self.settings.told
        if me is not None:
            return me.endpoints[0].host, me.endpoints[0].port
        return ("", 0) if told is None else (told.host, told.port)

    def forwarded(self, routes: Iterable[Route]) -> tuple[Route, ...]:
        """The routes of a broker that may not be the one that decides."""
        return self.forwarder.wrapped(routes)

    @asynccontextmanager
    async def living(self, broker: "Broker") -> AsyncIterator[int]:
        """Be part of the cluster, from before the logs are open until after clients are gone; the group records read.

        The body serves clients; in it `ready` returns when this broker may lead. Raises StartRefused.
        """
        self.active.of_clients = partial(_of_clients, broker)
        controller = self.controller
        async with self._listening(), working() as start:
            start(self._take_part(broker))
            for work in (controller.run, controller.keep_snapshots, self.active.run, self._vigil.run):
                start(work())
            if self._past is not None:
                await self._write(replace(self._past, registering=self._incarnation_id))
            start(self._live(broker))
            start(self._tell_what_is_missing())
            await self._until(lambda: self.life.broker_epoch >= 0)
            survives = self._config.flush_policy == "group"
            await self._write(PastRegistration(broker_epoch=self.life.broker_epoch, survives_a_crash=survives))
            await self._until(lambda: controller.image.offset > self.life.broker_epoch)
            with usable(self._config.data_dir):
                records = await self._take_up(broker, start)
            yield records
            await self._leave()

    async def _write(self, registration: PastRegistration) -> None:
        with usable(self._config.data_dir):
            await self._thread.run(partial(write_registration, self._logs.directory, registration))

    @asynccontextmanager
    async def controlling(self, broker: "Broker") -> AsyncIterator[None]:
        """Be one of the controllers and nothing else; the body begins when somebody leads. Raises StartRefused."""
        self.active.of_clients = partial(_of_clients, broker)
        controller = self.controller
        async with self._listening(), working() as start:
            start(self._take_part(broker))
            for work in (controller.run, controller.keep_snapshots, self.active.run, self._vigil.run):
                start(work())
            start(self._tell_that_nobody_leads())
            start(self._note_that_somebody_leads())
            await self._until(lambda: self.member.leader_id >= 0)
            self._note_leader()  # whoever looks now need not wait for the next note
            yield
            await self._leave()

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[None]:
        address = self.settings.controller
        try:
            if address is not None:
                try:
                    await self._transport.serve(Address(address.host or "0.0.0.0", address.port), self.active.serve)
                except OSError as error:
                    raise StartRefused(f"{error}; stop the process that has it, or change listeners") from None
            yield
        finally:
            await self._transport.close()
            self._executor.shutdown(wait=False)

    def disk_failed(self, error: OSError) -> None:
        """The data folder cannot be trusted any more: a start ends with that, whatever it waits for.

        A broker that has started is stopped by its owner. One that has not would be by nobody, and if it is the active
        controller it would go on leading, and refuse whatever brokers ask.
        """
        self._failed = f"the data folder {self._config.data_dir} failed: {error}"
        self._left = True
        self._changed.set()

    async def _until(self, true: Callable[[], bool]) -> None:
        """Return once that is so; raises StartRefused if this broker is driven out before."""
        while not true():
            if self._left:
                raise StartRefused(self._why_not())
            self._changed.clear()
            await asyncio.wait(
                [waiting := asyncio.get_running_loop().create_task(self._changed.wait()),
                 other := asyncio.get_running_loop().create_task(self.member.changed())],
                return_when=asyncio.FIRST_COMPLETED,
            )  # fmt: skip
            waiting.cancel()
            other.cancel()

    def _why_not(self) -> str:
        """Why the cluster has not taken this broker in."""
        if self.member.is_taken_for_leader:
            return (
                f"the other controllers say that node {self._config.node_id} leads them, and this process does not: "
                "another one with this node.id is alive; give each broker an id of its own, and start only one process "
                "on each data folder"
            )
        return self.driven_out or self._failed or "stopped before the cluster had taken this broker in"

    async def _take_up(self, broker: "Broker", start: Start) -> int:
        """Open the logs by the image of now, and follow it from there; returns the number of group records."""
        opened = self.controller.image
        self.take_live_settings(broker.config_layers())
        fetchers = among_others(self._surrounded(broker), self.settings.fetch, self._throttle("follower"))
        broker.replicas.leader_throttle = self._throttle("leader")
        directory, new_uuid = self._logs.directory, self._around.new_uuid
        await self._thread.run(
            partial(open_logs, directory, self.controller, self._logs, broker.log_config, new_uuid, opened)
        )
        broker.following.image = opened
        await broker.following.make_missing_logs()
        for topic in opened.topics.values():
            broker.replicas.assign(topic, self._logs.high_watermarks)
        records = broker.groups.replay(opened)
        missed = ImageDelta.between(opened, self.controller.image)
        self.controller.watch(broker.following.hear)
        self.controller.watch(self._taken)
        self.controller.subscribe(broker.following.follow)
        broker.following.hear(missed)
        await broker.following.follow(missed)
        start(self._look_after_the_disk(broker))
        for work in (
            fetchers.run,
            broker.groups.run,
            *((broker.cleaner.run,) if self._config.log_cleaner_enable else ()),
        ):
            start(work())
        return records

    async def _look_after_the_disk(self, broker: "Broker") -> None:
        """Stand back while there is no room, if others can do without this broker."""
        disk, stands_back = FullDisk(self._around.clock.monotonic), False
        while True:
            await asyncio.sleep(LOOK_INTERVAL_S)
            wanted = disk.look(broker.logs) and (
                stands_back or can_be_spared(broker.replicas, self.controller.image.brokers)
            )
            if wanted != stands_back:
                stands_back = wanted
                log.warning("disk full: others are to lead" if wanted else "there is room again: back in the cluster")
            self.life.stand_back(wanted)

    def _surrounded(self, broker: "Broker") -> Surrounded:
        return Surrounded(
            node_id=self._config.node_id,
            replicas=broker.replicas,
            logs=self._logs,
            clock=self._around.clock,
            dialer=self._ways.dialer(),
            address_of=self._address_of,
            broker_epoch=lambda: self.life.broker_epoch,
            topic=lambda name: self.controller.image.topics.get(name),
            alter_partition=self.alter_partition,
        )

    def _throttle(self, role: str) -> RateThrottle:
        """That of the replicas that topics name for this role."""
        key = f"{role}.replication.throttled.replicas"

        def is_throttled(topic: str, partition: int) -> bool:
            found = self.controller.image.topics.get(topic)
            listed = "" if found is None else found.configs.get(key, "")
            return names_replica([each.strip() for each in listed.split(",")], partition, self._config.node_id)

        return RateThrottle(lambda: self._rates[role], is_throttled)

    def take_live_settings(self, layers: Layers) -> None:
        """What brokers' dynamic settings say of copying."""
        self._rates = {role: replication_rate(layers, role) for role in ("leader", "follower")}

    def _address_of(self, node_id: int) -> Address | None:
        """At the listener of brokers; a controller that does not name it has no terms but to encrypt nothing."""
        registered = self.controller.image.brokers.get(node_id)
        known, address = self._addresses.get(node_id, (None, None))
        if registered is not known:
            address = self._address_in(registered)
            self._addresses[node_id] = registered, address
        return address

    def _address_in(self, registered: BrokerImage | None) -> Address | None:
        listening = self._config.listening
        has_terms = listening.inter_broker in listening.specs
        for each in () if registered is None else registered.end_points:
            plain = each.security_protocol == SecurityProtocol.PLAINTEXT.value
            if each.name == listening.inter_broker if has_terms else plain:
                return Address(each.host, each.port)
        return None

    # -- held

    async def _live(self, broker: "Broker") -> None:
        try:
            reason = await self.life.run()
        finally:
            self._left = True
            self._changed.set()
        if reason is not None:
            reason = self.why_nobody_leads or reason
            unreached = self.unreached if self.life.broker_epoch < 0 else ""
            self._drive_out(broker, f"{reason}; {unreached}" if unreached else reason)

    async def _take_part(self, broker: "Broker") -> None:
        """Be a member of the quorum. What ends that ends the broker, in order: the owner is told and stops it."""
        try:
            await self.member.run()
        except CommittedDataLost as error:
            self._drive_out(
                broker,
                f"the metadata log in {self._config.data_dir} contradicts what the cluster agreed on ({error}): was "
                "the folder put back from another time? Start this node with an empty one",
            )
        except MetadataFormatError as error:
            self._drive_out(
                broker,
                f"the cluster's metadata has something that this version cannot read ({error}): start this node with "
                "the version that the others run; its folder stays as it is",
            )
        except (OSError, CorruptMessage) as error:
            self._drive_out(broker, f"the metadata log in {self._config.data_dir} cannot be used: {error}")

    def _drive_out(self, broker: "Broker", reason: str) -> None:
        log.error("this broker is not part of the cluster any more", reason=reason)
        self.driven_out = self.driven_out or reason
        self._left = True
        self._changed.set()
        broker.stop.set()

    async def _tell_what_is_missing(self) -> None:
        """Say what a start waits for, again and again, until it does not."""
        while self.life.machine.stage in (Stage.REGISTERING, Stage.STARTING):
            await asyncio.sleep(TELL_INTERVAL_S)
            if self.life.machine.stage is Stage.REGISTERING:
                log.warning(
                    "waiting for the active controller",
                    leader_id=self.member.leader_id,
                    **self._asked(),
                    reason=self.why_nobody_leads or self.life.machine.trouble or "no answer yet",
                )
            elif self.life.machine.stage is Stage.STARTING:
                log.warning(
                    "waiting to be let in", broker_epoch=self.life.broker_epoch, reason=self.life.machine.trouble
                )

    async def _tell_that_nobody_leads(self) -> None:
        """Say what the start of a controller waits for, again and again, until it does not."""
        while self.member.leader_id < 0:
            await asyncio.sleep(TELL_INTERVAL_S)
            if self.member.leader_id < 0:
                reason = self.why_nobody_leads or "no majority of the voters has elected one: start the others"
                log.warning("waiting for a controller that leads", **self._asked(), reason=reason)

    async def _note_that_somebody_leads(self) -> None:
        while True:
            self._note_leader()
            await asyncio.sleep(LED_INTERVAL_S)

    def _note_leader(self) -> None:
        if self.member.leader_id >= 0:
            self.led_ms = int(self._around.clock.monotonic() * 1000)

    def _asked(self) -> dict[str, str]:
        """Where somebody may be found who knows who leads, and why not."""
        voters = self.member.machine.voters
        why = {"unreached": self.unreached} if self.unreached else {}
        if len(voters):
            return {"voters": ",".join(f"{each.node_id}@{_where(each.endpoints)}" for each in voters), **why}
        return {"bootstrap_servers": ",".join(f"{host}:{port}" for host, port in self.settings.bootstrap), **why}

    @property
    def unreached(self) -> str:
        """Which members of the quorum have not answered when they were asked last, and why."""
        return "; ".join(self.member.unreached.values())

    @property
    def why_nobody_leads(self) -> str:
        """Of a node that has never heard of any voters, which may be one of a cluster that nobody has begun."""
        if len(self.member.machine.voters) or self.member.leader_id >= 0:
            return ""
        return (
            "nobody there knows of a controller that leads: start those that are controllers already; a new cluster "
            "begins with one node whose folder, empty before, was made by 'tidemill broker format --standalone'"
        )

    def _taken(self, delta: ImageDelta) -> None:
        self.life.metadata_taken(delta.after.offset)
        self._changed.set()

    async def ready(self) -> None:
        """Return once this broker may lead; its listeners are open. Raises StartRefused."""
        self.life.metadata_taken(self.controller.image.offset)
        await self._until(lambda: self.life.machine.stage is Stage.RUNNING and self._knows_itself())

    def _knows_itself(self) -> bool:
        """Whether this broker has heard that it is let in: before, it would tell its clients that nobody is there."""
        registered = self.controller.image.brokers.get(self._config.node_id)
        return registered is not None and not registered.fenced

    async def hand_over(self) -> None:
        """Return once others lead what this broker led, or when that takes too long; its listeners are still open."""
        self.life.stop()
        while not self._left:
            self._changed.clear()
            await self._changed.wait()

    async def _leave(self) -> None:
        """Let another controller be elected, if this one decides; not longer than an election takes."""
        if not self.member.leads or len(self.member.machine.voters) == 1:
            return
        self.member.resign()
        try:
            async with asyncio.timeout(self.settings.quorum.election_timeout_ms / 1000):
                while self.member.leads:
                    await self.member.changed()
        except TimeoutError:
            log.info("no other controller has taken over yet")

    def misses(self, node_id: int) -> bool:
        """Whether that broker's process has just gone."""
        return self._vigil.misses(node_id)

    def in_touch(self) -> bool:
        """Whether this broker may count on being told who leads."""
        return is_in_touch(self, int(self._around.clock.monotonic() * 1000))

    # -- asked of the active controller

    async def alter_partition(self, replica: Replica, wish: ProposeIsr) -> bool:
        """Ask for an ISR; False if it is refused for good. Raises KafkaError, ConnectionError."""
        me = self._config.node_id
        proposal = IsrProposal(
            partition=replica.log.topic_partition.partition,
            isr=wish.isr,
            broker_epochs=tuple(
                self.life.broker_epoch if node == me else epoch
                for node, epoch in zip(wish.isr, wish.broker_epochs, strict=True)
            ),
            leader_epoch=wish.leader_epoch,
            partition_epoch=wish.partition_epoch,
        )
        request = isr_to_wire(me, self.life.broker_epoch, [(replica.log.topic_id, proposal)])
        answer = await self.channel.ask(request, timeout_s=ASK_TIMEOUT_S)
        assert isinstance(answer, AlterPartitionResponse)
        code = answer.error_code or answer.topics[0].partitions[0].error_code
        if code in AGAIN:
            raise error_for_code(code, "the ISR was not changed")
        if code != GRANTED:
            log.info("ISR refused", partition=str(replica.log.topic_partition), reason=ErrorCode(code).name)
        return bool(code == GRANTED)

    async def allocate_producer_ids(self) -> range:
        """A block of producer ids; raises CoordinatorLoadInProgress, which makes clients ask again, as in Kafka."""
        request = AllocateProducerIdsRequest(broker_id=self._config.node_id, broker_epoch=self.life.broker_epoch)
        try:
            answer = await self._ask(request)
        except KafkaError as error:
            raise CoordinatorLoadInProgress(f"no producer ids for now: {error}") from None
        assert isinstance(answer, AllocateProducerIdsResponse)
        return range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len)

    async def ensure_topic(self, topic: NewTopic) -> TopicImage:
        """The topic of that name, made by the active controller if it is not there; raises KafkaError."""
        wanted = CreatableTopic(
            name=topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            configs=tuple(CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()),
        )
        request = CreateTopicsRequest(topics=(wanted,), timeout_ms=int(ASK_TIMEOUT_S * 1000))
        answer: Any = await self.forwarder.ask(
            ApiKey.CREATE_TOPICS, 7, request, client_id=None, principal=_MYSELF, host=""
        )
        (result,) = answer.topics
        if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise error_for_code(result.error_code, result.error_message)
        try:
            async with asyncio.timeout(KNOWN_WITHIN_S):
                while (found := self.controller.image.topics.get(topic.name)) is None:
                    await self.member.changed()
        except TimeoutError:
            raise error_for_code(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"this broker has not heard yet of topic {topic.name!r}"
            ) from None
        return found

    async def _ask(self, request: Message) -> Message:
        try:
            answer: Any = await self.channel.ask(request, timeout_s=ASK_TIMEOUT_S)
        except ConnectionError as error:
            raise error_for_code(ErrorCode.REQUEST_TIMED_OUT, f"the active controller: {error}") from None
        if answer.error_code:
            raise error_for_code(answer.error_code, "the active controller refused it")
        message: Message = answer
        return message


async def _of_clients(broker: "Broker", envelope: EnvelopeRequest) -> Message:
    return await serve_envelope(envelope, broker.dispatcher, broker.config.listening.inter_broker)


def _where(end_points: Sequence[VoterEndpoint]) -> str:
    return f"{end_points[0].host}:{end_points[0].port}" if end_points else "?"
