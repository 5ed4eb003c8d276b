"""What a process of tasks logs, as lines that its worker logs again

One JSON object a line, whatever the worker's own format: it reads them and makes them lines of its own. What a plugin
says by way of Python's `logging` goes the same way, so that it keeps its level, its logger's name and its stack: from
INFO on what the plugin's own package says, from WARNING on what the libraries say. A plugin that has given the root
logger a handler of its own has it its own way.
"""

import logging
from typing import TextIO

import structlog


def configure(out: TextIO) -> None:
    """Have all that is logged in this process written to `out`."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
    ]
    last: list[structlog.typing.Processor] = [
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(),
    ]
    structlog.configure(processors=[*shared, *last], logger_factory=structlog.PrintLoggerFactory(out))
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING)


def tell_more_of(plugin: str) -> None:
    """Have the package of the plugin at `module:attribute` heard from INFO on, unless it has set a level itself."""
    logger = logging.getLogger(plugin.partition(":")[0].partition(".")[0])
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)
