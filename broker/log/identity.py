"""Identity files: whose data a folder or a partition holds

`meta.properties` names the cluster, the node and the folder itself; `partition.metadata` names the topic a partition
belongs to, so that a topic deleted and made again under the same name is not mistaken for the old one. A folder that
says something else than the configuration is refused: starting on it would mix the data of two nodes.
"""

import uuid
from dataclasses import dataclass

from tidemill.core.ids import decode_id, encode_id
from tidemill.core.runtime.disk import Directory

META = "meta.properties"
PARTITION_METADATA = "partition.metadata"
_DRAFT = PARTITION_METADATA + ".tmp"


class FolderRefused(Exception):
    """The data folder cannot be used; the message is one line that says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderIdentity:
    """The contents of `meta.properties`."""

    cluster_id: str
    node_id: int
    directory_id: uuid.UUID


def is_claimed(directory: Directory) -> bool:
    """Whether the folder is somebody's already."""
    return directory.exists(META)


def claim_folder(directory: Directory, node_id: int, cluster_id: str | None, fresh_id: uuid.UUID) -> FolderIdentity:
    """The identity of `directory`, which is written if the folder is new; raises FolderRefused on a mismatch.

    Without `cluster_id` the folder's own is accepted, and a new folder makes one up from `fresh_id`.
    """
    if not is_claimed(directory):
        identity = FolderIdentity(cluster_id=cluster_id or encode_id(fresh_id), node_id=node_id, directory_id=fresh_id)
        lines = [
            "version=1",
            f"cluster.id={identity.cluster_id}",
            f"node.id={identity.node_id}",
            f"directory.id={encode_id(identity.directory_id)}",
        ]
        directory.replace(META, "\n".join([*lines, ""]).encode())
        return identity
    identity = read_identity(directory)
    if identity.node_id != node_id:
        raise FolderRefused(
            f"{directory.path} belongs to node.id {identity.node_id}, not {node_id}: "
            "set node.id to match or use another data folder"
        )
    if cluster_id is not None and identity.cluster_id != cluster_id:
        raise FolderRefused(
            f"{directory.path} belongs to cluster {identity.cluster_id}, not {cluster_id}: use another data folder"
        )
    return identity


def write_topic_id(directory: Directory, topic_id: uuid.UUID) -> None:
    """Name the topic of a partition's folder; durable after the folder's next sync, but never half there."""
    directory.replace(PARTITION_METADATA, _topic_id_lines(topic_id), sync_name=False)


def draft_topic_id(directory: Directory, topic_id: uuid.UUID) -> None:
    """What `publish_topic_id` makes the folder's own, once this is durable: for many folders that share a sync."""
    file = directory.create(_DRAFT)
    try:
        file.write_at(0, _topic_id_lines(topic_id))
    finally:
        file.close()


def publish_topic_id(directory: Directory) -> None:
    """Let the draft be what names the topic; durable after the folder's next sync."""
    directory.rename(_DRAFT, PARTITION_METADATA)


def _topic_id_lines(topic_id: uuid.UUID) -> bytes:
    return f"version: 0\ntopic_id: {encode_id(topic_id)}\n".encode()


def read_topic_id(directory: Directory) -> uuid.UUID | None:
    """The topic of a partition's folder; None when it does not say."""
    try:
        rows = _pairs(directory.read(PARTITION_METADATA), ":")
    except FileNotFoundError:
        return None
    try:
        return decode_id(rows["topic_id"])
    except (KeyError, ValueError) as error:
        raise FolderRefused(f"{directory.path}/{PARTITION_METADATA} has no topic_id: restore the file") from error


def read_identity(directory: Directory) -> FolderIdentity:
    """What `meta.properties` says; raises FolderRefused."""
    rows = _pairs(directory.read(META), "=")
    try:
        if rows["version"] != "1":
            raise ValueError(f"version {rows['version']}")
        return FolderIdentity(
            cluster_id=rows["cluster.id"],
            node_id=int(rows["node.id"]),
            directory_id=decode_id(rows["directory.id"]),
        )
    except (KeyError, ValueError) as error:
        raise FolderRefused(f"{directory.path}/{META} cannot be used ({error}): restore the file") from error


def _pairs(data: bytes, separator: str) -> dict[str, str]:
    pairs = {}
    for line in data.decode(errors="replace").splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, value = line.partition(separator)
            pairs[name.strip()] = value.strip()
    return pairs
