"""What a start loads of the APIs, and what comes behind it"""

import subprocess
import sys
from pathlib import Path

from tests.broker.broker_world import broker_and_client
from tidemill.broker.dispatch import served_apis
from tidemill.broker.first_routes import LATER
from tidemill.broker.routes import LATER_ROUTES
from tidemill.core.error_code import ErrorCode
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.describe_cluster import DescribeClusterRequest


def test_what_is_loaded_later_is_told_from_the_start() -> None:
    assert dict(served_apis(LATER_ROUTES)) == dict(LATER.windows)


def test_a_start_does_not_load_what_administrators_ask() -> None:
    program = "import sys, tidemill.broker.node; print('tidemill.broker.handlers.topics' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


async def test_it_is_served_all_the_same(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (_, client):
        answer = await client.ask(ApiKey.DESCRIBE_CLUSTER, 0, DescribeClusterRequest())
        assert answer.error_code == ErrorCode.NONE
