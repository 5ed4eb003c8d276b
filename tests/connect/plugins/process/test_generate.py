"""The generated files are those of the protocol as it is"""

from pathlib import Path

import pytest

from tidemill.connect.plugins.process import record_protocol_pb2
from tidemill.connect.plugins.process.generate import FOLDER, GENERATED, generate
from tidemill.connect.plugins.process.settings import ProcessSettings


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("grpc_tools", reason="grpcio-tools comes with the dev extra")
    folder = tmp_path_factory.mktemp("generated")
    generate(folder)
    return folder / "tidemill" / "connect" / "plugins" / "process"


def declaration(folder: Path) -> str:
    """The serialized descriptor in a generated module."""
    lines = (folder / "record_protocol_pb2.py").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if "AddSerializedFile(" in line)


def test_they_describe_the_same_protocol(fresh: Path) -> None:
    """Compared by what they declare: another version of the generator may lay them out differently."""
    assert sorted(each.name for each in fresh.iterdir()) == sorted(GENERATED)
    assert declaration(fresh) == declaration(FOLDER)
    name = "record_protocol_pb2.pyi"
    assert (fresh / name).read_text(encoding="utf-8") == (FOLDER / name).read_text(encoding="utf-8")


def test_the_page_tells_every_request_and_error_and_setting() -> None:
    page = (FOLDER.resolve().parents[2] / "docs" / "plugins-in-other-languages.md").read_text(encoding="utf-8")
    requests = record_protocol_pb2.ToPlugin.DESCRIPTOR.oneofs_by_name["request"].fields
    kinds = record_protocol_pb2.Error.Kind.keys()
    settings = [field.alias for field in ProcessSettings.model_fields.values()]
    words = [*(field.message_type.name for field in requests), *kinds, *settings]
    assert [each for each in words if f"`{each}`" not in page] == []


def test_names_that_leave_the_process_carry_the_prefix() -> None:
    assert record_protocol_pb2.DESCRIPTOR.package == "tidemill.plugin.v1"
