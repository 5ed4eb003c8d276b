"""The world in which most tests of the herder machine begin"""

import pytest

from tests.connect.herder.machine_world import World
from tidemill.connect.herder import events as e


@pytest.fixture
def world() -> World:
    world = World()
    world.tell(e.Tick(now_ms=world.now_ms, up_ms=world.now_ms))
    world.tell(e.Assigned(generation=1))
    return world
