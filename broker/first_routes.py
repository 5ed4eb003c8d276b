"""The APIs that a broker can answer as soon as it is ready

A start is waited for, and what it costs is loading code, most of it for requests that come once in an hour, or later
than the first records. So routes are loaded in two steps: `FIRST` are what producers and consumers ask at once, and of
the others, groups among them, a start needs to know only that they are there (`LATER`). They are loaded right behind
the start, or with the first request for one of them.

All together are `tidemill.broker.routes.ROUTES`.
"""

from collections.abc import Mapping
from typing import Final

from tidemill.broker.dispatch import LaterRoutes, Route
from tidemill.broker.handlers import (
    api_versions,
    fetch,
    init_producer_id,
    list_offsets,
    metadata,
    produce,
)
from tidemill.core.wire.api import ApiKey

FIRST: Final[tuple[Route, ...]] = (
    *api_versions.ROUTES,
    *produce.ROUTES,
    *fetch.ROUTES,
    *list_offsets.ROUTES,
    *metadata.ROUTES,
    *init_producer_id.ROUTES,
)

_WINDOWS: Final[Mapping[ApiKey, tuple[int, int]]] = {
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.JOIN_GROUP: (0, 9),
    ApiKey.SYNC_GROUP: (0, 5),
    ApiKey.HEARTBEAT: (0, 4),
    ApiKey.LEAVE_GROUP: (0, 5),
    ApiKey.LIST_GROUPS: (0, 5),
    ApiKey.DESCRIBE_GROUPS: (0, 6),
    ApiKey.DELETE_GROUPS: (0, 2),
    ApiKey.OFFSET_COMMIT: (2, 10),
    ApiKey.OFFSET_FETCH: (1, 10),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (1, 6),
    ApiKey.DELETE_RECORDS: (0, 2),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.ALTER_CONFIGS: (0, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (1, 2),
    ApiKey.DESCRIBE_LOG_DIRS: (1, 5),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.ELECT_LEADERS: (0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.OFFSET_DELETE: (0, 0),
    ApiKey.DESCRIBE_QUORUM: (0, 2),
    ApiKey.UPDATE_FEATURES: (0, 2),
    ApiKey.DESCRIBE_CLUSTER: (0, 2),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.UNREGISTER_BROKER: (0, 0),
    ApiKey.LIST_CONFIG_RESOURCES: (0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
    ApiKey.ADD_RAFT_VOTER: (0, 1),
    ApiKey.REMOVE_RAFT_VOTER: (0, 0),
}


def load_later() -> tuple[Route, ...]:
    """The routes behind `LATER`; takes 40 ms the first time, on any thread."""
    from tidemill.broker.routes import LATER_ROUTES

    return LATER_ROUTES


LATER: Final = LaterRoutes(windows=_WINDOWS, load=load_later)
