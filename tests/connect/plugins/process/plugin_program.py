"""A plugin as a program, which behaves as its arguments say: `plugin_program.py ON=BEHAVIOUR ...`

ON is a request (`poll`), BEHAVIOUR one of those below; what is not named works. As a source it counts, three numbers to
a batch, for ever; as a sink it appends what it takes to the file of the setting `file` when it is to flush.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tidemill.connect.plugins.process import record_protocol_pb2 as pb
from tidemill.connect.plugins.process.conversation import ANSWERS
from tidemill.connect.plugins.process.frames import FrameReader, frame

OUT = sys.stdout.buffer
PARTITION = '{"counter":"c"}'


def say(message: pb.FromPlugin) -> None:
    write(frame(message.SerializeToString()))


def write(data: bytes) -> None:
    OUT.write(data)
    OUT.flush()


def fail(kind: "pb.Error.Kind", **more: object) -> Callable[[int], None]:
    def answer(number: int) -> None:
        error = pb.Error(kind=kind, message="as it was told to", **more)  # type: ignore[arg-type]
        say(pb.FromPlugin(number=number, error=error))

    return answer


def hang(number: int) -> None:
    time.sleep(600)


def stubborn(number: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hang(number)


def print_megabytes(number: int) -> None:
    for index in range(10_000):
        print(f"line {index}: " + "x" * 60, file=sys.stderr)
    sys.stderr.write("y" * 2_000_000 + "\nthe end\n")


def log_much(number: int) -> None:
    for index in range(2_000):
        say(pb.FromPlugin(log=pb.Log(level=pb.Log.WARNING, message=f"note {index}")))
    say(pb.FromPlugin(waiting=pb.Waiting(message="the far end is away")))


def exit_with(code: int, words: str = "") -> Callable[[int], None]:
    def leave(number: int) -> None:
        sys.stderr.write(words)
        sys.stderr.flush()
        os._exit(code)

    return leave


def leave_torn(number: int) -> None:
    write(frame(pb.FromPlugin(number=number, polled=pb.Polled(wanted=["x" * 100])).SerializeToString())[:50])
    os._exit(0)


def stop_torn(number: int) -> None:
    write(frame(pb.FromPlugin(number=number, polled=pb.Polled(wanted=["x" * 100])).SerializeToString())[:50])
    hang(number)


def die(number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stay_silent(number: int) -> None:
    OUT.close()
    os.close(1)
    hang(number)


BEHAVIOURS: dict[str, Callable[[int], None]] = {
    "bug": fail(pb.Error.BUG, stack="at line 7 of its own"),
    "retry": fail(pb.Error.RETRY, retry_after_ms=1_500),
    "away": fail(pb.Error.NOT_CONNECTED),
    "wrong": fail(pb.Error.CONFIGURATION, setting="colour"),
    "fatal": fail(pb.Error.FATAL),
    "end": fail(pb.Error.END_OF_INPUT),
    "hang": hang,
    "stubborn": stubborn,
    "print": print_megabytes,  # and goes on
    "log": log_much,  # and goes on
    "exit": exit_with(3, "cannot go on\nfor a reason\n"),
    "leave": exit_with(0),
    "kill": die,
    "torn": leave_torn,
    "half": stop_torn,
    "close": stay_silent,
    "garbage": lambda number: write(b"Listening on port 8080\n" * 100_000),
    "oversized": lambda number: write(b"\xff\xff\xff\x7f"),
    "endless": lambda number: write(b"\xff" * 20),
    "empty": lambda number: write(b"\0"),
    "other": lambda number: say(pb.FromPlugin(number=number, described=pb.Described())),
    "late": lambda number: say(pb.FromPlugin(number=number - 1, done=pb.Done())),
    "twice": lambda number: (say(pb.FromPlugin(number=number, done=pb.Done())),) * 2 and None,
    "old": lambda number: say(pb.FromPlugin(number=number, described=pb.Described(name="old", protocol_version=7))),
}
GO_ON = {"print", "log"}


class Patience(Exception):
    """It wants to be asked again at once."""


class Program:
    """The plugin that works."""

    def __init__(self) -> None:
        self.last = 0
        self.taken: list[dict[str, object]] = []
        self.config: dict[str, str] = {}
        self.stored: list[str] = []

    def describe(self, request: pb.Describe) -> pb.Described:
        settings = [
            pb.Setting(name="colour", required=True, documentation="Any will do."),
            pb.Setting(name="size", type="int", default="3"),
            pb.Setting(name="round", type="boolean"),
        ]
        return pb.Described(protocol_version=1, name="Program", version="0.1", settings=settings)

    def validate(self, request: pb.Validate) -> pb.Validated:
        names = [name for name in ("colour", "shape") if request.config.get(name) == "wrong"]
        return pb.Validated(problems=[pb.SettingProblem(setting=each, message=f"{each} is wrong") for each in names])

    def split(self, request: pb.Split) -> pb.Divided:
        return pb.Divided(tasks=[pb.TaskConfig(changes={"share": str(n)}) for n in range(request.tasks_max)])

    def start(self, request: pb.Start) -> pb.Started:
        self.config = dict(request.config)
        return pb.Started(wanted=[PARTITION])

    def position(self, request: pb.Position) -> pb.Done:
        for each in request.positions:
            if each.HasField("source_offset"):
                self.last = json.loads(each.source_offset)["n"]
        return pb.Done()

    def poll(self, request: pb.Poll) -> pb.Polled:
        time.sleep(0.01)
        numbers = range(self.last + 1, self.last + 1 + int(self.config["size"]))
        self.last = numbers[-1]
        batch = pb.RecordBatch(
            topic=self.config.get("topic", "t"),
            values=[str(n).encode() for n in numbers],
            source_partition=PARTITION,
            source_offset=json.dumps({"n": self.last}),
        )
        found = self.config.pop("finds", None)  # a partition, whose offset it wants to know
        return pb.Polled(batches=[batch], wanted=[json.dumps({"counter": found})] if found else [])

    def commit(self, request: pb.Commit) -> pb.Done:
        self.stored += [each.source_offset for each in request.positions]
        if "file" in self.config:
            Path(self.config["file"]).write_text("\n".join(self.stored))
        return pb.Done()

    def open(self, request: pb.Open) -> pb.Opened:
        start = self.config.get("begin.at")
        found = [pb.TopicPosition(topic=each.topic, partition=each.partition) for each in request.partitions]
        for each in found:
            each.offset = int(start or 0)
        return pb.Opened(positions=found if start else [])

    def close(self, request: pb.Close) -> pb.Done:
        return pb.Done()

    def put(self, request: pb.Put) -> pb.Taken:
        refused, index = [], 0
        awaited = self.config.get("wait.at")  # a file beside that of what is taken
        waits = awaited and not Path(self.config["file"]).with_name(awaited).exists()
        if waits and any(b"wait" in each.values for each in request.batches):
            raise Patience
        for batch in request.batches:
            for n, value in enumerate(batch.values):
                if value in (b"bad", b"busy"):
                    refused.append(pb.Refusal(index=index, message=f"{value!r} is refused", retry=value == b"busy"))
                elif value == b"nowhere":
                    refused.append(pb.Refusal(index=10_000))
                else:
                    self.taken.append(taken(batch, n))
                index += 1
        return pb.Taken(refused=refused)

    def flush(self, request: pb.Flush) -> pb.Done:
        with Path(self.config["file"]).open("a") as file:
            file.writelines(f"{json.dumps(each)}\n" for each in self.taken)
        self.taken.clear()
        return pb.Done()

    def stop(self, request: pb.Stop) -> pb.Done:
        return pb.Done()


def taken(batch: pb.RecordBatch, n: int) -> dict[str, object]:
    return {
        "at": [batch.topic, batch.partition, batch.offsets[n]],
        "key": None if n in batch.null_keys else batch.keys[n].decode(),
        "value": None if n in batch.null_values else batch.values[n].decode(),
        "headers": [[each.key, each.value.decode()] for each in batch.headers[n].headers] if batch.headers else [],
        "timestamp_ms": batch.timestamps_ms[n],
    }


def main() -> None:
    behaviours = dict(argument.split("=") for argument in sys.argv[1:])
    program, frames = Program(), FrameReader()
    while data := os.read(0, 1 << 16):
        for each in frames.take(data):
            request = pb.ToPlugin.FromString(each)
            kind = request.WhichOneof("request")
            assert kind is not None
            behaviour = behaviours.get(kind, "")
            if behaviour:
                BEHAVIOURS[behaviour](request.number)
            if not behaviour or behaviour in GO_ON:
                try:
                    answer = getattr(program, kind)(getattr(request, kind))
                    say(pb.FromPlugin(number=request.number, **{ANSWERS[kind]: answer}))
                except Patience:
                    fail(pb.Error.RETRY)(request.number)
            if kind == "stop":
                return


if __name__ == "__main__":
    main()
