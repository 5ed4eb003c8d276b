"""structlog without rich

structlog loads rich when it is there, to draw tracebacks with; ours are drawn without it (`log_lines`). In a process
that is one of many, or whose start somebody waits for, that is 25 ms and 4 MB for nothing. So its first act is `load`.
"""

import sys


def load() -> None:
    """Load structlog; it finds no rich, and whoever imports rich afterwards does."""
    if "rich" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment]  # what `import` takes as "there is no such module"
    try:
        import structlog  # noqa: F401
    finally:
        del sys.modules["rich"]
