"""The compiled kernel for tests, built on first use; None where there is no compiler

A test that takes part in both ways asks for it here, so that a checkout whose kernel is missing, or of other source,
tests the present one all the same.
"""

import tempfile
from pathlib import Path

from tidemill.spark_sink.kernel import Kernel, load
from tidemill.spark_sink.kernel_build import CannotBuild, build


def _compiled() -> Kernel | None:
    found, _ = load()
    if found is not None:
        return found
    with tempfile.TemporaryDirectory() as folder:
        try:
            return load(build(Path(folder, "libkernel.so")))[0]
        except CannotBuild:
            return None


COMPILED = _compiled()
