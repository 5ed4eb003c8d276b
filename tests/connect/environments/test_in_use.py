"""An environment is used for as long as a process of it is there"""

import os
import signal
from pathlib import Path

from tidemill.connect.environments import in_use


def test_it_is_held_by_whoever_was_forked_until_the_last_has_ended(tmp_path: Path) -> None:
    environment = str(tmp_path)
    (tmp_path / in_use.DESCRIPTION).write_text("{}")
    assert not in_use.is_held(environment)
    file = in_use.hold(environment)
    other = in_use.hold(environment)
    child = os.fork()
    if child == 0:
        signal.pause()
    os.close(file)
    os.close(other)
    assert in_use.is_held(environment)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert not in_use.is_held(environment)


def test_what_was_removed_meanwhile_is_not_there_any_more(tmp_path: Path) -> None:
    environment = tmp_path / "e"
    for _ in range(2):
        environment.mkdir()
        (environment / in_use.DESCRIPTION).write_text("{}")
        file = in_use.hold(str(environment))
        assert in_use.is_still(file, str(environment))
        environment.rename(tmp_path / f"gone-{file}")
        assert not in_use.is_still(file, str(environment))
    environment.mkdir()
    (environment / in_use.DESCRIPTION).write_text("{}")
    assert not in_use.is_still(file, str(environment)), "of the same name, and another"
