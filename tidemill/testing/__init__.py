"""Real parts for tests: brokers, databases and plugins

`plugin` is loaded by pytest as soon as tidemill is installed: it has the fixtures of brokers and databases.
`postgres_server` is a PostgreSQL of one's own without Docker. `run_source` and `feed_sink` run a plugin in the test's
own process; they are imported when they are first used, so that a test run without them pays nothing.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemill.testing.in_process import SinkRun, SourceRun, feed_sink, run_source

__all__ = ["SinkRun", "SourceRun", "feed_sink", "run_source"]


def __getattr__(name: str) -> Any:
    """Find a name of `__all__`."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tidemill.testing import in_process

    return getattr(in_process, name)
