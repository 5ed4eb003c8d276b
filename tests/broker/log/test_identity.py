"""Folder identity: written once, refused when it is another's"""

import uuid

import pytest

from tests.sim.disk import SimulatedDisk
from tidemill.broker.log.identity import (
    META,
    PARTITION_METADATA,
    FolderRefused,
    claim_folder,
    read_topic_id,
    write_topic_id,
)
from tidemill.core.ids import encode_id

ID = uuid.UUID("6d2b3c44-0b1e-4f3a-9c5d-1e2f3a4b5c6d")


def test_a_new_folder_is_claimed_and_known_again() -> None:
    directory = SimulatedDisk().root
    first = claim_folder(directory, 3, None, ID)
    assert (first.node_id, first.directory_id, first.cluster_id) == (3, ID, encode_id(ID))
    assert directory.read(META).decode().splitlines() == [
        "version=1",
        f"cluster.id={encode_id(ID)}",
        "node.id=3",
        f"directory.id={encode_id(ID)}",
    ]
    assert claim_folder(directory, 3, None, uuid.UUID(int=9)) == first
    assert claim_folder(directory, 3, first.cluster_id, uuid.UUID(int=9)) == first


def test_a_folder_of_another_node_or_cluster_is_refused() -> None:
    directory = SimulatedDisk().root
    claim_folder(directory, 3, "east", ID)
    with pytest.raises(FolderRefused, match=r"belongs to node\.id 3, not 4"):
        claim_folder(directory, 4, "east", ID)
    with pytest.raises(FolderRefused, match="belongs to cluster east, not west"):
        claim_folder(directory, 3, "west", ID)


@pytest.mark.parametrize("content", [b"", b"version=2\n", b"version=1\nnode.id=x\ncluster.id=c\n", b"\xff"])
def test_a_broken_meta_file_is_refused(content: bytes) -> None:
    directory = SimulatedDisk().root
    directory.replace(META, content)
    with pytest.raises(FolderRefused, match="restore the file"):
        claim_folder(directory, 3, None, ID)


def test_comments_in_a_meta_file_are_skipped() -> None:
    directory = SimulatedDisk().root
    claim_folder(directory, 3, "c", ID)
    directory.replace(META, b"#\n#Sat Nov 21\n" + directory.read(META))
    assert claim_folder(directory, 3, "c", ID).cluster_id == "c"


def test_the_topic_of_a_partition() -> None:
    directory = SimulatedDisk().root
    assert read_topic_id(directory) is None
    write_topic_id(directory, ID)
    assert directory.read(PARTITION_METADATA) == f"version: 0\ntopic_id: {encode_id(ID)}\n".encode()
    assert read_topic_id(directory) == ID
    directory.replace(PARTITION_METADATA, b"version: 0\n")
    with pytest.raises(FolderRefused):
        read_topic_id(directory)
