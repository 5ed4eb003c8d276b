"""The route table: every API that this broker answers

One row per API, brought by the handler module of its family. What is not in this table is neither advertised nor
served.
"""

from tidemill.broker.dispatch import Route
from tidemill.broker.handlers import (
    api_versions,
    cluster,
    configs,
    delete_records,
    describe_producers,
    describe_quorum,
    elect_leaders,
    fetch,
    groups,
    init_producer_id,
    list_offsets,
    log_dirs,
    metadata,
    offset_delete,
    offset_for_leader_epoch,
    offsets,
    produce,
    reassignments,
    topics,
    update_features,
)

ROUTES: tuple[Route, ...] = (
    *api_versions.ROUTES,
    *produce.ROUTES,
    *fetch.ROUTES,
    *list_offsets.ROUTES,
    *metadata.ROUTES,
    *init_producer_id.ROUTES,
    *describe_producers.ROUTES,
    *offset_for_leader_epoch.ROUTES,
    *delete_records.ROUTES,
    *topics.ROUTES,
    *configs.ROUTES,
    *cluster.ROUTES,
    *groups.ROUTES,
    *offsets.ROUTES,
    *offset_delete.ROUTES,
    *log_dirs.ROUTES,
    *elect_leaders.ROUTES,
    *reassignments.ROUTES,
    *describe_quorum.ROUTES,
    *update_features.ROUTES,
)
