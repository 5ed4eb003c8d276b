import pytest

from tidemill.broker.quorum.raft.download import Download
from tidemill.broker.quorum.raft.messages import FetchSnapshotResponse
from tidemill.broker.quorum.snapshot import SnapshotId
from tidemill.core.types import ZERO_UUID

ID = SnapshotId(10, 2)


def chunk(position: int, data: bytes, size: int = 5, snapshot_id: SnapshotId = ID) -> FetchSnapshotResponse:
    return FetchSnapshotResponse(epoch=3, leader_id=2, snapshot_id=snapshot_id, size=size, position=position, data=data)


def test_it_is_whole_when_every_byte_is_there() -> None:
    download = Download(snapshot_id=ID)
    assert not download.is_whole
    for each in (chunk(0, b"ab"), chunk(2, b"c"), chunk(3, b"de")):
        assert not download.is_whole
        assert download.fits(each)
        download = download.after(each)
        assert not download.fits(each)  # twice
    assert download.is_whole


@pytest.mark.parametrize(
    "wrong",
    [
        chunk(3, b"d"),
        chunk(1, b"b"),
        chunk(2, b""),
        chunk(2, b"cdef"),
        chunk(2, b"c", 6),
        chunk(2, b"c", 5, SnapshotId(10, 3)),
    ],
)
def test_what_does_not_fit(wrong: FetchSnapshotResponse) -> None:
    download = Download(snapshot_id=ID).after(chunk(0, b"ab"))
    assert not download.fits(wrong)


def test_it_asks_for_what_comes_next() -> None:
    request = Download(snapshot_id=ID, position=2, size=5).request("c", 3, 1, ZERO_UUID, 100)
    assert (request.snapshot_id, request.position, request.bytes_max) == (ID, 2, 100)
