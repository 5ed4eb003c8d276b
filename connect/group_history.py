"""What the workers of a group remember of a connector, as one answer

Every worker remembers what it has run itself (`herder.history`), and an instance wanders from one to another. Whoever
is asked asks all others, at the same time, marked as a request that goes no further, and puts together what they say.
Who does not answer in time is named in the answer with the reason, and so is since when each of the others knows: what
is missing is missing visibly.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final
from urllib.parse import quote, unquote

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import ValidationError

from tidemill.connect.entities import ConnectorHistory, ErrorMessage, HistoryOfWorker, InstanceHistory, RunInfo, body
from tidemill.connect.herder.history import RUNS_MAX
from tidemill.connect.operations import Operations
from tidemill.connect.peer_client import PeerAnswer, PeerClient, PeerFailure
from tidemill.connect.request_target import Hop, hop_of, marked, same

ASK_TIMEOUT_S: Final = 5.0
"""For an answer from memory, with the sign of life before it."""

PASSED_ON: Final = ("authorization", "accept")
"""Headers that go to the other workers with a question."""


class GroupHistory:
    """Asks the workers of a group; `urls` are those of the members that this one knows."""

    def __init__(self, peers: PeerClient, urls: Callable[[], Collection[str]]) -> None:
        self._peers = peers
        self._urls = urls

    async def whole(self, own: ConnectorHistory, headers: Mapping[str, str]) -> ConnectorHistory:
        """This worker's answer and those of all others."""
        here = own.workers[0].url
        others = sorted(url for url in self._urls() if not same(url, here))
        found = await asyncio.gather(*(self._ask(url, own.name, headers) for url in others))
        return merged([own, *found])

    async def _ask(self, url: str, name: str, headers: Mapping[str, str]) -> ConnectorHistory:
        target = f"/tidemill/connectors/{quote(name, safe='')}/history?{marked('', Hop.LAST)}"
        try:
            answer = await self._peers.ask(url, "GET", target, headers, b"", timeout_s=ASK_TIMEOUT_S)
        except PeerFailure as error:
            return _nothing(name, url, str(error))
        return _understood(answer, name, url)


def _understood(answer: PeerAnswer, name: str, url: str) -> ConnectorHistory:
    if answer.status == 404:
        return _nothing(name, url, "it keeps no history, as Apache's workers do not (status 404)")
    if answer.status != 200:
        return _nothing(name, url, f"it answers with status {answer.status}")
    try:
        return ConnectorHistory.model_validate_json(answer.body)
    except ValidationError:
        return _nothing(name, url, "its answer is not understood: it may be of another version")


def _nothing(name: str, url: str, problem: str) -> ConnectorHistory:
    silent = HistoryOfWorker(url=url, problem=problem)
    return ConnectorHistory(name=name, workers=(silent,), connector=InstanceHistory(), tasks=())


def merged(histories: Sequence[ConnectorHistory]) -> ConnectorHistory:
    """The histories of one connector from several workers, of which there is one at least; the last runs of each."""
    every = [instance for each in histories for instance in each.tasks]
    tasks = sorted({instance.id for instance in every if instance.id is not None})
    return ConnectorHistory(
        name=histories[0].name,
        workers=tuple(sorted(chain.from_iterable(each.workers for each in histories), key=lambda worker: worker.url)),
        connector=InstanceHistory(runs=_last(each.connector for each in histories)),
        tasks=tuple(
            InstanceHistory(id=task, runs=_last(instance for instance in every if instance.id == task))
            for task in tasks
        ),
    )


def _last(instances: Iterable[InstanceHistory]) -> tuple[RunInfo, ...]:
    runs = chain.from_iterable(instance.runs for instance in instances)
    return tuple(sorted(runs, key=lambda run: (run.generation, run.started))[-RUNS_MAX:])


# ------------------------------------------------------------------------ HTTP


def routes(group: GroupHistory) -> APIRouter:
    """The REST API's part of it."""
    router = APIRouter(prefix="/tidemill/connectors", tags=["connectors"])

    @router.get(
        "/{connector}/history",
        response_model=ConnectorHistory,
        responses={404: {"model": ErrorMessage, "description": "There is no such connector."}},
    )
    async def history(connector: str, request: Request) -> Response:
        """Starts and ends of the connector and its tasks, the last 20 of each, from all workers. Not in Apache's."""
        operations: Operations = request.app.state.operations
        name = unquote(connector)
        if hop_of(request.url.query) is not Hop.FIRST:
            return JSONResponse(body(operations.history(name)))
        operations.info(name)  # of one that does not exist there is nothing to tell
        headers = {each: value for each in PASSED_ON if (value := request.headers.get(each)) is not None}
        return JSONResponse(body(await group.whole(operations.history(name), headers)))

    return router
