"""The generated reference pages agree with the code."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_reference_pages_are_fresh() -> None:
    command = [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_every_test_that_the_compatibility_page_names_is_there() -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", page)
    assert len(named) > 15
    missing = [
        f"{file}::{test}"
        for file, test in named
        if f"def {test}(" not in (ROOT / "tests" / "integration" / file).read_text(encoding="utf-8")
    ]
    assert missing == []
