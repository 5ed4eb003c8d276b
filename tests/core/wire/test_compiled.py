"""Codecs made when they are needed: only what is asked for, whole for every thread, readable in a traceback"""

import inspect
import itertools
import subprocess
import sys
import traceback
import zipfile
from pathlib import Path

import pytest

from tests.core.wire.message_strategies import KIND_IDS, KINDS, message_class, root
from tidemill.core.wire.codec import DecodeError, decode, encode
from tidemill.core.wire.messages.heartbeat import HeartbeatRequest
from tidemill.core.wire.messages.leave_group import LeaveGroupRequest
from tidemill.core.wire.schema import ApiSchema

ROOT = Path(__file__).resolve().parents[3]


def printed(program: str) -> list[str]:
    """What a process of its own prints, in which nothing is compiled yet."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()


def test_an_api_pays_for_its_codec_when_it_is_first_spoken() -> None:
    program = """
import sys
from tidemill.core.wire.codec import encode
from tidemill.core.wire.messages import fetch, heartbeat
def show():
    print("tidemill.core.wire.schema" in sys.modules, list(heartbeat.HeartbeatRequest.WRITERS))
show()
encode(heartbeat.HeartbeatRequest(), 1)
show()
encode(heartbeat.HeartbeatRequest(), 4)
show()
print(dict(heartbeat.HeartbeatRequest.READERS), dict(fetch.FetchRequest.WRITERS))
"""
    assert printed(program) == ["False []", "True [0, 1, 2]", "True [0, 1, 2, 4]", "{} {}"]


@pytest.mark.parametrize(("schema", "kind"), KINDS, ids=KIND_IDS)
def test_versions_of_equal_layout_share_one_codec_and_others_do_not(schema: ApiSchema, kind: str) -> None:
    cls = message_class(schema, kind)
    versions = range(schema.versions.first, schema.versions.last + 1)
    for version in versions:
        decode(cls, version, encode(cls(), version))
    layouts = [schema.layout(root(schema, kind), version) for version in versions]
    for before, after in itertools.pairwise(versions):
        equal = layouts[before - versions[0]] == layouts[after - versions[0]]
        assert (cls.READERS[before] is cls.READERS[after]) is equal
        assert (cls.WRITERS[before] is cls.WRITERS[after]) is equal


def test_a_traceback_and_a_debugger_show_the_source() -> None:
    with pytest.raises(DecodeError) as caught:
        decode(HeartbeatRequest, 4, b"\x05ab")
    text = "".join(traceback.format_exception(caught.value))
    assert 'File "Heartbeat.json: read HeartbeatRequest 4", line ' in text
    assert "fail_length(n - 1, o, end)" in text
    encode(HeartbeatRequest(), 4)
    assert inspect.getsource(HeartbeatRequest.WRITERS[4]).startswith("def write_HeartbeatRequest(m, out, chunks):\n")


def test_threads_that_ask_at_once_all_get_a_whole_codec() -> None:
    program = """
import sys, threading
from tidemill.core.wire.api import ALL_APIS
from tidemill.core.wire.codec import decode_exact, encode
sys.setswitchinterval(1e-6)
entries = ALL_APIS[:12]
barrier = threading.Barrier(4)
done = []
def ask():
    barrier.wait()
    for entry in entries:
        for cls in (entry.request, entry.response):
            for version in range(entry.min_version, entry.max_version + 1):
                assert decode_exact(cls, version, encode(cls(), version)) == cls()
    done.append(True)
threads = [threading.Thread(target=ask) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(done))
"""
    assert printed(program) == ["4"]


def test_a_codec_is_made_where_the_package_lies_in_an_archive(tmp_path: Path) -> None:
    """Where there are no files beside the modules, as for what is sent along as one."""
    archive = tmp_path / "parts.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        opened.write(ROOT / "tidemill" / "__init__.py", "tidemill/__init__.py")
        for path in (ROOT / "core").rglob("*"):
            opened.write(path, Path("tidemill", path.relative_to(ROOT)))
    program = f"""
import sys
sys.path.insert(0, {str(archive)!r})
import tidemill
from tidemill.core.wire.codec import encode
from tidemill.core.wire.messages.heartbeat import HeartbeatRequest
print(tidemill.__file__.startswith({str(archive)!r}), encode(HeartbeatRequest(), 4))
"""
    assert printed(program) == [f"True {encode(HeartbeatRequest(), 4)!r}"]


def test_a_codec_that_was_made_is_kept() -> None:
    encode(LeaveGroupRequest(), 5)
    writer = LeaveGroupRequest.WRITERS[5]
    encode(LeaveGroupRequest(), 5)
    encode(LeaveGroupRequest(), 0)
    assert LeaveGroupRequest.WRITERS[5] is writer
