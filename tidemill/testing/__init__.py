"""Real parts for tests: brokers, databases and plugins

`plugin` is loaded by pytest as soon as tidemill is installed: it has the fixtures of brokers and databases.
`postgres_server` is a PostgreSQL of one's own without Docker, `TidemillContainer` the broker's image under
testcontainers. `run_source` and `feed_sink` run a plugin in the test's own process, `conformance` puts it through
what every plugin must do; `ConnectWorker` is what the fixture `tidemill_worker` gives. `VirtualLoop` and
`VirtualNetwork` are an asyncio event loop whose time passes at once and a network that can be cut, for tests of
programs that wait, try again and lose connections. They are imported when they are first used, so that a test run
without them pays nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemill.core.runtime.virtual_network import VirtualNetwork
    from tidemill.core.runtime.virtual_time import VirtualLoop
    from tidemill.testing import conformance
    from tidemill.testing.broker_container import TidemillContainer
    from tidemill.testing.connect_worker import ConnectWorker
    from tidemill.testing.in_process import SinkRun, SourceRun, feed_sink, run_source

__all__ = [
    "ConnectWorker",
    "SinkRun",
    "SourceRun",
    "TidemillContainer",
    "VirtualLoop",
    "VirtualNetwork",
    "conformance",
    "feed_sink",
    "run_source",
]


def __getattr__(name: str) -> Any:
    """Find a name of `__all__`."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "TidemillContainer":
        from tidemill.testing import broker_container

        return broker_container.TidemillContainer
    if name == "ConnectWorker":
        from tidemill.testing import connect_worker

        return connect_worker.ConnectWorker
    if name == "conformance":
        return importlib.import_module("tidemill.testing.conformance")
    if name == "VirtualLoop":
        from tidemill.core.runtime import virtual_time

        return virtual_time.VirtualLoop
    if name == "VirtualNetwork":
        from tidemill.core.runtime import virtual_network

        return virtual_network.VirtualNetwork
    from tidemill.testing import in_process

    return getattr(in_process, name)
