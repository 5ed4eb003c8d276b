"""docs/tls.md does what it says: its files are written and its commands run, in its order"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tidemill.services import Service

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tls.md"
MARKED = re.compile(r"<!-- (.*?) -->\n```\w+\n(.*?)```", re.DOTALL)


def shell(text: str, folder: Path, port: str) -> str:
    command = text.replace("tidemill ", f"{sys.executable} -P -m tidemill.cli ").replace("localhost:9094", port)
    done = subprocess.run(
        ["bash", "-ec", command], cwd=folder, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_every_step_of_the_page(tmp_path: Path) -> None:
    steps = MARKED.findall(PAGE.read_text(encoding="utf-8"))
    assert [what for what, _ in steps].count("run") == 2
    broker: Service | None = None
    address = ""
    for what, text in steps:
        if what.startswith("file: "):
            free = text.replace("127.0.0.1:9093", "127.0.0.1:0").replace("127.0.0.1:9094", "127.0.0.1:0")
            (tmp_path / what.removeprefix("file: ")).write_text(free)
        elif what == "run":
            shell(text, tmp_path, "")
        else:
            broker, address = started(tmp_path)
            try:
                found = shell(text, tmp_path, address)
            finally:
                assert broker.stop() == 0
            assert address in found
    assert broker is not None


def started(folder: Path) -> tuple[Service, str]:
    """The broker of the page on free ports, and the address of its listener for those with certificates."""
    settings = folder / "server.properties"
    absolute = re.sub(r"=(\w+\.pem|tidemill-data)$", rf"={folder}/\1", settings.read_text(), flags=re.MULTILINE)
    settings.write_text(absolute.replace("SSL://127.0.0.1:0,INTERNAL", "INTERNAL"))
    broker = Service(
        "broker",
        ["broker", "start", "--config", str(settings)],
        ready=r"listening on 127\.0\.0\.1:(?P<port>\d+)",
        log=folder / "broker.log",
    ).start()
    return broker, f"localhost:{broker.facts['port']}"
