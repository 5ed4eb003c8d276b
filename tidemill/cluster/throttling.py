"""The throttle of moves: set, and taken away again with the last of them

It is settings of brokers and topics, which stay when the command that has set them is killed. So what is found is told
apart by what it says. A list that names single replicas was made for moves, by this command, one before it or another
tool: it goes when nothing moves any more, and the rates go with it. A list that names all (`*`) is somebody's standing
order: it is neither replaced nor removed. Rates that were there before, without moves, are told and put back.

As long as anything moves, whoever has begun it, the throttle stays.
"""

import contextlib

from tidemill.cluster.moving import RATE_KEYS, Throttles, named, throttled_replicas
from tidemill.cluster.reassigning import Reassigner
from tidemill.core.client.balance import Move, Place
from tidemill.core.client.connection import ConnectionFailed
from tidemill.core.errors import KafkaError
from tidemill.output import complain


class Throttling:
    """Mutable: what one command has set, and what was there before it."""

    def __init__(self, reassigner: Reassigner) -> None:
        self._reassigner = reassigner
        self._before: Throttles | None = None
        self._held: tuple[int, ...] = ()
        self._lists: dict[str, dict[str, str | None]] = {}

    async def begin(self, bytes_per_s: int, moves: tuple[Move, ...]) -> None:
        """Hold these moves back, at every broker that runs; what was set of it is removed if not all can be."""
        found = await self._reassigner.throttles()
        self._before, self._held = found, self._reassigner.running
        if found.rates and not found.of_moves:
            complain(f"{found.told_rates()} was set before: it is put back when nothing moves any more")
        if standing := found.standing:
            complain(f"all replicas of {', '.join(standing)} are throttled for good: that stays, at the new rate")
        try:
            self._lists = found.lists_with(throttled_replicas(moves))
            await self._reassigner.set_lists(self._lists)
            for node in self._held:
                await self._reassigner.set_rates(node, dict.fromkeys(RATE_KEYS, str(bytes_per_s)))
        except (ConnectionFailed, KafkaError):
            await self.give_up()
            raise

    async def give_up(self) -> None:
        """The same as `end` after a failure, as far as it can be done."""
        with contextlib.suppress(ConnectionFailed, KafkaError):
            await self.end()

    async def end(self) -> None:
        """Take away what holds moves back, if there are none any more."""
        if moving := await self._reassigner.ongoing():
            places = [Place(each.topic, each.partition) for each in moving]
            complain(f"the throttle stays: {named(places)} is on the move still")
            return
        found = await self._reassigner.throttles()
        brokers = 0
        for node, settings in self._rates_after(found).items():
            try:
                await self._reassigner.set_rates(node, settings)
                brokers += 1
            except (ConnectionFailed, KafkaError) as error:
                complain(f"the rates of broker {node} stay ({error}): they mean nothing while no replica is named")
        own = {topic: dict.fromkeys(settings) for topic, settings in self._lists.items()}  # asked or not heard of yet
        lists = {**own, **{topic: own.get(topic, {}) | settings for topic, settings in found.lists_without().items()}}
        await self._reassigner.set_lists(lists)
        self._before, self._held, self._lists = None, (), {}
        if brokers or lists:
            print(f"throttle removed: {brokers} brokers, {len(lists)} topics")

    def _rates_after(self, found: Throttles) -> dict[int, dict[str, str | None]]:
        before = self._before
        if before is not None:
            kept = {} if before.of_moves and not before.standing else before.rates
            return {node: {key: kept.get(node, {}).get(key) for key in RATE_KEYS} for node in self._held}
        if not found.of_moves:
            return {}
        if found.standing:
            complain(f"{', '.join(found.standing)}: all replicas are throttled for good, so the brokers' rates stay")
            return {}
        return {node: dict.fromkeys(RATE_KEYS) for node in found.rates}
