"""What a node stands on: disk, clock, threads, chance and scheduled jobs"""

from pathlib import Path

import pytest

from tidemill.broker.log.identity import FolderRefused
from tidemill.broker.surroundings import open_folder


def test_a_folder_is_open_once_until_it_is_unlocked(tmp_path: Path) -> None:
    folder = open_folder(str(tmp_path / "data"))
    assert folder.directory.path == str(tmp_path / "data")
    with pytest.raises(FolderRefused, match="in use"):
        open_folder(str(tmp_path / "data"))
    folder.unlock()
    open_folder(str(tmp_path / "data")).unlock()
