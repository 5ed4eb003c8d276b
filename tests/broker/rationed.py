"""Quotas that say how long to wait, and remember what was used"""

from collections import defaultdict

from tidemill.broker.authorization import Requester
from tidemill.broker.quotas import Quota


class Rationed:
    """Whoever uses one of `waits_ms` waits for so long."""

    def __init__(self, waits_ms: dict[Quota, int]) -> None:
        self._waits_ms = waits_ms
        self.used: defaultdict[Quota, list[float]] = defaultdict(list)
        self.who: set[tuple[str, str, str | None]] = set()

    def charge(self, quota: Quota, amount: float, who: Requester, client_id: str | None) -> int:
        self.used[quota].append(amount)
        self.who.add((str(who.principal), who.client_host, client_id))
        return self._waits_ms.get(quota, 0)
