"""Lives of workers: one that is over is known by its lock, whoever held it last"""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tidemill.connect.group.lives import BOOT_ID, MARK, Life, LifeFacts, Lives, is_running
from tidemill.connect.remote.process_ties import end_marked


@pytest.fixture
def lives(tmp_path: Path) -> Lives:
    return Lives(tmp_path / "tidemill" / "group")


def facts(member_id: str = "", generation: int = -1) -> LifeFacts:
    return LifeFacts(
        worker_id="w:1",
        process=os.getpid(),
        member_id=member_id,
        generation=generation,
        kernel=BOOT_ID.read_text().strip(),
    )


def of(life: Life, told: LifeFacts) -> LifeFacts:
    return replace(told, name=life.environ[MARK])


def test_what_a_life_started_is_found_though_it_has_not_kept_the_file(lives: Lives) -> None:
    before, now = lives.begin("w:1"), lives.begin("w:1")
    child = subprocess.Popen(["sleep", "600"], env={**os.environ, **before.environ})
    other = subprocess.Popen(["sleep", "600"], env={**os.environ, **now.environ})
    os.close(before.descriptor)
    ((over,), _) = lives.look(but=now)
    try:
        assert end_marked(over.mark) and child.wait(10) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        for each in (child, other):
            each.kill()
            each.wait()


def test_a_life_goes_on_until_the_last_process_that_has_inherited_it_is_gone(lives: Lives) -> None:
    before, now = lives.begin("w:1"), lives.begin("w:1")
    before.is_member("m1", 7)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(before.descriptor,))
    os.close(before.descriptor)  # as if this process had been killed
    assert lives.look(but=now) == ([], [of(before, facts("m1", 7))])
    child.kill()
    child.wait()
    assert lives.look(but=now) == ([of(before, facts("m1", 7))], [])
    lives.forget(of(before, facts("m1", 7)))
    assert lives.look(but=now) == ([], [])


def test_what_is_written_later_is_shorter(lives: Lives) -> None:
    before, now = lives.begin("w:1"), lives.begin("w:2")
    before.is_member("a long name of a member", 1_000_000)
    before.is_member("m", 1)
    assert lives.look(but=now) == ([], [of(before, facts("m", 1))])


def test_a_life_that_ended_in_order_and_was_the_last_says_so(lives: Lives) -> None:
    before, now = lives.begin("w:1"), lives.begin("w:2")
    before.is_member("m1", 7, 5)
    before.close()
    left = replace(of(before, facts("m1", 7)), alone_in=5)
    assert lives.look(but=now) == ([left], [])
    lives.forget(left)
    assert lives.look(but=now) == ([], [])


def test_a_life_that_is_not_the_last_any_more_leaves_nothing(lives: Lives) -> None:
    before, now = lives.begin("w:1"), lives.begin("w:2")
    before.is_member("m1", 7, 5)
    before.is_member("m1", 8)
    before.close()
    assert lives.look(but=now) == ([], [])


def test_a_life_that_ended_in_order_leaves_nothing(lives: Lives) -> None:
    before, now = lives.begin("w:1"), lives.begin("w:2")
    before.close()
    assert lives.look(but=now) == ([], [])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[1]",
        b"{",
        b'["w", 1, "m", 3]',
        b'["w", 1, "m", 3, "k"]',
        b'["w", 1, 2, 3, "k", 4]',
        b'["w", "1", "m", 3, "k", 4]',
        b'["w", 1, "m", 3, "k", "4"]',
    ],
)
def test_a_file_that_says_nothing_is_left(lives: Lives, tmp_path: Path, content: bytes) -> None:
    now = lives.begin("w:1")
    (tmp_path / "tidemill" / "group" / "x.life").write_bytes(content)
    assert lives.look(but=now) == ([], [])


def test_a_folder_that_others_may_write_to_is_not_used(lives: Lives, tmp_path: Path) -> None:
    (tmp_path / "tidemill").mkdir()
    (tmp_path / "tidemill").chmod(0o777)
    with pytest.raises(PermissionError):
        lives.begin("w:1")


def test_the_locks_of_another_kernel_say_nothing(tmp_path: Path) -> None:
    """Two machines share the folder on a file system that keeps locks to itself: each sees those of the other free."""
    here, there = Lives(tmp_path / "t" / "g", "one"), Lives(tmp_path / "t" / "g", "two")
    life = there.begin("w:2")
    life.is_member("m2", 4)
    os.close(life.descriptor)  # as it looks from here
    assert here.look(but=here.begin("w:1")) == ([], [])
    assert [each.member_id for each in there.look(but=there.begin("w:2"))[0]] == ["m2"]


def test_groups_and_clusters_have_their_own() -> None:
    lives = [Lives.of_group(cluster, f"{group}{os.getpid()}") for cluster in ("a", "b") for group in ("a", "b")]
    begun = [each.begin("w:1") for each in lives]
    others = lives[0].begin("w:2")
    assert [each.look(but=others) for each in lives] == [([], [of(life, facts())]) for life in begun]
    for life in (*begun, others):
        life.close()


def test_whether_a_process_runs() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert is_running(os.getpid()) and not is_running(child.pid)
