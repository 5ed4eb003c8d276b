"""Whether a broker's process is there, as its connections tell

A process that dies closes its connections, however it died. So every controller keeps one to each broker that is not
fenced; when it is lost it is asked for again, and where nobody listens any more the broker is gone, long before its
session is over. What does not answer at all (a machine that is off, a network that is cut, a process that is paused)
proves nothing: sessions are for that. Nor does a broker that was never reached from here.

That a broker is gone is no more than a hint to look after it now: one that is there after all says so with its next
heartbeat, and is reached before it can be missed again.

From the loss of a connection until it is there again, for about two seconds at most, the broker is missed: a client
that asks who leads in that moment has just lost its own, and is better told that nobody does than to go back there.
After that it is the image alone that says who leads, for it may be that only this node is refused.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from tidemill.broker.quorum.delta import ImageDelta
from tidemill.broker.quorum.image import ClusterImage
from tidemill.core.client.connection import Address
from tidemill.core.runtime.net import Dialer, HandshakeFailed

log = structlog.get_logger("tidemill.broker.quorum")

REFUSALS: Final = 3
"""So often in a row nobody listens before a broker is gone."""

AGAIN_S: Final = 0.05
"""Between two refusals."""

LATER_S: Final = 2.0
"""Before a broker is tried again that cannot be reached, or was not yet."""

BRIEF_S: Final = 0.2
"""Two in a row that are lost sooner were sent away: a listener that is full does that, and one that wants a certificate
which this node does not have. It proves no more than silence does."""

RENEW_S: Final = 240.0
"""So long a connection is kept. A broker closes what is idle (connections.max.idle.ms), and would be missed then."""

Incarnation = tuple[int, int]
"""Node id and broker epoch."""


class Vigil:
    """`run` is the owner's to call, `hear` is told of every image; `gone` names whom the controller misses."""

    def __init__(self, node_id: int, dialer: Dialer, address_of: Callable[[int], Address | None]) -> None:
        self._node_id = node_id
        self._dialer = dialer
        self._address_of = address_of
        self._wanted: set[Incarnation] = set()
        self._changed = asyncio.Event()
        self._missed: set[Incarnation] = set()
        self.gone: set[Incarnation] = set()
        self.news = asyncio.Event()
        """Set when somebody is gone; whoever looks clears it."""

    def misses(self, node_id: int) -> bool:
        """Whether nobody is where that broker was a moment ago."""
        return bool(self._missed) and any(node == node_id for node, _epoch in self._missed)

    def hear(self, delta: ImageDelta) -> None:
        """The metadata has changed."""
        self.see(delta.after)

    def see(self, image: ClusterImage) -> None:
        """Keep an eye on the brokers of this image that are not fenced."""
        wanted = {
            (node, broker.epoch)
            for node, broker in image.brokers.items()
            if node != self._node_id and not broker.fenced
        }
        if wanted != self._wanted:
            self._wanted = wanted
            self.gone &= wanted
            self._missed &= wanted
            self._changed.set()

    async def run(self) -> None:
        """Watch, until cancelled."""
        watching: dict[Incarnation, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                self._changed.clear()
                for incarnation in watching.keys() - self._wanted:
                    watching.pop(incarnation).cancel()
                for incarnation in self._wanted - watching.keys():
                    watching[incarnation] = group.create_task(self._watch(incarnation))
                await self._changed.wait()

    async def _watch(self, incarnation: Incarnation) -> None:
        reached, refusals, brief, told = False, 0, 0, ""
        loop = asyncio.get_running_loop()
        while refusals < REFUSALS:
            since_s = loop.time()
            try:
                await self._hold(incarnation)
            except ConnectionRefusedError:
                refusals += reached
                await asyncio.sleep(AGAIN_S if reached else LATER_S)
            except OSError as error:  # silence proves nothing
                refusals = 0
                self._missed.discard(incarnation)
                if isinstance(error, HandshakeFailed) and told != str(error):
                    told = str(error)
                    log.warning("a broker's process cannot be watched: TLS", broker_id=incarnation[0], reason=told)
                await asyncio.sleep(LATER_S)
            else:
                reached, refusals = True, 0
                brief = brief + 1 if loop.time() - since_s < BRIEF_S else 0
                if brief > 1:  # it is let in and sent away, which may go on for a while
                    self._missed.discard(incarnation)
                    await asyncio.sleep(LATER_S)
        log.warning("nobody listens where a broker was", broker_id=incarnation[0], broker_epoch=incarnation[1])
        self.gone.add(incarnation)
        self.news.set()
        await asyncio.sleep(
            LATER_S
        )  # by then it is fenced, or the controller finds it where it cannot be reached from here
        self._missed.discard(incarnation)

    async def _hold(self, incarnation: Incarnation) -> None:
        """Have a connection until it is lost, or old; raises OSError where none is to be had."""
        address = self._address_of(incarnation[0])
        if address is None:
            raise OSError(f"no address of broker {incarnation[0]} is known")
        lost = asyncio.Event()

        def miss(_error: Exception | None) -> None:
            if incarnation in self._wanted and not lost.is_set():
                self._missed.add(incarnation)
            lost.set()

        async with asyncio.timeout(LATER_S):  # its TimeoutError is an OSError
            stream = await self._dialer.dial(address.host, address.port, _nothing, miss)
        self._missed.discard(incarnation)
        try:
            async with asyncio.timeout(RENEW_S):
                await lost.wait()
        except TimeoutError:
            pass
        finally:
            lost.set()  # it is not the broker that ends it
            stream.close()


def _nothing(_frame: bytearray) -> None:
    """Nothing was asked."""
