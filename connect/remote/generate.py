"""The generator of the code beside `plugin.proto`

Run `python -m tidemill.connect.remote.generate` after an edit of the protocol, and commit what it writes. grpcio-tools
is a development dependency; the product only imports the generated files.
"""

import importlib.resources
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
GENERATED = ("plugin_pb2.py", "plugin_pb2.pyi")


def generate(output: Path) -> None:
    """Write the generated files as `output`/tidemill/connect/remote/…; raises RuntimeError when protoc refuses."""
    from grpc_tools import protoc  # type: ignore[import-untyped]

    root = FOLDER.parents[2]
    well_known = importlib.resources.files("grpc_tools") / "_proto"
    arguments = [
        "protoc",
        f"--proto_path={root}",
        f"--proto_path={well_known}",
        f"--python_out={output}",
        f"--pyi_out={output}",
        str(FOLDER / "plugin.proto"),
    ]
    status = protoc.main(arguments)
    if status != 0:
        raise RuntimeError(f"protoc ended with status {status}")


if __name__ == "__main__":
    generate(FOLDER.parents[2])
    print("wrote " + ", ".join(str(FOLDER / each) for each in GENERATED), file=sys.stderr)
