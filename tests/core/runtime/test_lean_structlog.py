"""structlog without rich"""

import subprocess
import sys

import pytest

LOADED = "print('rich.console' in sys.modules)"


@pytest.mark.parametrize(
    ("program", "loaded"),
    [
        (f"import sys, structlog; {LOADED}", True),  # or there would be nothing to do
        (f"import sys; from tidemill.core.runtime import lean_structlog; lean_structlog.load(); {LOADED}", False),
        (f"import sys, rich.console; from tidemill.core.runtime import lean_structlog as s; s.load(); {LOADED}", True),
        ("from tidemill.core.runtime import lean_structlog as s; s.load(); import rich.text; print(True)", True),
    ],
)
def test_rich_is_loaded_by_nobody_but_its_users(program: str, loaded: bool) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == f"{loaded}\n"


def test_a_broker_does_without() -> None:
    program = (
        "import sys\nfrom tidemill.cli import main\n"
        "try: main(['broker', 'config'])\nexcept SystemExit: pass\n"
        "print('structlog' in sys.modules, 'rich.console' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "True False"


def test_a_task_of_connect_does_without() -> None:
    program = (
        "import sys\nfrom tidemill.core.runtime import lean_structlog\nlean_structlog.load()\n"
        "import tidemill.connect.remote.sdk\nprint('structlog' in sys.modules, 'rich.console' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True False\n"
