"""Following the metadata image: what a node does when another one comes

What is in memory (groups, roles of partitions, limits) changes with the commit, in the turn of the event loop in which
the image does (`hear`). Files take their time and come after, one image behind the other (`follow`): a new partition
gets its log before its creation is answered, a deleted topic loses its logs, changed settings reach the logs they are
about. Only who follows the images in order touches the files of topics.

What cannot be done about one topic keeps no other from what it is to become: it is told, and tried again whenever
missing logs are looked for.

Not here: which topics a change is about (`image_work`), logs (`log.store`), decisions (`quorum.controller`).
"""

from collections.abc import Callable, Iterable
from typing import Final

import structlog

from tidemill.broker.groups.coordinator import OFFSETS_TOPIC, GroupCoordinator
from tidemill.broker.image_work import as_of, lacks_log, work_of
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.new_logs import NewLogs, together
from tidemill.broker.log.store import LogStore
from tidemill.broker.log.turns import Turns
from tidemill.broker.quorum.changes import ChangeCounts
from tidemill.broker.quorum.controller import Controller
from tidemill.broker.quorum.delta import ImageDelta
from tidemill.broker.quorum.image import ClusterImage, PartitionImage, TopicImage
from tidemill.broker.replication.replicas import Replicas
from tidemill.core.errors import KafkaError

log = structlog.get_logger("tidemill.broker.node")

REPAIR_INTERVAL_S: Final = 30
"""How often a log that could not be made (full disk) is tried again."""


class Following:
    """Mutable: how far one node's logs have followed, and what of that has to be done again.

    `settings` are those that a topic's logs obey; `new_settings` is called where the broker's own are others now.
    """

    def __init__(
        self,
        node_id: int,
        controller: Controller,
        logs: LogStore,
        replicas: Replicas,
        groups: GroupCoordinator,
        *,
        monotonic: Callable[[], float],
        settings: Callable[[TopicImage], LogConfig],
        new_settings: Callable[[], None],
    ) -> None:
        self._node_id = node_id
        self._controller = controller
        self._logs = logs
        self._replicas = replicas
        self._groups = groups
        self._monotonic = monotonic
        self.settings = settings
        self._new_settings = new_settings
        self.changes = ChangeCounts(node_id)
        self.image: ClusterImage = controller.image  # the last one that the logs have caught up with
        self._behind: set[str] = set()  # topics that were not made what it says

    # -- an image comes

    def hear(self, delta: ImageDelta) -> None:
        """Let what is in memory be what was committed; called before anybody else sees the image."""
        self.changes.hear(delta)
        self._groups.image_changed(delta.after, frozenset(delta.gone))  # offsets are judged by the image
        for name in delta.gone:
            self._replicas.forget(name)
        for name in delta.topics:
            topic = delta.after.topics.get(name)
            if topic is not None:
                self._replicas.tell(topic)
                self._roles_changed(topic)
        if delta.broker_configs:
            self._new_settings()

    async def follow(self, delta: ImageDelta) -> None:
        """Make the logs what the image says; a topic about which that cannot be done is tried again later."""
        for name in delta.gone:
            self._behind.discard(name)
            try:
                await self._logs.delete(name)
            except OSError as error:  # the next start finds the folder and knows that its topic is gone
                log.error("files of a deleted topic are still there", topic=name, reason=str(error))
            except Exception:
                log.exception("a deleted topic is still there", topic=name)
        after = delta.after.topics
        await self._make_together([after[name] for name in delta.topics if name in after])
        turns = Turns(self._monotonic)
        for topic, obey in work_of(delta):
            await turns.give_way()
            await self._follow_topic(topic, obey=obey)
        self.image = delta.after

    async def _follow_topic(self, topic: TopicImage, *, obey: bool) -> None:
        """Let `topic` have its logs, and these its settings if there are others to `obey`."""
        try:
            await self._make_logs(topic)
            if obey:
                await self._logs.apply_config(topic.name, self.settings(topic))
            self._assign(topic)
        except Exception:  # a bug about one topic keeps no other from what it is to become
            log.exception("a topic is not what the metadata says", topic=topic.name)
            self._behind.add(topic.name)

    def _assign(self, topic: TopicImage) -> None:
        """Give the logs of `topic` their replicas, by what is committed now; it may be gone by now."""
        current = as_of(self._controller.image, topic)
        if current is not None:
            self._replicas.assign(current)
            self._roles_changed(current)

    def _roles_changed(self, topic: TopicImage) -> None:
        if topic.name == OFFSETS_TOPIC:
            self._groups.take_up()

    # -- logs that there are to be

    async def make_missing_logs(self) -> None:
        """Make the logs of all partitions that live here and have none, as far as the image has been followed."""
        turns = Turns(self._monotonic)
        for topic in list(self.image.topics.values()):
            await turns.give_way()
            current = as_of(self._controller.image, topic)
            if current is None:
                continue
            if topic.name in self._behind:
                self._behind.discard(topic.name)
                await self._follow_topic(current, obey=True)
            else:
                await self._make_logs(current)

    async def _make_together(self, topics: Iterable[TopicImage]) -> None:
        """Make the logs of new topics with syncs that they share; where that fails each has its own after this."""
        turns = Turns(self._monotonic)
        lacking = []
        for topic in topics:
            await turns.give_way()
            if self.without_log(topic):
                lacking.append(topic)
        try:
            for some in together(map(self._new_logs, lacking)):
                await self._logs.create_many(some)
        except Exception as error:
            log.warning("logs of new topics are made one topic at a time", reason=str(error))

    async def _make_logs(self, topic: TopicImage) -> None:
        """Make what `topic` lacks."""
        if not self.without_log(topic):
            return
        try:
            await self._logs.create_many([self._new_logs(topic)])
        except KafkaError as error:
            log.error("partitions have no log", topic=topic.name, reason=str(error))
        else:
            self._assign(topic)

    def _new_logs(self, topic: TopicImage) -> NewLogs:
        """What `topic` lacks, as long as it is there: it may be deleted while this waits for the disk."""
        return NewLogs(
            topic=topic.name,
            topic_id=topic.topic_id,
            partitions=self.without_log(topic),
            config=self.settings(topic),
            still_wanted=lambda: as_of(self._controller.image, topic) is not None,
        )

    # -- how it is

    def without_log(self, topic: TopicImage) -> list[int]:
        """The partitions of `topic` that live here and have no log."""
        return [each.partition for each in topic.partitions if self._lacks(topic.name, each)]

    async def without_logs(self, turns: Turns) -> list[str]:
        """The partitions that live here, are not just being made or deleted, and have no log."""
        found = []
        for topic in self.image.topics.values():
            if as_of(self._controller.image, topic) is None:
                continue
            for partition in topic.partitions:
                if self._lacks(topic.name, partition):
                    found.append(f"{topic.name}-{partition.partition}")
                await turns.give_way()
        return found

    def _lacks(self, topic: str, partition: PartitionImage) -> bool:
        return lacks_log(topic, partition, self._node_id, self._has_log)

    def _has_log(self, topic: str, partition: int) -> bool:
        return self._logs.get(topic, partition) is not None
