"""Where pip finds packages in these tests, and a folder to install into"""

import os
from pathlib import Path

import pytest

from tidemill.connect.environments.folder import Folder


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """Where pip finds packages, and nowhere else."""
    return tmp_path / "wheels"


@pytest.fixture
def environ(wheels: Path) -> dict[str, str]:
    """The variables that say so."""
    return {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A folder that does not exist yet."""
    return Folder(str(tmp_path / "plugins"))
