"""The generator of the code beside `record_protocol.proto`

Run `python -m tidemill.connect.plugins.process.generate` after an edit of the protocol, and commit what it writes.
grpcio-tools is a development dependency; the product only imports the generated files.
"""

import sys
from pathlib import Path

FOLDER = Path(__file__).parent
GENERATED = ("record_protocol_pb2.py", "record_protocol_pb2.pyi")


def generate(output: Path) -> None:
    """Write the generated files as `output`/tidemill/connect/plugins/process/…; raises RuntimeError as protoc does."""
    from grpc_tools import protoc  # type: ignore[import-untyped]

    root = FOLDER.parents[3]
    arguments = [
        "protoc",
        f"--proto_path={root}",
        f"--python_out={output}",
        f"--pyi_out={output}",
        str(FOLDER / "record_protocol.proto"),
    ]
    status = protoc.main(arguments)
    if status != 0:
        raise RuntimeError(f"protoc ended with status {status}")


if __name__ == "__main__":
    generate(FOLDER.parents[3])
    print("wrote " + ", ".join(str(FOLDER / each) for each in GENERATED), file=sys.stderr)
