"""The room on a real file system."""

import shutil
from pathlib import Path

import pytest

from tidemill.core.runtime.disk_space import disk_space


def test_it_is_what_the_operating_system_says(tmp_path: Path) -> None:
    space = disk_space(str(tmp_path))
    assert space.total_bytes == shutil.disk_usage(tmp_path).total
    assert 0 < space.usable_bytes <= space.total_bytes


def test_a_folder_that_is_not_there_has_no_answer(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        disk_space(str(tmp_path / "missing"))
