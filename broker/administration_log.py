"""One line in the log for every administrative act

What was done, to what, and who asked for it. A request may name thousands of topics, so a line has the first few names
and how many there were. Only what was done is logged; what was refused is in the answer.
"""

from collections.abc import Iterable
from itertools import islice

import structlog

from tidemill.broker.dispatch import RequestContext
from tidemill.broker.principals import ANONYMOUS

log = structlog.get_logger("tidemill.broker.administration")

NAMES_SHOWN = 10
CLIENT_ID_CHARACTERS_SHOWN = 100


def tell(act: str, names: Iterable[str], ctx: RequestContext, **facts: object) -> None:
    """Log `act` if it was done to anything."""
    iterator = iter(names)
    shown = list(islice(iterator, NAMES_SHOWN))
    if not shown:
        return
    more = sum(1 for _ in iterator)
    if ctx.principal is not ANONYMOUS:
        facts["principal"] = str(ctx.principal)
    log.info(
        act,
        names=", ".join(shown) + (f" and {more} more" if more else ""),
        client=ctx.client_host,
        client_id=(ctx.client_id or "")[:CLIENT_ID_CHARACTERS_SHOWN],
        **facts,
    )
