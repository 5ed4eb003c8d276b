"""A producer that is only there while there is something to send

A client of librdkafka has threads that look around several times a second, connections to every broker and memory, also
while nothing is sent; asking its cluster how it is costs as much again. A source may bring nothing for hours, and a
worker may have many of those. So once there was nothing to send for a while, and all is well, client and watch are let
go; the next record brings new ones. Until that is acknowledged it may take half a second, for librdkafka asks for the
producer id of a new client by the clock; what the one before it has sent is acknowledged, so there is nothing that the
two could send twice.
"""

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, Producer

from tidemill.connect.tasks.kafka_watch import KafkaWatch
from tidemill.core.runtime.clock import Clock

REST_AFTER_S = 60.0
"""Without a message in flight. Less, and a source that brings a record every minute would always be connecting."""

UNUSED_AFTER_S = 3.0
"""Without a message in flight; then the cluster is asked seldom how it is. Not if it is as long from one `poll` to the
next: what the client hears by itself would be told as late."""

FAREWELL_S = 1.0  # for what `close` has purged


class RestingProducer:
    """Used like the Producer of confluent-kafka, by one thread; it has no client before `open` or the first record.

    `watch` makes the watch of a client, `failed` hears of errors after which it cannot go on, and `wait` spends the
    time of `poll` while there is no client: seconds, or less when something else is to be done.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        watch: Callable[[Producer], KafkaWatch],
        failed: Callable[[KafkaError], None],
        *,
        clock: Clock,
        wait: Callable[[float], object],
        rest_after_s: float = REST_AFTER_S,
    ) -> None:
        self._config = {**config, "error_cb": self._heard}
        self._make_watch = watch
        self._failed = failed
        self._clock = clock
        self._wait = wait
        self._rest_after_s = rest_after_s
        self._watch: KafkaWatch | None = None
        self._client: Producer | None = None
        self._unused = False  # for long enough for the watch to know
        self._polled_at = clock.monotonic()

    def open(self) -> None:
        """Have a client at once: whoever starts is told if the cluster does not answer, not with the first record."""
        self._awake()

    @property
    def resting(self) -> bool:
        """Whether there is no client."""
        return self._client is None

    def produce(self, topic: str, value: bytes | None = None, key: bytes | None = None, /, **options: Any) -> None:
        """As Producer.produce."""
        self._awake().produce(topic, value, key, **options)

    def produce_batch(self, topic: str, messages: list[dict[str, Any]], /, **options: Any) -> int:
        """As Producer.produce_batch: how many were taken."""
        taken: int = self._awake().produce_batch(topic, messages, **options)
        return taken

    def poll(self, seconds: float) -> None:
        """Have the client call back for up to `seconds`; let it go when it has been of no use for long."""
        client = self._client
        if client is None:
            if seconds > 0:
                self._wait(seconds)
            return
        if seconds > 0 or len(client):  # what it would call back for counts, too
            client.poll(seconds)
        now = self._clock.monotonic()
        unheard_s, self._polled_at = now - self._polled_at, now
        if len(client):
            self._used_at = now
        elif self._watch is not None:
            self._idles(now - self._used_at, unheard_s, self._watch)

    def close(self) -> None:
        """Send nothing more; what is in flight is given up."""
        client = self._client
        if client is not None:
            self._let_go()
            client.purge()
            client.flush(FAREWELL_S)

    def _idles(self, for_s: float, unheard_s: float, watch: KafkaWatch) -> None:
        unused = for_s >= UNUSED_AFTER_S > unheard_s
        if for_s >= self._rest_after_s and watch.well:
            self._let_go()
        elif unused != self._unused:
            self._unused = unused
            (watch.unused if unused else watch.used)()

    def _awake(self) -> Producer:
        if self._client is None:
            self._client = Producer(self._config)
            self._used_at = self._clock.monotonic()
            self._watch = self._make_watch(self._client)
            self._watch.start()
        elif self._unused and self._watch is not None:
            self._used_at = self._clock.monotonic()
            self._watch.used()
        self._unused = False
        return self._client

    def _let_go(self) -> None:
        """The watch's thread may be the last to have the client, and end it where that may take its time."""
        if self._watch is not None:
            self._watch.close()
        self._watch = self._client = None

    def _heard(self, error: KafkaError) -> None:
        if self._watch is not None:
            self._watch.heard(error)
        if error.fatal():
            self._failed(error)
