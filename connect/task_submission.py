"""Tasks that a worker brings to the leader of its group

The worker that runs a connector asks its plugin for tasks, and the leader writes them into the config topic, as it
does everything that all workers must agree on. In between lies one signed call (`POST /connectors/{name}/tasks`,
KIP-507). It is sent until it is taken: whoever sends it asks again while the tasks are still the ones to write, so here
one try is one call, and what came of it. A 403 may mean no more than that one of the two has not read the newest
session key yet.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import quote

import orjson

from tidemill.connect.peer_client import PeerClient, PeerFailure
from tidemill.connect.request_target import Membership, same
from tidemill.connect.signing import MADE_FROM, signed

TIMEOUT_S: Final = 90.0

TOO_LARGE: Final = 413


class NotTaken(Exception):
    """The leader has not taken the tasks, or has not said that it has; it may the next time."""


class NeverTaken(NotTaken):
    """The leader does not take these tasks whenever it is asked."""


class TaskSubmission:
    """Brings tasks to whoever leads."""

    def __init__(
        self, *, group: Membership, peers: PeerClient, key: Callable[[], bytes | None], algorithm: str
    ) -> None:
        self._group = group
        self._peers = peers
        self._key = key
        self._algorithm = algorithm

    async def submit(self, connector: str, tasks: Sequence[Mapping[str, str]], made_from: int) -> None:
        """Have the tasks written that were made of the configuration at `made_from`; raises NotTaken."""
        url, key = self._group.leader_url, self._key()
        if url is None or same(url, self._group.url):
            raise NotTaken("no other worker is known to lead the group")
        if key is None:
            raise NotTaken("no session key has been read from the config topic yet")
        body = orjson.dumps([dict(each) for each in tasks])
        headers = {
            "content-type": "application/json",
            "accept": "application/json",
            MADE_FROM: str(made_from),
            **signed(key, self._algorithm, body),
        }
        path = f"/connectors/{quote(connector, safe='')}/tasks?forward=true"
        try:
            answer = await self._peers.ask(url, "POST", path, headers, body, timeout_s=TIMEOUT_S)
        except PeerFailure as error:
            raise NotTaken(f"{url}: {error}") from error
        if answer.status >= 300:
            failure = NeverTaken if answer.status == TOO_LARGE else NotTaken
            raise failure(f"{url} answers {answer.status}: {_message(answer.body)}")


def _message(body: bytes) -> str:
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError:
        content = None
    message = content.get("message") if isinstance(content, dict) else None
    return str(message)[:1_000] if message is not None else repr(body[:200])
