"""Whether the Kafka cluster answers, and has the topics of a task

A client that has lost its cluster waits and says nothing for long: a producer for ever, a consumer as if there were
nothing to read. So a thread asks the cluster now and then, with the task's credentials, and says as problems of the
task what it hears: nobody answers, a topic is not there, a partition has no leader. It asks more often while there is
trouble, so that the end is heard soon, too, and less and less while all is well. A client that nobody uses is asked
seldom: what has gone is in nobody's way, and it is asked at once when it is used again.

An error that the client reports itself is no problem yet, brokers come and go; it only has the cluster asked at once,
and its words are quoted when there is no answer.
"""

import threading
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException

from tidemill.connect.tasks.control import TaskControl
from tidemill.connect.tasks.kafka_clients import explain, kafka_error

ASK_S = 2.0
ASK_RARELY_S = 4.0  # when all has been well for long; what has gone is to be told within five seconds
ASK_UNUSED_S = 30.0  # when all is well and the client not used
ASK_IN_TROUBLE_S = 0.5
PAUSE_S = 0.2  # between two rounds, however often the client complains
ANSWER_S = 1.5
TOPICS_PER_ROUND = 5  # of those a task uses, in turn: it may use thousands

CLUSTER = "cluster"


class AsksForTopics(Protocol):
    """A producer, consumer or admin client of confluent-kafka."""

    def list_topics(self, topic: str, timeout: float) -> Any: ...


class KafkaWatch:
    """Asks until it is closed; `topics` are those in use, read on the watch's own thread."""

    def __init__(
        self,
        client: AsksForTopics,
        control: TaskControl,
        bootstrap: str,
        topics: Callable[[], Iterable[str]],
        *,
        reading: bool = False,
    ) -> None:
        self._client = client
        self._control = control
        self._bootstrap = bootstrap
        self._topics = topics
        self._reading = reading  # what helps with a topic is another thing for who writes to it
        self._words = ""  # what the client said last
        self._suspects: set[str] = set()  # topics with a problem, asked about in every round
        self._well = False
        self._unused = False
        self._next = 0  # where in the list of topics the next round begins
        self._ask_s = ASK_S
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._saying = threading.Lock()  # nothing is said once `close` has returned
        self._thread = threading.Thread(target=self._run, name="kafka watch", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    @property
    def well(self) -> bool:
        """Whether the cluster has answered, last time it was asked, and had all that was asked for."""
        return self._well

    def unused(self) -> None:
        """Ask seldom from now on: the client has nothing to do."""
        self._unused = True

    def used(self) -> None:
        """Ask at once, and often: it has."""
        self._unused = False
        self._wake.set()

    def heard(self, error: KafkaError) -> None:
        """Take in an error that the client reported by itself."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # that one only counts them
            self._words = error.str()
        self._wake.set()

    def close(self) -> None:
        """Ask no more, and take back what was said.

        The thread is not waited for: with the cluster away, it may be asking for a while yet. It lets go of the client
        when it ends.
        """
        with self._saying:
            self._closing.set()
            for about in (CLUSTER, *map(_about, tuple(self._suspects))):
                self._control.problem(about, None)
        self._wake.set()

    def _run(self) -> None:
        disturbed = True  # a new client may have troubles to tell of
        while not (self._closing.wait(PAUSE_S) if disturbed else self._closing.is_set()):
            self._well = well = self._ask()
            disturbed = self._wake.wait(self._pause_s)
            self._ask_s = ASK_S if disturbed or not well else min(self._ask_s + 1, ASK_RARELY_S)
            self._wake.clear()
        del self._client  # if nobody else has it, it is closed here, where that may take its time

    @property
    def _pause_s(self) -> float:
        if not self._well:
            return ASK_IN_TROUBLE_S
        return ASK_UNUSED_S if self._unused else self._ask_s

    def _ask(self) -> bool:
        """One round; whether all is well."""
        for topic in self.chosen():
            try:
                found = self._client.list_topics(topic, timeout=ANSWER_S).topics[topic]
            except KafkaException as error:
                words = self._words or kafka_error(error).str()
                self._say(CLUSTER, f"the Kafka cluster at {self._bootstrap} does not answer: {words}")
                return False
            except RuntimeError:  # the client was closed meanwhile
                return True
            self._words = ""
            self._say(CLUSTER, None)
            self._judge(topic, found)
        return not self._suspects

    def chosen(self) -> list[str]:
        """The topics to ask about this time: those in trouble, and some of the others in turn."""
        topics = list(self._topics())
        start = self._next % max(1, len(topics))
        number = min(TOPICS_PER_ROUND, len(topics))
        turn = islice([*topics[start:], *topics[:start]], number)
        self._next = start + number
        gone = self._suspects.difference(topics)
        for topic in gone:
            self._clear(topic)
        return list(dict.fromkeys([*self._suspects, *turn]))

    def _judge(self, topic: str, found: Any) -> None:
        if found.error is not None:
            trouble = explain(found.error, f"topic {topic}", reading=self._reading)
        else:
            leaderless = sorted(each.id for each in found.partitions.values() if each.leader < 0)
            named = ", ".join(map(str, leaderless[:10]))
            trouble = f"topic {topic}: no leader for partition {named}" if leaderless else ""
        if not trouble:
            self._clear(topic)
        else:
            self._suspects.add(topic)
            self._say(_about(topic), trouble)

    def _clear(self, topic: str) -> None:
        self._suspects.discard(topic)
        self._say(_about(topic), None)

    def _say(self, about: str, message: str | None) -> None:
        with self._saying:
            if not self._closing.is_set():
                self._control.problem(about, message)


def _about(topic: str) -> str:
    return f"topic {topic}"
