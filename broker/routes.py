"""The route table: every API that this broker answers

One row per API, brought by the handler module of its family. What is not in this table is neither advertised nor
served.
"""

from tidemill.broker.dispatch import Route
from tidemill.broker.first_routes import FIRST
from tidemill.broker.handlers import (
    cluster,
    configs,
    delete_records,
    describe_producers,
    describe_quorum,
    elect_leaders,
    groups,
    log_dirs,
    offset_delete,
    offset_for_leader_epoch,
    offsets,
    raft_voters,
    reassignments,
    topics,
    update_features,
)

LATER_ROUTES: tuple[Route, ...] = (
    *groups.ROUTES,
    *offsets.ROUTES,
    *describe_producers.ROUTES,
    *offset_for_leader_epoch.ROUTES,
    *delete_records.ROUTES,
    *topics.ROUTES,
    *configs.ROUTES,
    *cluster.ROUTES,
    *offset_delete.ROUTES,
    *log_dirs.ROUTES,
    *elect_leaders.ROUTES,
    *reassignments.ROUTES,
    *describe_quorum.ROUTES,
    *update_features.ROUTES,
    *raft_voters.ROUTES,
)

ROUTES: tuple[Route, ...] = (*FIRST, *LATER_ROUTES)
