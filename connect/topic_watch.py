"""Whether the topics of a worker are still those that it has read

A topic that was deleted and made anew under its old name is another one: what was read of the first stands nowhere any
more, and a worker that starts now has never heard of it. The cluster gives every topic an id, which no other has after
it. It is asked for before the topics are read and every few seconds for as long as the worker runs; so a worker knows
within that time, even if nobody writes into the new topic and it has more records than the old one had.

A topic that is not there is a problem and no more than that: a broker that has just started may not know it yet. So is
another one without a `give_up`. Where no ids are told (clusters before Kafka 2.8), only whoever reads a topic can
notice, when what it reads goes back (`topic_log`).
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeAlias

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, TopicDescription  # type: ignore[attr-defined]  # as in `topic_log`

from tidemill.connect.problem import Problem, joined
from tidemill.connect.topic_log import Settings, TopicLogError, admin_client, another_topic

log = structlog.get_logger("tidemill.connect.topic_watch")

LOOK_S: Final = 5.0
"""Between two looks: each is one small request."""

ANSWER_S: Final = 10.0
"""How long an answer is waited for."""

FIRST_S: Final = 0.2
FIRST_LOOKS: Final = 25
"""At the start a topic that was just created may not be known to every broker."""

MISSING: Final = ""
"""Instead of an id."""

Ask: TypeAlias = Callable[[Sequence[str]], Awaitable[Mapping[str, str]]]
"""Returns the id of each topic, `MISSING` where there is none of the name, and nothing of what is not known."""

GiveUp: TypeAlias = Callable[[TopicLogError], None]


class TopicWatch:
    """Watches some topics; `give_up` of each is called once if it has become another one."""

    def __init__(self, ask: Ask, topics: Mapping[str, GiveUp | None], now_ms: Callable[[], int]) -> None:
        self._ask = ask
        self._topics = topics
        self._now_ms = now_ms
        self._ids: dict[str, str] = {}  # as they were before anything was read
        self._problems: dict[str, Problem] = {}
        self._told: set[str] = set()  # topics that are others

    @property
    def problem(self) -> Problem | None:
        """What is wrong with the topics."""
        return joined(self._problems.values())

    async def begin(self) -> None:
        """Learn which topics these are; to be called before they are read."""
        for _ in range(FIRST_LOOKS):
            found = await self._ask(list(self._topics))
            self._ids |= {topic: name for topic, name in found.items() if name != MISSING and topic not in self._ids}
            if MISSING not in found.values():
                return
            await asyncio.sleep(FIRST_S)

    async def keep(self) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Look once."""
        for topic, found in (await self._ask(list(self._topics))).items():
            if found == MISSING:
                self._trouble(topic, f"topic {topic!r} is not there any more")
            elif found != self._ids.setdefault(topic, found):
                self._another(topic, found)
            elif topic not in self._told:
                self._problems.pop(topic, None)

    def _trouble(self, topic: str, message: str) -> None:
        known = self._problems.get(topic)
        if topic in self._told or (known is not None and known.message == message):
            return
        self._problems[topic] = Problem(message=message, since_ms=self._now_ms())
        log.error("a topic is not what it was", topic=topic, reason=message)

    def _another(self, topic: str, found: str) -> None:
        error = another_topic(topic, f"its id was {self._ids[topic]} and is {found}")
        self._trouble(topic, str(error))
        give_up = self._topics[topic]
        if give_up is not None and topic not in self._told:
            give_up(error)
        self._told.add(topic)


class TopicIds:
    """Asks a cluster for the ids of topics."""

    def __init__(self, client: Settings) -> None:
        self._admin: AdminClient | None = admin_client({**client, "log_level": "0"})

    async def __call__(self, topics: Sequence[str]) -> Mapping[str, str]:
        """An `Ask`."""
        if self._admin is None:
            return {}
        try:
            asked = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=ANSWER_S)
        except KafkaException:
            return {}
        answers = await asyncio.gather(*map(asyncio.wrap_future, asked.values()), return_exceptions=True)
        ids = {topic: _identity(answer) for topic, answer in zip(asked, answers, strict=True)}
        return {topic: identity for topic, identity in ids.items() if identity is not None}

    def close(self) -> None:
        """Let go of the client, on a thread that may wait for those of the client."""
        admin, self._admin = self._admin, None
        if admin is not None:
            arguments = [admin]
            del admin
            threading.Thread(target=arguments.clear, name="close topic ids", daemon=True).start()


def _identity(answer: "TopicDescription | BaseException") -> str | None:
    """The id; None if it is not known."""
    if isinstance(answer, KafkaException):
        return MISSING if answer.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART else None
    if isinstance(answer, BaseException):
        return None
    identity = str(answer.topic_id)
    return identity if identity.strip("A=") else None  # zeros: the cluster has no ids
