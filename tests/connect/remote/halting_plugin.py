"""A plugin that cannot be imported, while its guardian stands still for a second"""

import os
import signal
import subprocess
from pathlib import Path

_guardian = int(Path(f"/proc/{os.getppid()}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[1])
if b"guardian" in Path(f"/proc/{_guardian}/cmdline").read_bytes():  # else it is gone, and this would stop somebody else
    os.kill(_guardian, signal.SIGSTOP)
    subprocess.Popen(["sh", "-c", f"sleep 1; kill -CONT {_guardian}"])
raise ImportError("not today" + ", nor ever" * 20_000)
