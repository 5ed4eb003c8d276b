"""Installs what pyproject.toml asks for: `install.py PYTHON [EXTRA ...]`, the plain dependencies without an extra

Not the distribution itself: what it needs changes seldom and makes layers of its own.
"""

import subprocess
import sys
import tomllib
from pathlib import Path


def main() -> int:
    """Install for the interpreter PYTHON with this one's pip; returns pip's exit status."""
    python, *extras = sys.argv[1:]
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    wanted = [each for extra in extras for each in optional[extra]] if extras else project["dependencies"]
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--use-pep517", *wanted]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
