"""The Spark reader's compiled kernel goes into the wheel where it can be built; without a compiler the wheel is pure"""

import runpy
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelHook(BuildHookInterface):
    """Builds `spark_sink/libkernel.so` in place; an editable install uses it from there."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before the files are collected."""
        names = runpy.run_path(str(Path(self.root, "spark_sink", "kernel_build.py")))
        try:
            names["build"]()  # beside its source, from where the whole folder goes into the wheel
        except names["CannotBuild"] as error:
            names["LIBRARY"].unlink(missing_ok=True)  # of another machine or another source
            self.app.display_warning(f"the Spark reader's kernel was not built, reading stays slower: {error}")
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
