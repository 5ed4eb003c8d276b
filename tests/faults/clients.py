"""The clients of a run as processes in the namespace of clients, each with its history

Three libraries write and read. What they have read so far is looked up in their histories, so that nobody has to ask
the cluster about it.
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import peers
from tests.faults import history
from tests.faults.history import Place
from tests.faults.hosts import CLIENTS, Hosts

SOURCE = Path(__file__).with_name("FaultClient.java")
ROOT = Path(__file__).resolve().parent.parent.parent
END_WITHIN_S = 150.0


@dataclass(slots=True)
class Client:
    """A process; the Java one is a writer and a reader at once."""

    name: str
    process: subprocess.Popen[bytes]
    writes: Path | None = None
    reads: Path | None = None

    def stop_writing(self) -> None:
        """A writer ends; one that reads as well goes on with that."""
        assert self.process.stdin is not None
        if self.writes is None:
            return
        with contextlib.suppress(BrokenPipeError):
            if self.reads is None:
                self.process.stdin.close()
            else:
                self.process.stdin.write(b"\n")
                self.process.stdin.flush()

    def stop(self) -> bool:
        """End it; False if it had to be killed."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return False
        return True


class Clients:
    """All of them."""

    def __init__(self, hosts: Hosts, bootstrap: str, folder: Path, topics: Mapping[str, int]) -> None:
        self._inside = hosts.inside(CLIENTS)
        self._bootstrap = bootstrap
        self._folder = folder
        self._topics = [f"{topic}:{count}" for topic, count in topics.items()]
        self.all: list[Client] = []

    def start(self, rate: float, *, java: bool) -> None:
        """Each writer asks for `rate` records in a second."""
        for library in ("librdkafka", "aiokafka"):
            self._writer(library, rate)
        for group, library, count in (("one", "librdkafka", 2), ("two", "aiokafka", 1)):
            for number in range(1, count + 1):
                self._reader(library, group, f"{library}-{number}")
        if java:
            self._java(rate)

    def _run(self, name: str, command: Sequence[str], writes: Path | None, reads: Path | None) -> None:
        with (self._folder / f"{name}.log").open("ab") as output:
            process = subprocess.Popen(
                [*self._inside, *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                start_new_session=True,  # a Ctrl-C is the kit's to hear
            )
        self.all.append(Client(name, process, writes, reads))

    def _writer(self, library: str, rate: float) -> None:
        name = f"writer-{library}"
        file = self._folder / f"{name}.history"
        arguments = [library, name, self._bootstrap, str(file), str(rate), *self._topics]
        self._run(name, [sys.executable, "-m", "tests.faults.writers", *arguments], file, None)

    def _reader(self, library: str, group: str, name: str) -> None:
        file = self._folder / f"reader-{name}.history"
        arguments = [library, group, name, self._bootstrap, str(file), *self._topics]
        self._run(f"reader-{name}", [sys.executable, "-m", "tests.faults.readers", *arguments], None, file)

    def _java(self, rate: float) -> None:
        libraries = f"{peers.libraries('kafka', peers.KAFKA)}/*"
        classes = self._folder / "classes"
        compiler = ["javac", "-cp", libraries, "-d", str(classes), str(SOURCE)]
        subprocess.run(compiler, check=True, timeout=120, capture_output=True)
        writes, reads = self._folder / "writer-java.history", self._folder / "reader-java.history"
        logging = self._folder / "clients-log4j2.properties"
        logging.write_text(peers.LOGGING)
        start = [
            "java", "-Xmx256M", "-XX:+UseSerialGC", f"-Dlog4j2.configurationFile={logging}",
            "-cp", f"{classes}:{libraries}", "FaultClient", self._bootstrap,
        ]  # fmt: skip
        roles = ["writer-java", str(writes), str(rate), "three", "java-1", str(reads)]
        self._run("java", [*start, *roles, *self._topics], writes, reads)

    @property
    def writers(self) -> list[Path]:
        """Their histories."""
        return [each.writes for each in self.all if each.writes is not None]

    @property
    def readers(self) -> list[Path]:
        """Their histories."""
        return [each.reads for each in self.all if each.reads is not None]


class Progress:
    """How far each group has read; looks only at what was written since the last look."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._looked = dict.fromkeys(files, 0)
        self._groups: dict[Path, str] = {}
        self.ends: dict[str, dict[Place, int]] = {}

    def look(self) -> dict[str, dict[Place, int]]:
        """The offset behind the last record that each group has read, by partition."""
        for file in self._looked:
            for event in self._new(file):
                if event.kind == "reader":
                    self._groups[file] = event.reason
                    self.ends.setdefault(event.reason, {})
                elif event.kind == "r":
                    ends = self.ends[self._groups[file]]
                    ends[event.place] = max(ends.get(event.place, 0), event.offset + 1)
        return self.ends

    def _new(self, file: Path) -> Iterator[history.Event]:
        if not file.exists():
            return
        with file.open("rb") as lines:
            lines.seek(self._looked[file])
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                self._looked[file] += len(line)
                yield history.parse(line.decode())
