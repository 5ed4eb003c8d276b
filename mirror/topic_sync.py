"""Keeping the target's topics in step with the source's

Carries out what `tidemill.mirror.topics` plans: create with the source's partition count and settings, grow, and, on
its own interval, carry changed settings. A topic that cannot be created or changed is reported and tried again at the
next round; the others are not held up by it.
"""

from collections.abc import Mapping
from dataclasses import replace

import structlog

from tidemill.core.client.admin import Admin, NewTopic
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.errors import InvalidConfig, KafkaError, TopicAlreadyExists, UnsupportedVersion
from tidemill.mirror.config import FlowConfig
from tidemill.mirror.topics import (
    TopicPlan,
    carried_configs,
    config_changes,
    plan_topics,
    replication_factor,
    target_warnings,
)


class TopicSync:
    """The topics of one flow."""

    def __init__(self, config: FlowConfig, source: ClusterClient, target: ClusterClient) -> None:
        self._config = config
        self._source = source
        self._target = target
        self._log = structlog.get_logger("tidemill.mirror").bind(flow=config.name)
        self._told: set[str] = set()
        self.problems: dict[str, str] = {}  # topics that could not be created or grown at the last look, and why
        self._pairs: Mapping[str, str] = {}

    async def refresh(self) -> Mapping[str, str]:
        """Look at both clusters, create and grow; returns target topic by source topic."""
        source, target = await self._source.refresh(), await self._target.refresh()
        plan = plan_topics(source, target, self._config.selection, self._config.policy, self._config.source)
        problems: dict[str, str] = {}  # what is known goes on until this look has come to its end
        if plan.create:
            created = await self._create(plan, len(target.nodes))
            problems |= self._report(created, "topic created", "cannot create topic")
        if plan.grow:
            grown = await Admin(self._target).create_partitions(plan.grow)
            problems |= self._report(grown, "partitions added", "cannot grow topic")
        self._told -= set(self.problems.values()) - set(problems.values())  # what was mended is told when it comes back
        self.problems = problems
        for name in plan.shrunk:
            self._tell_once(
                f"topic {name} of {self._config.source} has fewer partitions than its copy: was it re-created?"
            )
        if plan.create or plan.grow:
            await self._target.refresh()
        self._pairs = plan.pairs
        return plan.pairs

    async def _create(self, plan: TopicPlan, nodes: int) -> Mapping[str, KafkaError | None]:
        settings = await Admin(self._source).topic_configs(list(plan.create))
        exclude, defaults_too = self._config.configs_exclude, self._config.defaults_from_source
        factor = self.factor("mirrored topics", self._config.replication_factor, nodes)
        topics = {
            plan.pairs[name]: NewTopic(
                name=plan.pairs[name],
                partitions=partitions,
                replication_factor=factor,
                configs=carried_configs(settings.get(name, ()), exclude, defaults_too),
            )
            for name, partitions in plan.create.items()
        }
        outcome = await Admin(self._target).create_topics(list(topics.values()))
        refused = [name for name, error in outcome.items() if isinstance(error, InvalidConfig)]
        for name in refused:
            self._tell_once(f"topic {name} is created without its source's settings: {outcome[name]}")
        if refused:
            bare = [replace(topics[name], configs={}) for name in refused]
            outcome |= await Admin(self._target).create_topics(bare)
        if created := [name for name in refused if outcome[name] is None]:
            await self._alter({name: dict(topics[name].configs) for name in created})
        return outcome

    async def sync_configs(self) -> None:
        """Carry settings that differ."""
        pairs = dict(self._pairs)
        if not pairs:
            return
        source = await Admin(self._source).topic_configs(list(pairs))
        target = await Admin(self._target).topic_configs(list(pairs.values()))
        for name, entries in target.items():
            for warning in target_warnings(name, entries):
                self._tell_once(warning)
        exclude, defaults_too = self._config.configs_exclude, self._config.defaults_from_source
        changes = {
            remote: difference
            for name, remote in pairs.items()
            if name in source
            and remote in target
            and (difference := config_changes(source[name], target[remote], exclude, defaults_too))
        }
        if not changes:
            return
        await self._alter(changes)

    async def _alter(self, changes: Mapping[str, Mapping[str, str | None]]) -> None:
        """Change settings; where a topic's are refused as a whole, one by one, so that none holds up the rest."""
        try:
            outcome = await Admin(self._target).alter_topic_configs(changes)
        except UnsupportedVersion as missing:
            self._tell_once(f"topic settings cannot be carried: {missing}")
            return
        for topic, error in outcome.items():
            if isinstance(error, InvalidConfig) and len(changes[topic]) > 1:
                for name, value in changes[topic].items():
                    await self._alter({topic: {name: value}})
            elif error is not None:
                self._tell_once(f"cannot carry settings of {topic}: {error}")
            else:
                self._log.info("topic settings carried", topic=topic, changes=dict(changes[topic]))

    def factor(self, what: str, wanted: int, nodes: int) -> int:
        """The replication factor to use, with a word when it is smaller than configured."""
        factor = replication_factor(wanted, nodes)
        if factor < wanted:
            has = f"{self._config.target} has {nodes} broker(s)"
            self._tell_once(f"{what}: {wanted} replicas wanted, {has}; using {factor}", severe=False)
        return factor

    def _report(self, outcome: Mapping[str, KafkaError | None], done: str, failed: str) -> dict[str, str]:
        """Tell what was done; returns what could not be, by topic."""
        problems: dict[str, str] = {}
        for name, error in outcome.items():
            if error is None:
                self._log.info(done, topic=name)
            elif not isinstance(error, TopicAlreadyExists):
                problems[name] = f"{failed} {name}: {error}"
                self._tell_once(problems[name])
        return problems

    def _tell_once(self, message: str, *, severe: bool = True) -> None:
        if message not in self._told:
            self._told.add(message)
            (self._log.warning if severe else self._log.info)(message)
