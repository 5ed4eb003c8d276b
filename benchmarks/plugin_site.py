"""A folder in which a worker finds plugins of a benchmark as if they were installed"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path


def install(site: Path, module: str, plugins: Sequence[str], *, group: str = "tidemill.plugins") -> str:
    """Put a module of this folder there, with the plugins of a kind that it has; the PYTHONPATH for a worker."""
    information = site / f"{module}-1.0.dist-info"
    information.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name(f"{module}.py"), site)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    points = "".join(f"{name} = {module}:{name}\n" for name in plugins)
    (information / "entry_points.txt").write_text(f"[{group}]\n{points}")
    return os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
