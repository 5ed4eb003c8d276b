"""Plugins that behave and misbehave in every way a task process has to cope with"""

import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence

import structlog
from pydantic import BaseModel, Field

from tidemill.connect.api import (
    Fatal,
    InvalidConfig,
    JobTask,
    NotConnected,
    Plugin,
    PluginKind,
    Record,
    SourceTask,
    TaskContext,
)
from tidemill.connect.sdk import Pos, check, source


class JobSettings(BaseModel):
    """How a job behaves."""

    mode: str = "wait"
    pid_file: str = Field(default="", alias="pid.file")


class Job(JobTask):
    """A job that does what its mode says."""

    def __init__(self, settings: JobSettings) -> None:
        self.settings = settings
        self.wanted = True

    def run(self, context: TaskContext) -> None:
        print("job runs in mode", self.settings.mode, flush=True)
        getattr(self, self.settings.mode)(context)

    def stop(self) -> None:
        self.wanted = False

    def wait(self, context: TaskContext) -> None:
        context.report({"waiting": True})
        while self.wanted and not context.stopping():
            time.sleep(0.02)

    def sleep(self, context: TaskContext) -> None:
        self._note(os.getpid())
        time.sleep(600)

    def hold_the_interpreter(self, context: TaskContext) -> None:
        """Stuck in C code with the interpreter's lock held: no Python of this process runs any more."""
        self._note(os.getpid())
        mutex, library = ctypes.create_string_buffer(64), ctypes.PyDLL(None)
        while True:  # the second time it waits for itself
            library.pthread_mutex_lock(mutex)

    def spin(self, context: TaskContext) -> None:
        while True:
            pass

    def deaf(self, context: TaskContext) -> None:
        """Blocks every signal that can be blocked."""
        signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
        self._note(os.getpid())
        time.sleep(600)

    def family(self, context: TaskContext) -> None:
        """Starts a child and a daemon that has cut all ties."""
        child = subprocess.Popen(["sleep", "600"])
        daemon = subprocess.run(
            [sys.executable, "-c", DAEMON], start_new_session=True, stdout=subprocess.PIPE, text=True, check=True
        )
        self._note(os.getpid(), child.pid, int(daemon.stdout))
        self.wait(context)

    def leave(self, context: TaskContext) -> None:
        pass

    def die(self, context: TaskContext) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def die_of_a_signal_without_a_name(self, context: TaskContext) -> None:
        os.kill(os.getpid(), signal.SIGRTMIN + 6)

    def flood(self, context: TaskContext) -> None:
        """Prints nothing but ends of lines, as fast as somebody reads them."""
        context.report({"flooding": True})
        while True:
            os.write(1, b"\n" * 65_536)

    def fail_and_stay(self, context: TaskContext) -> None:
        """Leaves a thread behind that an interpreter waits for."""
        threading.Thread(target=time.sleep, args=[600]).start()
        raise Fatal("told to fail")

    def become_another_program(self, context: TaskContext) -> None:
        os.execvp("sleep", ["sleep", "600"])

    def fork(self, context: TaskContext) -> None:
        """Has a child that leaves as a program does, rather than with `os._exit`."""
        child = os.fork()
        if child == 0:
            sys.exit(7)
        context.report({"child": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])})
        self.wait(context)

    def crash(self, context: TaskContext) -> None:
        print("the last words", flush=True)
        os._exit(3)

    def quit(self, context: TaskContext) -> None:
        sys.exit(0)

    def fail(self, context: TaskContext) -> None:
        raise Fatal("the disk is full: make room on it")

    def bug(self, context: TaskContext) -> None:
        raise ZeroDivisionError("a bug in the plugin")

    def quote(self, context: TaskContext) -> None:
        raise ValueError("x" * 5_000_000 + " the end")

    def absent(self, context: TaskContext) -> None:
        raise NotConnected("nobody is there")

    def hoard(self, context: TaskContext) -> None:
        self.hoarded = b"x" * (256 << 20)
        self.wait(context)

    def hoard_in_a_child(self, context: TaskContext) -> None:
        """All at once, in a session of its own."""
        hoard = "import time; hoarded = b'x' * (400 << 20); time.sleep(600)"
        subprocess.Popen([sys.executable, "-c", hoard], start_new_session=True)
        self.wait(context)

    def hoard_in_many(self, context: TaskContext) -> None:
        """Each of them stays below the limit."""
        for _ in range(4):
            subprocess.Popen([sys.executable, "-c", "import time; hoarded = b'x' * (80 << 20); time.sleep(600)"])
        self.wait(context)

    def share(self, context: TaskContext) -> None:
        """Memory that children have from it, and do not change."""
        hoarded = b"x" * (128 << 20)
        for _ in range(3):
            if os.fork() == 0:
                time.sleep(600)
                os._exit(len(hoarded))
        self.wait(context)

    def chatter(self, context: TaskContext) -> None:
        print("x" * 200_000, flush=True)
        print("still here", flush=True)
        self.wait(context)

    def log_like_others(self, context: TaskContext) -> None:
        """A plugin's own logger may name its facts as it likes."""
        names = ("method_name", "event_dict", "self", "level", "logger", "exc_info", "stack_info", "name", "_record")
        for name in names:
            print(f'{{"event": "fact {name}", "level": "warning", "{name}": "true"}}', flush=True)
        self.wait(context)

    def log_by_logging(self, context: TaskContext) -> None:
        """As most of Python does."""
        mine = logging.getLogger(f"{__name__}.part")
        mine.debug("nobody asked for it")
        mine.info("read %d rows", 7)
        try:
            raise ValueError("no such row")
        except ValueError:
            mine.exception("passed over")
        logging.getLogger("library").info("connecting")
        logging.getLogger("library").warning("slow")
        self.wait(context)

    def unspeakable(self, context: TaskContext) -> None:
        """Facts that are no JSON, a problem whose text is none, and a next try after the end of all time."""
        context.report({"large": 2**70, "odd": "\udcff", "numbers": {1: 2}, "good": 1})
        context.problem("file", "cannot read caf\udce9", retry_s=1e17)
        self.wait(context)

    def unspeakable_end(self, context: TaskContext) -> None:
        raise Fatal("cannot read caf\udce9")

    def _note(self, *pids: int) -> None:
        with open(self.settings.pid_file + ".part", "w", encoding="ascii") as file:
            file.write(" ".join(map(str, pids)))
        os.rename(self.settings.pid_file + ".part", self.settings.pid_file)


DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        os.close(1)
        time.sleep(600)
    os._exit(0)
os._exit(0)
"""


def check_job(settings: JobSettings) -> None:
    """Refuse some modes, each in its own way."""
    if settings.mode == "refused":
        raise InvalidConfig("mode", "mode refused is not allowed.", "Use wait.")
    if settings.mode == "slow":
        time.sleep(600)
    if settings.mode == "crash":
        os._exit(3)
    if settings.mode == "thread":
        threading.Thread(target=time.sleep, args=[600]).start()
    if settings.mode == "bug":
        raise ZeroDivisionError("a bug in the preflight")


job = Plugin(name="job", kind=PluginKind.SINK, version="1", config=JobSettings, task=Job, check=check_job)


class NumbersSettings(BaseModel):
    """Settings of the numbers."""

    topic: str
    count: int = 1000
    pause_ms: float = Field(default=0, alias="pause.ms")
    fail_at: int = Field(default=-1, alias="fail.at")


@source("numbers", version="1")
def numbers(cfg: NumbersSettings, pos: Pos) -> Iterator[Record]:
    """Counts, from where it was."""
    partition = {"counter": cfg.topic}
    start = (pos.get(partition) or {"next": 0})["next"]
    for number in range(start, cfg.count):
        if number == cfg.fail_at:
            raise ZeroDivisionError("told to fail")
        yield Record(
            topic=cfg.topic, key=str(number), value={"n": number}, partition=partition, offset={"next": number + 1}
        )
        if cfg.pause_ms:
            time.sleep(cfg.pause_ms / 1000)


@check(numbers)
def check_numbers(cfg: NumbersSettings) -> None:
    """Refuse to count to less than nothing."""
    if cfg.count < 0:
        raise InvalidConfig("count", "count is negative.", "Use zero or more.")


@source("spinner", version="1")
def spinner(cfg: NumbersSettings, pos: Pos) -> Iterator[Record]:
    """Computes for ever instead of reading."""
    while True:
        cfg.count += 1
    yield


@source("talker", version="1")
def talker(cfg: NumbersSettings, pos: Pos) -> Iterator[Record]:
    """Says that it is there, and gives nothing."""
    logging.getLogger(__name__).info("logged by a generator")
    while True:
        time.sleep(0.05)
    yield


class Speechless(Fatal):
    """An error that cannot even be told."""

    def __str__(self) -> str:
        raise ZeroDivisionError("a bug in the error")


class NeighbourSettings(BaseModel):
    """How a source that shares its process behaves."""

    mode: str = "wait"
    begin: str = ""  # a file: until it is there the source waits


class Neighbour(SourceTask):
    """A source without records that does in `poll` what its mode says."""

    def __init__(self, settings: NeighbourSettings) -> None:
        self.settings = settings
        self.polls = 0

    def start(self, context: TaskContext) -> None:
        self.context = context
        context.report({"thread": threading.get_ident()})

    def poll(self) -> Sequence[Record]:
        self.polls += 1
        self.context.report({"polls": self.polls})
        time.sleep(0.02)
        if not self.settings.begin or os.path.exists(self.settings.begin):
            getattr(self, self.settings.mode)()
        return []

    def wait(self) -> None:
        pass

    def fail(self) -> None:
        raise Fatal("told to fail")

    def fail_without_words(self) -> None:
        raise Speechless

    def fail_without_a_class(self) -> None:
        raise ValueError(type("KafkaError", (), {"code": lambda self: "another client's"})())

    def quit(self) -> None:
        sys.exit(0)

    def sleep(self) -> None:
        time.sleep(600)

    def crash(self) -> None:
        os._exit(3)

    def leave(self) -> None:
        os._exit(0)

    def talk(self) -> None:
        structlog.get_logger("tidemill.connect.task").info("logged")
        print("printed", flush=True)
        print("begun", end="")
        self.settings.mode = "wait"


neighbour = Plugin(name="neighbour", kind=PluginKind.SOURCE, version="1", config=NeighbourSettings, task=Neighbour)
