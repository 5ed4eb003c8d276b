"""The example in JavaScript: both of its plugins keep what every plugin must"""

import itertools
import json
import re
import shutil
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.connect.plugins.process.conftest import Surroundings
from tidemill.connect.api import EncodedBatch, EndOfInput, Fatal, InvalidConfig, NotConnected, Record, RetryAfter
from tidemill.connect.plugins.process import record_protocol_pb2 as pb
from tidemill.connect.plugins.process.commands import refusals
from tidemill.connect.plugins.process.settings import ProcessSettings
from tidemill.connect.plugins.process.sink import ProcessSink, process_sink
from tidemill.connect.plugins.process.source import ProcessSource, process_source
from tidemill.testing import conformance

EXAMPLE = Path(__file__).resolve().parents[4] / "examples" / "plugin-node"

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed: apt-get install nodejs")


def config(example: str, **changes: str) -> dict[str, str]:
    """The configuration of the example's file, run from anywhere."""
    found: dict[str, str] = json.loads((EXAMPLE / example).read_text(encoding="utf-8"))["config"]
    command = found["process.command"].replace("examples/plugin-node", str(EXAMPLE))
    return {**found, "name": "example", "process.command": command, **changes}


def test_the_source_conforms() -> None:
    made = config("source.json", count="20", **{"per.second": "100"})
    conformance.check_source(process_source, made, count=20, wrong={"count": "0", "per.second": "many"})


def test_the_sink_conforms(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    records = [Record(topic="t", kafka_partition=0, kafka_offset=n, value=f"v{n}") for n in range(10)]
    conformance.check_sink(process_sink, config("sink.json", file=str(file)), records, read=lambda: read(file))


@pytest.mark.parametrize("example", ["source.json", "sink.json"])
def test_the_worker_of_its_page_may_run_it(example: str, worker_allows: Callable[[str], None]) -> None:
    page = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    (given,) = re.findall(r"^tidemill connect start --set 'process\.commands=(.*)' &$", page, re.MULTILINE)
    worker_allows(given)
    made = json.loads((EXAMPLE / example).read_text(encoding="utf-8"))["config"]
    assert not list(refusals(ProcessSettings.model_validate(made).words, made))
    assert list(refusals(["node"], {}))


def read(file: Path) -> list[str]:
    return [json.loads(line)["value"] for line in file.read_text().splitlines()] if file.exists() else []


def test_numbers_and_where_they_stand(around: Surroundings) -> None:
    made = config("source.json", count="2500")
    task = ProcessSource(ProcessSettings.model_validate(made))
    task.start(around.context(made))
    batches: list[EncodedBatch] = []
    while sum(len(each.values) for each in batches) < 2500:
        batches += [each for each in task.poll() if isinstance(each, EncodedBatch)]
    with pytest.raises(EndOfInput, match="all numbers are told"):
        task.poll()
    task.stop()
    found = list(itertools.chain.from_iterable(zip(each.keys, each.values, strict=True) for each in batches))
    assert found == [
        (str(n).encode(), json.dumps({"number": n}, separators=(",", ":")).encode()) for n in range(1, 2501)
    ]
    assert (batches[-1].partition, batches[-1].offset) == ({"numbers": "numbers"}, {"last": 2500})


def test_lines_of_every_kind_of_record(around: Surroundings, tmp_path: Path) -> None:
    made = config("sink.json", file=str(tmp_path / "lines"))
    task = ProcessSink(ProcessSettings.model_validate(made))
    task.start(around.context(made))
    place = {"topic": "t", "kafka_partition": 3}
    task.put(
        [
            Record(kafka_offset=5_000_000_000, key=b"k", value="é".encode(), timestamp_ms=1_700_000_000_123, **place),
            Record(kafka_offset=5_000_000_001, headers=(("h", b"1"), ("n", None)), **place),
            Record(kafka_offset=1, topic="u", kafka_partition=0, value=b"x" * 300_000),
        ]
    )
    task.flush()
    task.stop()
    lines = [json.loads(line) for line in (tmp_path / "lines").read_text().splitlines()]
    assert lines[:2] == [
        {"topic": "t", "partition": 3, "offset": 5_000_000_000, "key": "k", "value": "é"},
        {"topic": "t", "partition": 3, "offset": 5_000_000_001, "key": None, "value": None},
    ]
    assert lines[2]["value"] == "x" * 300_000


def script(folder: Path, body: str) -> dict[str, str]:
    """The configuration of a plugin that is written here."""
    file = folder / "plugin.js"
    file.write_text(body.replace("./tidemill", str(EXAMPLE / "tidemill.js")))
    return {"name": "mine", "process.command": f"node {file}", "topic": "mine"}


def test_the_plugin_in_the_readme(around: Surroundings, tmp_path: Path) -> None:
    (block,) = re.findall(r"```js\n(.*?)```", (EXAMPLE / "README.md").read_text(encoding="utf-8"), re.S)
    made = script(tmp_path, block)
    assert process_source.check is not None
    process_source.check(ProcessSettings.model_validate(made))
    task = ProcessSource(ProcessSettings.model_validate(made))
    task.start(around.context(made))
    (batch,) = task.poll()
    assert isinstance(batch, EncodedBatch)
    assert (batch.topic, batch.keys, batch.values) == ("mine", [None], [b"hello"])
    task.stop()


TALKATIVE = """
const { serve, log, waiting, PluginError } = require('./tidemill');
const polls = [
  async () => { console.log('a print'); log('a note', 'warning'); waiting('the far end is away'); },
  () => { waiting(); throw new PluginError('RETRY', 'the far end is busy', { retry_after_ms: 250 }); },
  async () => { throw new PluginError('NOT_CONNECTED', 'no route'); },
  () => { return { batches: [{ topic: 't', values: [Buffer.alloc(3_000_000, 'x'), Buffer.from('')], null_values: [1],
    headers: [{ headers: [{ key: 'h', value: Buffer.from('v') }, { key: 'n' }] }, {}],
    timestamps_ms: [0, 1_700_000_000_123] }] }; },
  () => undefined.further,
];
serve({ name: 'Talkative', version: '1', poll() { return polls.shift()(); } });
"""


def test_what_a_plugin_may_say_and_throw(around: Surroundings, tmp_path: Path) -> None:
    made = script(tmp_path, TALKATIVE)
    task = ProcessSource(ProcessSettings.model_validate(made))
    task.start(around.context(made))
    assert task.poll() == []
    assert around.problems == ["the far end is away"]
    with pytest.raises(RetryAfter, match="the far end is busy") as later:
        task.poll()
    assert later.value.seconds == 0.25
    assert around.problems[-1] is None
    with pytest.raises(NotConnected, match="no route"):
        task.poll()
    (batch,) = task.poll()
    assert batch == EncodedBatch(
        topic="t",
        keys=[None, None],
        values=[b"x" * 3_000_000, None],
        headers=[(("h", b"v"), ("n", None)), ()],
        timestamps_ms=[0, 1_700_000_000_123],
    )
    with pytest.raises(Fatal, match=r"(?s)the plugin failed to poll: Cannot read .*plugin.js"):
        task.poll()
    task.stop()


NO_ANSWER = """
const { serve } = require('./tidemill');
serve({ name: 'Mine', version: '1', poll() {
  console.dir({ a: 1 });
  return { batches: [{ topic: 't', values: [null] }] };
} });
"""


def test_what_is_no_answer_is_a_bug(around: Surroundings, tmp_path: Path) -> None:
    """Not the end of the process, after which it would be started again for ever; prints of any kind are no answer."""
    made = script(tmp_path, NO_ANSWER)
    task = ProcessSource(ProcessSettings.model_validate(made))
    task.start(around.context(made))
    with pytest.raises(Fatal, match=r"(?s)the plugin failed to poll: .*null.*tidemill.js"):
        task.poll()
    task.stop()


@pytest.mark.parametrize(
    ("changes", "setting", "said"),
    [
        ({"process.command": "node no-such-file.js"}, "process.command", "Cannot find module"),
        ({"process.command": f"node {EXAMPLE}/lines-sink.js"}, "process.command", "Lines is a sink"),
        ({"topic": None}, "topic", "The plugin needs topic. Topic to write to"),
        ({"count": "-1"}, "count", "count is at least 1."),
    ],
)
def test_what_it_refuses(changes: dict[str, Any], setting: str, said: str) -> None:
    made = {name: value for name, value in {**config("source.json"), **changes}.items() if value is not None}
    assert process_source.check is not None
    with pytest.raises(InvalidConfig, match=said) as failure:
        process_source.check(ProcessSettings.model_validate(made))
    assert failure.value.field_name == setting


ECHO = """
const { encode, decode, ToPlugin, FromPlugin } = require(process.argv[1]);
const messages = JSON.parse(require('fs').readFileSync(0));
const again = (message, text) => encode(message, decode(message, Buffer.from(text, 'base64'))).toString('base64');
console.log(JSON.stringify(messages.map(([kind, text]) => again(kind === 'to' ? ToPlugin : FromPlugin, text))));
"""


def test_its_protobuf_reads_and_writes_what_ours_does() -> None:
    batch = pb.RecordBatch(
        topic="té",
        keys=[b"", b"\xff\0"],
        values=[b"v" * 200, b""],
        null_keys=[0],
        null_values=[1],
        headers=[pb.Headers(), pb.Headers(headers=[pb.Header(key="k"), pb.Header(key="l", value=b"")])],
        timestamps_ms=[-1, 1_700_000_000_123],
        partition=7,
        offsets=[0, 9_007_199_254_740_991],
    )
    to: list[pb.ToPlugin] = [
        pb.ToPlugin(number=300, put=pb.Put(batches=[batch, batch])),
        pb.ToPlugin(number=1, describe=pb.Describe(protocol_version=1, role=pb.SINK)),
        pb.ToPlugin(number=2, start=pb.Start(connector="c", config={"a": "1", "b": ""}, key_converter=pb.Converter())),
        pb.ToPlugin(number=3, position=pb.Position(positions=[pb.SourcePosition(source_partition="{}")])),
        pb.ToPlugin(number=4, flush=pb.Flush()),
    ]
    back: list[pb.FromPlugin] = [
        pb.FromPlugin(number=5, polled=pb.Polled(batches=[batch], wanted=["{}"])),
        pb.FromPlugin(error=pb.Error(kind=pb.Error.RETRY, message="m", retry_after_ms=70_000)),
        pb.FromPlugin(divided=pb.Divided(tasks=[pb.TaskConfig(changes={"x": "y"})])),
        pb.FromPlugin(taken=pb.Taken(refused=[pb.Refusal(index=3, retry=True)])),
    ]
    sent = [("to", b64encode(each.SerializeToString()).decode()) for each in to]
    sent += [("back", b64encode(each.SerializeToString()).decode()) for each in back]
    done = subprocess.run(
        ["node", "-e", ECHO, str(EXAMPLE / "tidemill.js")],
        input=json.dumps(sent),
        capture_output=True,
        text=True,
        check=True,
    )
    found = [b64decode(each) for each in json.loads(done.stdout)]
    assert [pb.ToPlugin.FromString(each) for each in found[: len(to)]] == to
    assert [pb.FromPlugin.FromString(each) for each in found[len(to) :]] == back


def test_a_field_of_a_later_version_is_skipped() -> None:
    """Of every wire type there is."""
    later = b"\xc0\x3e\x07" + b"\xc9\x3e" + b"8" * 8 + b"\xd2\x3e\x02ab" + b"\xdd\x3e4444"
    data = pb.ToPlugin(number=9, flush=pb.Flush()).SerializeToString()
    done = subprocess.run(
        ["node", "-e", ECHO, str(EXAMPLE / "tidemill.js")],
        input=json.dumps([("to", b64encode(later + data + later).decode())]),
        capture_output=True,
        text=True,
        check=True,
    )
    assert b64decode(json.loads(done.stdout)[0]) == data
