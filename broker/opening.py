"""A data folder brought up, from the metadata log to the partitions

The order is the point, because a crash may come between any two steps:

    1. the metadata log is replayed; where it is missing beside partitions, the start ends here
    2. after a stop out of order every partition led here gets a new leader epoch, on the disk
    3. folders of partitions that the image does not have make room
    4. the logs are opened, which uses up the mark of a stop in order

A log that lost records which were in memory only appends others at their offsets, but under a leader epoch that no
reader has seen with these offsets (KIP-320). Whoever dies between 2 and 4 finds no mark at the next start either, and
takes a new epoch again; nothing before 4 is able to leave the mark.

Not here: who may start (`tidemill.broker.node`), and what goes on afterwards.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

from tidemill.broker.folders import lost_decisions, set_aside
from tidemill.broker.log.checkpoints import was_closed_in_order
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.data_folder import cannot_use
from tidemill.broker.log.store import LogStore
from tidemill.broker.quorum.controller import Controller
from tidemill.broker.quorum.image import ClusterImage, TopicImage
from tidemill.broker.quorum.store import MetadataCorruptError
from tidemill.core.runtime.disk import Directory

log = structlog.get_logger("tidemill.broker.node")


class StartRefused(Exception):
    """The broker cannot start; the message is one line that says why and what to do."""


@contextmanager
def usable(data_dir: str) -> Iterator[None]:
    """What the disk refuses in the body refuses the folder; raises FolderRefused."""
    try:
        yield
    except OSError as error:
        raise cannot_use(data_dir, error) from error


def open_metadata(data: Directory, controller: Controller, *, alone: bool = True) -> None:
    """Replay the metadata log and begin new leaderships where that is due; raises MetadataCorruptError, OSError.

    Among several that is all that there is to do: what is decided is known from the quorum, and it elects the leaders.
    """
    controller.load()
    if not alone:
        return
    lost = lost_decisions(data, controller.image)
    if lost is not None:
        raise MetadataCorruptError(lost)
    if was_closed_in_order(data):
        return
    begun = controller.begin_leaderships()
    if begun:
        log.info("new leader epochs after a stop out of order", partitions=begun)


def open_logs(
    data: Directory,
    controller: Controller,
    logs: LogStore,
    log_config: Callable[[TopicImage | None], LogConfig],
    new_uuid: Callable[[], uuid.UUID],
    image: ClusterImage | None = None,
) -> None:
    """Open every log that `image` has, the controller's of now if none is given; blocks as long as recovery takes.

    `log_config` is asked once for all topics with the same settings of their own: they share what it says.
    """
    image = image or controller.image
    topics = image.topics
    known: dict[frozenset[tuple[str, str]], LogConfig] = {}

    def config_of(name: str) -> LogConfig:
        topic = topics.get(name)
        own = frozenset(topic.configs.items()) if topic is not None else frozenset()
        config = known.get(own)
        if config is None:
            config = known[own] = log_config(topic)
        return config

    folders = set_aside(data, image, controller.removed_topic_ids, new_uuid)
    for folder in folders.moved:
        log.warning("partition folder moved", folder=folder.name, to=folder.new_name, reason=folder.reason)
    logs.open_all(config_of, folders.known)
