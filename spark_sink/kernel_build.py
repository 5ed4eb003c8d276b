"""How the compiled kernel comes about: one C file, one call of a compiler

The kernel makes reading several times faster and is needed by nothing. Installing builds it where a C compiler is found
(`CC`, else `cc`, `gcc` or `clang`) and goes on without where there is none; in a checkout, or beside an installed
package, `python -m tidemill.spark_sink.kernel_build` builds it later.

The library holds the checksum of its source. One that was built from other source is not used (`kernel`), so a checkout
that has moved on falls back instead of calling functions that mean something else now.

This file needs nothing but the standard library: the build runs it by its path, before anything is installed.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

SOURCE = Path(__file__).with_name("kernel.c")
LIBRARY = SOURCE.with_name("libkernel.so")
COMPILERS = ("cc", "gcc", "clang")
_FLAGS = ("-O3", "-std=c11", "-fPIC", "-shared", "-fvisibility=hidden")
_COMPILE_S_MAX = 120.0


class CannotBuild(RuntimeError):
    """There is no compiler, or it failed; the message says what to do."""


def source_crc(source: Path = SOURCE) -> int:
    """What a library of this source answers when it is asked for its source."""
    return zlib.crc32(source.read_bytes())


def compiler() -> list[str]:
    """The command of the C compiler; raises CannotBuild where there is none."""
    if os.environ.get("CC"):
        return os.environ["CC"].split()
    found = next(filter(None, map(shutil.which, COMPILERS)), None)
    if found is None:
        raise CannotBuild("no C compiler: install one (Debian: apt-get install gcc libc6-dev) or set CC")
    return [found]


def build(library: Path = LIBRARY, source: Path = SOURCE) -> Path:
    """Compile `source` to `library`, which is replaced in one step; raises CannotBuild."""
    command = compiler()
    with tempfile.TemporaryDirectory(prefix="tidemill-kernel-") as folder:
        made = Path(folder) / library.name
        command += [*_FLAGS, f"-DSOURCE_CRC={source_crc(source)}u", "-o", str(made), str(source)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_S_MAX, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CannotBuild(f"{command[0]} cannot be run: {error}") from None
        if done.returncode != 0:
            raise CannotBuild(f"{command[0]} failed: {done.stderr.strip()[-2000:]}")
        try:
            beside = library.with_name(f".{library.name}.{os.getpid()}")
            shutil.copyfile(made, beside)  # a running program may have the old one mapped: never write into it
            beside.replace(library)
        except OSError as error:
            raise CannotBuild(f"{library} cannot be written: {error.strerror}") from None
    return library


def main() -> int:
    """Build in place, beside the source."""
    try:
        print(build())
    except CannotBuild as error:
        print(f"the kernel was not built, reading stays slower: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
