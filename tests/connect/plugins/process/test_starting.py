"""What a plugin is told when its work begins"""

from tests.connect.plugins.process.conftest import Surroundings
from tidemill.connect.plugins.process import record_protocol_pb2 as pb
from tidemill.connect.plugins.process.starting import start_request


def test_everything_but_how_it_is_started() -> None:
    context = Surroundings().context({"process.command": "x", "topics": "a,b", "file": "f"})
    assert start_request(context, [pb.Setting(name="size", default="3")]) == pb.Start(
        connector="c",
        task=0,
        config={"topics": "a,b", "file": "f", "size": "3"},
        key_converter=pb.Converter(kind="string"),
        value_converter=pb.Converter(kind="json", options={"schemas.enable": "false"}),
    )
