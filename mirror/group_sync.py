"""Carrying consumer groups from source to target

Two rounds on two intervals: checkpoints, and committed offsets on the target. Each begins with a look at which groups
there are, one small request per broker, so that a new group waits for one round and not for a third interval. A few
groups are asked for at a time; one that cannot be read is left for the next round and does not hold up the others.
"""

import asyncio
from collections import ChainMap
from collections.abc import Awaitable, Callable, Iterable, Mapping

import structlog

from tidemill.core.client.admin import Admin
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.client.connection import ConnectionFailed
from tidemill.core.errors import KafkaError, UnknownMemberId
from tidemill.core.runtime.clock import Clock
from tidemill.core.types import TopicPartition
from tidemill.mirror.checkpoints import CheckpointBook, checkpoints_of, commits_for
from tidemill.mirror.config import FlowConfig
from tidemill.mirror.flow import PartitionEntry
from tidemill.mirror.formats import Checkpoint
from tidemill.mirror.table_topic import TableTopic

GROUPS_AT_ONCE = 8
_CONSUMER_PROTOCOLS = frozenset({"consumer", ""})  # empty: offsets were committed without a group membership


class GroupSync:
    """The groups of one flow."""

    def __init__(
        self,
        config: FlowConfig,
        source: ClusterClient,
        target: ClusterClient,
        entries: dict[TopicPartition, PartitionEntry],
        clock: Clock,
    ) -> None:
        self._config = config
        self._source = Admin(source)
        self._target = Admin(target)
        self._entries = entries
        self._book = CheckpointBook()
        self._topic = TableTopic(
            target,
            config.policy.checkpoints_topic(config.source),
            factor=config.replication_factors["checkpoints"],
            clock=clock,
        )
        self._log = structlog.get_logger("tidemill.mirror").bind(flow=config.name)
        self._groups: tuple[str, ...] | None = None  # None: nobody has looked yet
        self._not_committed: dict[str, str] = {}  # why, by group; each of the two rounds knows only its own
        self._without_checkpoint: dict[str, str] = {}
        # Groups whose positions could not be carried in the last round of a kind, and why.
        self.problems: Mapping[str, str] = ChainMap(self._not_committed, self._without_checkpoint)

    async def _look(self) -> tuple[str, ...]:
        """Consumer groups that the filters accept; those of the first look if later ones are switched off."""
        if self._groups is not None and not self._config.refresh_groups:
            return self._groups
        try:
            listed = await self._source.list_groups()
        except (ConnectionFailed, KafkaError) as error:
            if self._groups is None:
                raise
            self._log.warning("groups cannot be listed, going on with those known", error=str(error))
            return self._groups
        self._groups = tuple(
            sorted(
                row.group
                for row in listed
                if row.protocol_type in _CONSUMER_PROTOCOLS and self._config.groups.accepts(row.group)
            )
        )
        for failed in (self._not_committed, self._without_checkpoint):
            for group in failed.keys() - set(self._groups):
                del failed[group]
        return self._groups

    def forget_written(self) -> None:
        """What was written may be gone."""
        self._book = CheckpointBook()

    async def emit_checkpoints(self) -> None:
        """Write the checkpoints that changed."""
        found: list[Checkpoint] = []

        async def collect(group: str) -> None:
            found.extend(await self.checkpoints(group))

        await self._for_each(await self._look(), collect, self._without_checkpoint)
        fresh = self._book.changed(found)
        await self._topic.append([(row.key(), row.value()) for row in fresh])
        self._book.written(fresh)

    async def sync_offsets(self) -> None:
        """Commit translated positions on the target for groups that nobody uses there."""
        await self._for_each(await self._look(), self._sync_group, self._not_committed)

    async def _sync_group(self, group: str) -> None:
        checkpoints = await self.checkpoints(group)
        if not checkpoints:
            return
        state = await self._target.group_state(group)
        commits = commits_for(checkpoints, state, await self._target.committed_offsets(group))
        if not commits:
            return
        errors = [error for error in (await self._target.commit_offsets(group, commits)).values() if error is not None]
        if len(errors) < len(commits):
            self._log.info("group positions committed", group=group, partitions=len(commits) - len(errors))
        for error in errors:
            if not isinstance(error, UnknownMemberId):  # somebody has begun to use the group there
                raise error

    async def checkpoints(self, group: str) -> tuple[Checkpoint, ...]:
        """The group's positions on the target."""
        return checkpoints_of(group, await self._source.committed_offsets(group), self._translate)

    def _translate(self, partition: TopicPartition, offset: int) -> tuple[TopicPartition, int] | None:
        entry = self._entries.get(partition)
        found = None if entry is None else entry.link.translate(offset)
        return None if entry is None or found is None else (entry.target, found)

    async def _for_each(
        self, groups: Iterable[str], work: Callable[[str], Awaitable[None]], failed: dict[str, str]
    ) -> None:
        slots = asyncio.Semaphore(GROUPS_AT_ONCE)

        async def one(group: str) -> None:
            async with slots:
                try:
                    await work(group)
                    failed.pop(group, None)
                except (ConnectionFailed, KafkaError) as error:
                    if isinstance(error, KafkaError):  # a cluster that does not answer is named as such
                        failed[group] = str(error)
                    self._log.warning("group left for the next round", group=group, error=str(error))

        async with asyncio.TaskGroup() as tasks:
            for group in groups:
                tasks.create_task(one(group))
