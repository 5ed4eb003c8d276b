"""Administrators: they make topics, delete them, make them again, and list groups"""

from tests.sim.world.clients import PARTITIONS, TOPICS, Client
from tests.sim.world.events import TopicAsked, TopicTold
from tests.sim.world.topology import REPLICAS_MAX
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidemill.core.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tidemill.core.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse


class Admin(Client):
    """Makes topics, deletes them and makes them again, and lists groups."""

    async def step(self) -> None:
        for _ in range(4):
            await self.pause(1)
            await self._list_groups()
        name = self.rng.choice(TOPICS)
        await self.look_at_topics()
        if name not in self.topics:
            await self._create(name)
        elif self.rng.random() < 0.3:
            await self._delete(name)
            if self.rng.random() < 0.8:
                await self._create(name)

    async def _list_groups(self) -> None:
        """Ask every broker, without asking for a coordinator first."""
        for _ in range(3):
            answer = await self.ask(ApiKey.LIST_GROUPS, ListGroupsRequest(), ListGroupsResponse)
            if answer is None or not answer.error_code:
                return
            self.refused("list", answer.error_code)
            await self.pause(0.2)

    async def _create(self, name: str) -> None:
        self.world.strike_soon(self.rng.randrange(8))
        self.tell(TopicAsked(self.now, self.name, name, wanted=True))
        topic = CreatableTopic(
            name=name,
            num_partitions=PARTITIONS,
            replication_factor=min(REPLICAS_MAX, len(self.world.brokers)),
            configs=self.world.topic_settings,
        )
        answer = await self.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=(topic,)), CreateTopicsResponse)
        if answer is None:
            return
        if answer.topics[0].error_code:
            self.refused("create", answer.topics[0].error_code)
        else:
            self.topics[name] = answer.topics[0].topic_id
            self.tell(TopicTold(self.now, self.name, name, answer.topics[0].topic_id, self.world.image_offset_known()))

    async def _delete(self, name: str) -> None:
        self.tell(TopicAsked(self.now, self.name, name, wanted=False))
        topics = (DeleteTopicState(name=None, topic_id=self.topics[name]),)  # not another one, if it is done late
        answer = await self.ask(
            ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topics=topics, timeout_ms=3000), DeleteTopicsResponse
        )
        if answer is None:
            return
        if answer.responses[0].error_code:
            self.refused("delete", answer.responses[0].error_code)
        else:
            self.topics.pop(name, None)
            self.tell(TopicTold(self.now, self.name, name, None, self.world.image_offset_known()))
