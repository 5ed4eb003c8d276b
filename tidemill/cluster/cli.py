"""The command: how several brokers are together, who votes, new ones

`status` looks at any Kafka cluster and ends with 1 if something is wrong with it, so that a script may wait for a
cluster to be well: between two restarts of a rolling one, for instance.
"""

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from tidemill.bootstrap import read_command_config, unanswered
from tidemill.cluster.asking import ask_status
from tidemill.cluster.balance_cli import balance, unregister
from tidemill.cluster.files import (
    NODES_MIN,
    first_clash,
    initial_controllers,
    new_cluster_id,
    plan,
    server_properties,
)
from tidemill.cluster.status import BrokerStatus, ClusterStatus, ControllerStatus, problems
from tidemill.cluster.voters import AnswerLost, Joining, VoterUnknown, add_voter, remove_voter
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.client.connection import ConnectionFailed
from tidemill.core.client.security import dialer_of
from tidemill.core.config import parse_address
from tidemill.core.errors import KafkaError
from tidemill.core.ids import decode_id
from tidemill.core.runtime.clock import SystemClock
from tidemill.core.types import ZERO_UUID
from tidemill.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, CommandConfig
from tidemill.output import complain, fail, new_table, print_json, print_table

ANSWER_TIMEOUT_MS = 10_000
REMOVAL_TIMEOUT_MS = 40_000
"""Longer than a broker waits for the active controller, whose sentence says more than that nobody has answered."""

AnswerT = TypeVar("AnswerT")

Directory = Annotated[
    str,
    typer.Option(
        metavar="ID", help="directory.id of its folder (meta.properties), if the quorum is not to be asked for it."
    ),
]

app = typer.Typer(
    help="Look at a cluster, move its replicas, change who votes in it, and make the files of a new one.",
    no_args_is_help=True,
    add_completion=False,
)
app.command()(balance)
app.command()(unregister)


@app.command()
def status(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, command_config: CommandConfig = None, as_json: AsJson = False
) -> None:
    """Brokers, controllers and partitions, and what is wrong with them; exit status 1 if anything is."""
    found = _ask(
        bootstrap, command_config, lambda client: ask_status(client, SystemClock().now_ms()), ANSWER_TIMEOUT_MS
    )
    wrong = problems(found)
    if as_json:
        print_json({**asdict(found), "problems": wrong})
    else:
        _show(found)
        for each in wrong:
            complain(each)
    if wrong:
        raise typer.Exit(1)


def _ask(
    bootstrap: str,
    command_config: Path | None,
    question: Callable[[ClusterClient], Coroutine[Any, Any, AnswerT]],
    timeout_ms: int,
) -> AnswerT:
    """The answer of a cluster; what keeps it from answering ends the command with a sentence."""
    try:
        dialer = dialer_of(read_command_config(command_config))
    except ValueError as error:
        fail(str(error), 2)

    async def ask() -> AnswerT:
        async with ClusterClient(
            bootstrap,
            client_id="tidemill-cluster",
            dialer=dialer,
            call_timeout_ms=timeout_ms,
            request_timeout_ms=timeout_ms,
        ) as client:
            return await question(client)

    try:
        return asyncio.run(ask())
    except ValueError as error:
        fail(str(error), 2)
    except ConnectionFailed as error:
        fail(unanswered(bootstrap, error))
    except (KafkaError, VoterUnknown, AnswerLost) as error:
        fail(str(error))


@app.command("add-voter")
def add_voter_to_quorum(
    voter: Annotated[
        str,
        typer.Argument(
            metavar="ID@HOST:PORT",
            help="A node that runs, and where its controller listens for the others.",
            show_default=False,
        ),
    ],
    directory: Directory = "",
    listener: Annotated[
        str, typer.Option(metavar="NAME", help="Name of that listener, of controller.listener.names.")
    ] = "CONTROLLER",
    timeout: Annotated[
        int, typer.Option(min=1, max=28, metavar="SECONDS", help="How long it may take to catch up.")
    ] = 25,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Make a voter of a controller that follows the metadata: it counts for every decision, and may lead.

    One change at a time. It waits until the node has caught up, and sees that it answers at that address. Of a cluster
    whose voters are configured (controller.quorum.voters) they cannot be changed while it runs.
    """
    number, sign, address = voter.partition("@")
    try:
        host, port = parse_address(address)
        if not (sign and number.isdecimal() and host and port):
            raise ValueError
    except ValueError:
        fail(f"{voter!r} is not ID@HOST:PORT, as in 4@four:9093", 2)
    joining = Joining(
        node_id=int(number), host=host, port=port, listener=listener, directory_id=_directory_of(directory)
    )
    timeout_ms = timeout * 1000
    voters = _ask(
        bootstrap,
        command_config,
        lambda client: add_voter(client, joining, timeout_ms=timeout_ms),
        timeout_ms + ANSWER_TIMEOUT_MS,
    )
    print(f"node {number} votes: {_quorum_of(voters)}")


@app.command("remove-voter")
def remove_voter_from_quorum(
    node: Annotated[
        int, typer.Argument(min=0, metavar="ID", help="The node that is to vote no more.", show_default=False)
    ],
    directory: Directory = "",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Let a controller vote no more, whether it runs or not; it may be stopped then, or follows as an observer.

    If it leads, another one does afterwards. The last voter stays.
    """
    voters = _ask(
        bootstrap,
        command_config,
        lambda client: remove_voter(client, node, _directory_of(directory)),
        REMOVAL_TIMEOUT_MS,
    )
    print(f"node {node} votes no more: {_quorum_of(voters)}")


def _directory_of(text: str) -> uuid.UUID:
    try:
        return decode_id(text) if text else ZERO_UUID
    except ValueError as error:
        fail(f"--directory: {error}", 2)


def _quorum_of(voters: Sequence[int]) -> str:
    away = (len(voters) - 1) // 2
    return f"the voters are {', '.join(map(str, voters))}, of which {away or 'none'} may be away"


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
    role = "-"
    if controller is not None:
        role = "leader" if controller.leads else "voter" if controller.voter else "observer"
    address, rack, state = (controller.address if controller is not None else "") or "-", "-", "-"
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
    controllers: Annotated[
        list[str],
        typer.Option(
            "--controller",
            metavar="HOST",
            help="The machine of a node that is a controller only, for each; the others are brokers only then.",
            show_default=False,
        ),
    ] = [],  # noqa: B006 - typer's way to say none
    dynamic: Annotated[
        bool, typer.Option("--dynamic", help="Let controllers come and go while the cluster runs.")
    ] = False,
) -> None:
    """Write node-1.properties, node-2.properties, ... of a new cluster, with a new cluster.id.

    Copy each to its machine and start it there: 'tidemill broker start --config node-1.properties'. A host may be named
    several times: its nodes take ports of their own, so 'localhost localhost localhost' is a cluster to try. With
    --dynamic the folder of each controller is made once before, by the command that is printed.
    """
    if len(controllers or hosts) < NODES_MIN:
        fail(
            f"a cluster that survives the loss of a node has {NODES_MIN} controllers or more; name a host for each. "
            "One node needs no files: 'tidemill broker start'",
            2,
        )
    if strange := [
        host for host in (*hosts, *controllers) if not host or not all(each.isalnum() or each in ".-_" for each in host)
    ]:
        fail(f"{strange[0]!r} is no host name or IPv4 address; ports are given with --port and --controller-port", 2)
    nodes = plan(hosts, port=port, controller_port=controller_port, log_dirs=log_dirs, controllers=controllers)
    if clash := first_clash(nodes):
        fail(f"{clash} would be taken twice: choose --port and --controller-port further apart", 2)
    files = {folder / f"node-{node.node_id}.properties": node for node in nodes}
    if there := [file for file in files if file.exists()]:
        fail(f"{there[0]} is there already: a second cluster.id would part the nodes; choose an empty folder")
    cluster_id = new_cluster_id()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, node in files.items():
            file.write_text(server_properties(node, nodes, cluster_id, dynamic=dynamic), encoding="utf-8")
            print(f"wrote {file}: {node.address}, data in {node.log_dirs}")
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    deciding = [node for node in nodes if node.controls]
    print(
        f"cluster {cluster_id}: {sum(node.serves for node in nodes)} brokers, {len(deciding)} "
        f"{'controllers' if controllers else 'of them controllers'}; {(len(deciding) - 1) // 2} of these may be away"
    )
    if dynamic:
        listed = initial_controllers(deciding)
        print("once, before the first start of each controller:")
        for file, node in files.items():
            if node.controls:
                print(f"tidemill broker format --config {file} --initial-controllers {listed}")
