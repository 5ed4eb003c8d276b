"""The folder of one of a quorum's first voters

Where the voters are those of the metadata log, somebody has to write the first ones, before anybody can elect: into a
snapshot that ends where the log begins. A folder that is made this way says who votes; any other new one belongs to a
node that asks around for a leader (`controller.quorum.bootstrap.servers`), and may become a voter later on.

One node that begins alone (`standalone`) is enough; others are added while it runs. Several that begin together are
all given the same list, with the ids of their folders, which the folders take.

The snapshot comes first and `meta.properties` last. A folder with the one and without the other was not made to its
end: it is not started, and may be formatted again.
"""

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from tidemill.broker.config import BrokerConfig
from tidemill.broker.log.identity import META, claim_folder, is_claimed
from tidemill.broker.log.partition_folders import parse_partition_folder
from tidemill.broker.opening import StartRefused, usable
from tidemill.broker.quorum.control import KRaftVersion, Voters
from tidemill.broker.quorum.raft.voters import Voter, VoterEndpoint, VoterSet, parse_peer
from tidemill.broker.quorum.snapshot import SnapshotId, encode
from tidemill.broker.quorum.store import FILE, FOLDER
from tidemill.broker.surroundings import Surroundings
from tidemill.core.config import ConfigError
from tidemill.core.ids import decode_id, encode_id
from tidemill.core.runtime.disk import Directory
from tidemill.core.types import ZERO_UUID

FIRST_VOTERS: Final = SnapshotId(0, 0)
"""The snapshot that ends where the log begins, as Kafka's tool names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Formatted:
    """What a folder has become."""

    cluster_id: str
    directory_id: uuid.UUID
    voters: VoterSet


def parse_initial_controllers(text: str, listener: str) -> VoterSet:
    """Read a list of ID@HOST:PORT:DIRECTORY, as Kafka's tool takes it; raises ConfigError with every mistake.

    >>> parse_initial_controllers("1@one:9093:AAAAAAAAAAAAAAAAAAAABw,2@[::1]:9093:AAAAAAAAAAAAAAAAAAAACA", "C").ids
    (1, 2)
    """
    voters: dict[int, Voter] = {}
    problems = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        number, _, rest = part.partition("@")
        address, _, directory = rest.rpartition(":")
        try:
            if not (number.isascii() and number.isdecimal()):
                raise ValueError(number)
            host, port = parse_peer(address)
            voter = Voter(
                node_id=int(number), directory_id=decode_id(directory), endpoints=(VoterEndpoint(listener, host, port),)
            )
        except ValueError:
            problems.append(f"--initial-controllers: expected ID@HOST:PORT:DIRECTORY, got {part!r}")
            continue
        if voter.node_id in voters:
            problems.append(f"--initial-controllers: {voter.node_id} is there twice")
        problems += _of_the_directory(voter, voters.values())
        voters[voter.node_id] = voter
    if problems or not voters:
        raise ConfigError(problems or ["--initial-controllers: it names nobody"])
    return VoterSet.of(voters.values())


def _of_the_directory(voter: Voter, before: Iterable[Voter]) -> Iterator[str]:
    """What is wrong with it: whoever has that folder may vote once."""
    if voter.directory_id == ZERO_UUID:
        yield f"--initial-controllers: node {voter.node_id} has no directory: any new random id is one"
    for each in before:
        if each.directory_id == voter.directory_id and each.node_id != voter.node_id:
            yield f"--initial-controllers: nodes {each.node_id} and {voter.node_id} have the same directory"


def format_folder(config: BrokerConfig, initial_controllers: str = "", around: Surroundings | None = None) -> Formatted:
    """Make the folder of `config` that of a first voter, one of several or, without a list, the only one.

    Raises ConfigError, StartRefused and FolderRefused.
    """
    around = around or Surroundings()
    cluster = config.cluster
    if cluster is None or cluster.voters.voters or cluster.controller is None or cluster.told is None:
        raise ConfigError([_why_not_needed(config)])
    fresh_id, listener = around.new_uuid(), cluster.controller.name
    if initial_controllers:
        voters = parse_initial_controllers(initial_controllers, listener)
    else:
        where = VoterEndpoint(listener, cluster.told.host, cluster.told.port)
        voters = VoterSet.of([Voter(node_id=config.node_id, directory_id=fresh_id, endpoints=(where,))])
    me = voters.get(config.node_id)
    if me is None:
        raise ConfigError(
            [
                f"--initial-controllers does not name node {config.node_id}: give every controller of the list the "
                "same one, and start all other nodes without formatting them"
            ]
        )
    if len(voters) > 1 and cluster.cluster_id is None:
        raise ConfigError(
            [
                "--initial-controllers names several nodes, which would each make a cluster of its own: give all of "
                f"them the same cluster.id, for example --set cluster.id={encode_id(around.new_uuid())}"
            ]
        )
    folder, unlock = around.open_folder(config.data_dir)
    try:
        others = (each for each in folder.list() if each != FOLDER)
        if is_claimed(folder) or any(map(parse_partition_folder, others)):
            raise StartRefused(
                f"{config.data_dir} belongs to a node already, see its {META}: start it, or give the node an empty "
                "folder"
            )
        with usable(config.data_dir):
            _write(folder, voters)
            cluster_id = cluster.cluster_id or encode_id(around.new_uuid())
            identity = claim_folder(folder, config.node_id, cluster_id, me.directory_id)
    finally:
        unlock()
    return Formatted(cluster_id=identity.cluster_id, directory_id=identity.directory_id, voters=voters)


def _why_not_needed(config: BrokerConfig) -> str:
    if config.cluster is None:
        return (
            "these settings are those of a node by itself, which needs no formatting; for one that others may join, "
            "list the addresses where controllers will be in controller.quorum.bootstrap.servers"
        )
    if config.cluster.voters.voters:
        return (
            "the voters are configured on every node (controller.quorum.voters) and are not written into a folder: "
            "start the node as it is, or write controller.quorum.bootstrap.servers instead"
        )
    return "a node that is no controller needs no formatting: start it as it is"


def is_half_formatted(folder: Directory) -> bool:
    """Whether somebody began to format it and did not come to the end."""
    return not is_claimed(folder) and folder.is_directory(FOLDER) and _metadata(folder).exists(FIRST_VOTERS.name)


def _metadata(folder: Directory) -> Directory:
    return folder.subdirectory(FOLDER)


def _write(folder: Directory, voters: VoterSet) -> None:
    metadata = _metadata(folder)
    standing = (KRaftVersion(version=1), Voters(voters=voters))
    if not metadata.exists(FILE):
        metadata.create(FILE).close()
    data = b"".join(encode((), epoch=FIRST_VOTERS.epoch, now_ms=0, standing=standing))
    metadata.replace(FIRST_VOTERS.name, data)
    metadata.sync()
    folder.sync()
