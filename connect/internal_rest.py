"""What workers ask of one another over the REST API, and nobody else

Two calls of Kafka's workers (InternalClusterResource), for requests only that are signed with the group's session key
(`signing`): `POST /connectors/{name}/tasks` brings the leader the tasks that a connector's plugin made on the worker
which runs it, and `PUT /connectors/{name}/fence` asks it to end the producers of earlier tasks, which only exactly-once
sources need. Both are the leader's; whoever else gets one passes it on (`forwarding`).

The signature is looked at before the body is understood: nobody without the key has anything parsed.

Ours says in a header which version of the configuration the tasks were made from; the leader refuses what was made from
another one (409). Java's workers do not say it, and are believed.
"""

from collections.abc import Mapping
from typing import Annotated
from urllib.parse import unquote

import orjson
from fastapi import APIRouter, Depends, Request, Response

from tidemill.connect.operations import Operations, RestError
from tidemill.connect.rest import Parts, read_body
from tidemill.connect.signing import MADE_FROM, judge

internal = APIRouter(prefix="/connectors", include_in_schema=False)


async def _signed_body(request: Request) -> bytes:
    """The body of a request that another worker has made; refused for everybody else."""
    content = await read_body(request)
    parts: Parts = request.app.state.parts
    refusal = judge(request.headers, content, parts.session_key(), parts.verification)
    if refusal is not None:
        raise RestError(refusal.status, refusal.message)
    return content


SignedBody = Annotated[bytes, Depends(_signed_body)]


@internal.post("/{connector}/tasks")
async def submit_tasks(connector: str, body: SignedBody, request: Request) -> Response:
    """Take the tasks of a connector that another worker runs."""
    operations: Operations = request.app.state.operations
    made_from = request.headers.get(MADE_FROM, "")
    known = made_from.isascii() and made_from.isdigit() and len(made_from) < 20
    await operations.submit_tasks(unquote(connector), _tasks(body), int(made_from) if known else None)
    return Response(status_code=204)


@internal.put("/{connector}/fence")
async def fence(connector: str, body: SignedBody, request: Request) -> Response:
    """Refuse, in Kafka's words where there are some: no source delivers exactly once here."""
    operations: Operations = request.app.state.operations
    name = unquote(connector)
    if operations.info(name).type != "source":
        raise RestError(400, f"Connector {name} is not a source connector")
    raise RestError(501, "This worker leads the group and knows no exactly-once sources: there is nothing to fence.")


def _tasks(body: bytes) -> tuple[Mapping[str, str], ...]:
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RestError(400, f"The body is not JSON: {error}") from None
    if not isinstance(content, list) or not all(isinstance(each, dict) for each in content):
        raise RestError(400, "The body must be a list of task configurations")
    # Java's maps may hold null; a setting without a value is no setting.
    tasks = tuple({name: value for name, value in each.items() if value is not None} for each in content)
    if not all(isinstance(value, str) for each in tasks for value in each.values()):
        raise RestError(400, "The settings of a task must be strings")
    return tasks
