"""The settings of a new cluster's nodes, one file for each

All nodes of a cluster have the same `cluster.id` and the same voters, and each its own id, listeners and folder: what
is easy to get wrong by hand is written here once. Every node is broker and controller; of more than five the first five
are controllers, since each one more makes every decision slower. Or some nodes are controllers only and all others
brokers only.

The voters are written into every file, for good. A dynamic quorum has the addresses of the first ones there instead,
and the voters themselves in its log: each of them is formatted with the same list.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidemill.core.ids import encode_id

NODES_MIN: Final = 3
CONTROLLERS_MAX: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """Where one node will be."""

    node_id: int
    host: str
    port: int
    controller_port: int
    log_dirs: str
    controls: bool
    serves: bool = True

    @property
    def address(self) -> str:
        """Where clients find it, or the other controllers if it has no clients."""
        return f"{self.host}:{self.port if self.serves else self.controller_port}"


def new_cluster_id() -> str:
    """A random id as Kafka's tools make one; never with a `-` in front, which a shell's command takes for an option."""
    while True:
        text = encode_id(uuid.uuid4())
        if not text.startswith("-"):
            return text


def plan(
    hosts: Sequence[str], *, port: int, controller_port: int, log_dirs: str, controllers: Sequence[str] = ()
) -> list[NodePlan]:
    """A node on each of `hosts`, ids from 1; a host that is named again has the next two ports for each time.

    With `controllers` these come behind them as nodes that are that only, and the others are brokers only.
    """
    seen: dict[str, int] = {}
    found = []
    for node_id, host in enumerate((*hosts, *controllers), 1):
        again = seen.get(host, 0)
        seen[host] = again + 1
        serves = node_id <= len(hosts)
        found.append(
            NodePlan(
                node_id=node_id,
                host=host,
                port=port + 2 * again,
                controller_port=controller_port + 2 * again,
                log_dirs=f"{log_dirs.rstrip('/')}/node-{node_id}",
                controls=not serves if controllers else node_id <= controllers_of(len(hosts)),
                serves=serves,
            )
        )
    return found


def first_clash(nodes: Sequence[NodePlan]) -> str:
    """An address that two listeners would have, empty if there is none."""
    taken = set()
    for node in nodes:
        for port in (*([node.port] if node.serves else []), node.controller_port):
            if (node.host, port) in taken:
                return f"{node.host}:{port}"
            taken.add((node.host, port))
    return ""


def controllers_of(nodes: int) -> int:
    """How many of them agree on the metadata: an odd number, as an even one survives no more than the one below."""
    return min(CONTROLLERS_MAX, nodes - (nodes + 1) % 2)


def initial_controllers(controllers: Sequence[NodePlan]) -> str:
    """These as the first voters, each with a new id for its folder, as `tidemill broker format` takes them."""
    return ",".join(f"{each.node_id}@{each.host}:{each.controller_port}:{new_cluster_id()}" for each in controllers)


def server_properties(node: NodePlan, nodes: Sequence[NodePlan], cluster_id: str, *, dynamic: bool = False) -> str:
    """The file of `node`, one of `nodes`."""
    deciding = [each for each in nodes if each.controls]
    voters = "controller.quorum.voters=" + ",".join(
        f"{each.node_id}@{each.host}:{each.controller_port}" for each in deciding
    )
    if dynamic:
        voters = "controller.quorum.bootstrap.servers=" + ",".join(
            f"{each.host}:{each.controller_port}" for each in deciding
        )
    listeners = [
        *([f"PLAINTEXT://{node.host}:{node.port}"] if node.serves else []),
        *([f"CONTROLLER://{node.host}:{node.controller_port}"] if node.controls else []),
    ]
    roles = [*(["broker"] if node.serves else []), *(["controller"] if node.controls else [])]
    rack = "# broker.rack= the zone or rack of this machine, so that no two replicas share one\n" if node.serves else ""
    return (
        f"# Node {node.node_id} of {len(nodes)}: tidemill broker start --config FILE\n"
        f"node.id={node.node_id}\n"
        f"process.roles={','.join(roles)}\n"
        f"cluster.id={cluster_id}\n"
        f"{voters}\n"
        "controller.listener.names=CONTROLLER\n"
        f"listeners={','.join(listeners)}\n"
        f"log.dirs={node.log_dirs}\n"
        f"{rack}"
    )
