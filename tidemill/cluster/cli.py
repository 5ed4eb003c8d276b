"""The command: how several brokers are together, and files of new ones

`status` looks at any Kafka cluster and ends with 1 if something is wrong with it, so that a script may wait for a
cluster to be well: between two restarts of a rolling one, for instance.
"""

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tidemill.bootstrap import read_command_config, unreachable
from tidemill.cluster.asking import ask_status
from tidemill.cluster.files import NODES_MIN, controllers_of, first_clash, new_cluster_id, plan, server_properties
from tidemill.cluster.status import BrokerStatus, ClusterStatus, ControllerStatus, problems
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.client.connection import ConnectionFailed
from tidemill.core.client.security import dialer_of
from tidemill.core.errors import KafkaError
from tidemill.core.runtime.clock import SystemClock
from tidemill.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, CommandConfig
from tidemill.output import complain, fail, new_table, print_json, print_table

ANSWER_TIMEOUT_MS = 10_000

app = typer.Typer(help="Look at a cluster, and make the files of one.", no_args_is_help=True, add_completion=False)


@app.command()
def status(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, command_config: CommandConfig = None, as_json: AsJson = False
) -> None:
    """Brokers, controllers and partitions, and what is wrong with them; exit status 1 if anything is."""
    try:
        dialer = dialer_of(read_command_config(command_config))
    except ValueError as error:
        fail(str(error), 2)

    async def ask() -> ClusterStatus:
        async with ClusterClient(
            bootstrap, client_id="tidemill-cluster", dialer=dialer, call_timeout_ms=ANSWER_TIMEOUT_MS
        ) as client:
            return await ask_status(client, SystemClock().now_ms())

    try:
        found = asyncio.run(ask())
    except ValueError as error:
        fail(str(error), 2)
    except ConnectionFailed as error:
        fail(unreachable(bootstrap, f"failed: {error.reason}"))
    except KafkaError as error:
        fail(str(error))
    wrong = problems(found)
    if as_json:
        print_json({**asdict(found), "problems": wrong})
    else:
        _show(found)
        for each in wrong:
            complain(each)
    if wrong:
        raise typer.Exit(1)


def _show(found: ClusterStatus) -> None:
    leads = f"controller {found.leader_id} leads in epoch {found.leader_epoch}" if found.leader_id >= 0 else ""
    print(f"cluster {found.cluster_id}: {leads or 'no controller leads'}")
    controllers = {each.node_id: each for each in found.controllers}
    brokers = {each.node_id: each for each in found.brokers}
    table = new_table("node", "address", "rack", "broker", "quorum", "metadata")
    for node_id in sorted(controllers.keys() | brokers.keys()):
        table.add_row(str(node_id), *_cells(brokers.get(node_id), controllers.get(node_id)))
    print_table(table)
    well = "" if found.unwell else ", each with all its replicas in sync"
    print(f"{found.topics} topics, {found.partitions} partitions{well}")


def _cells(broker: BrokerStatus | None, controller: ControllerStatus | None) -> tuple[str, str, str, str, str]:
    role = "-" if controller is None or not controller.voter else "leader" if controller.leads else "voter"
    address, rack, state = "-", "-", "-"
    if broker is not None:
        address, rack, state = broker.address, broker.rack or "-", "fenced" if broker.fenced else "running"
    return address, rack, state, role, _behind(controller)


def _behind(controller: ControllerStatus | None) -> str:
    if controller is None or controller.behind is None:
        return "-"
    if not controller.away:
        return f"{controller.behind} behind" if controller.behind else "up to date"
    ago = controller.caught_up_ms_ago
    return f"{controller.behind} behind, away" + ("" if ago is None else f" for {ago // 1000} s")


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the files go.", show_default=False)],
    hosts: Annotated[
        list[str],
        typer.Argument(metavar="HOST...", help="A node's machine each, as the others reach it.", show_default=False),
    ],
    port: Annotated[int, typer.Option(min=1, max=65535, help="Of the listener for clients.")] = 9092,
    controller_port: Annotated[int, typer.Option(min=1, max=65535, help="Of the listener for controllers.")] = 9093,
    log_dirs: Annotated[
        str, typer.Option(metavar="FOLDER", help="Where a node's data goes, in a folder of its own in this one.")
    ] = "/var/lib/tidemill",
) -> None:
    """Write node-1.properties, node-2.properties, ... of a new cluster, with a new cluster.id.

    Copy each to its machine and start it there: 'tidemill broker start --config node-1.properties'. A host may be named
    several times: its nodes take ports of their own, so 'localhost localhost localhost' is a cluster to try.
    """
    if len(hosts) < NODES_MIN:
        fail(
            f"a cluster that survives the loss of a node has {NODES_MIN} or more; name a host for each. "
            "One node needs no files: 'tidemill broker start'",
            2,
        )
    if strange := [host for host in hosts if not host or not all(each.isalnum() or each in ".-_" for each in host)]:
        fail(f"{strange[0]!r} is no host name or IPv4 address; ports are given with --port and --controller-port", 2)
    nodes = plan(hosts, port=port, controller_port=controller_port, log_dirs=log_dirs)
    if clash := first_clash(nodes):
        fail(f"{clash} would be taken twice: choose --port and --controller-port further apart", 2)
    files = {folder / f"node-{node.node_id}.properties": node for node in nodes}
    if there := [file for file in files if file.exists()]:
        fail(f"{there[0]} is there already: a second cluster.id would part the nodes; choose an empty folder")
    cluster_id = new_cluster_id()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, node in files.items():
            file.write_text(server_properties(node, nodes, cluster_id), encoding="utf-8")
            print(f"wrote {file}: {node.host}:{node.port}, data in {node.log_dirs}")
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    controllers = controllers_of(len(nodes))
    print(
        f"cluster {cluster_id}: {len(nodes)} brokers, {controllers} of them controllers; "
        f"{(controllers - 1) // 2} of these may be away"
    )
