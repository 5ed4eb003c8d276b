"""A worker that only runs the job it is told to, for tests that kill it"""

import asyncio
import signal
import sys

from tidemill.connect.api import ConverterSpec, PluginKind
from tidemill.connect.remote.host import TaskHost
from tidemill.connect.task_spec import TaskId, TaskSpec
from tidemill.core.runtime.clock import seconds_since_boot

# Whoever was started in the background of a script ignores it, and so would all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


async def renew(host: TaskHost, lease_s: float) -> None:
    while True:
        host.lease(seconds_since_boot() + lease_s)
        await asyncio.sleep(lease_s / 10)


async def main(mode: str, pid_file: str, lease_s: float = 0.0) -> None:
    text = ConverterSpec(kind="string")
    async with TaskHost() as host, asyncio.TaskGroup() as tasks:
        if lease_s:
            tasks.create_task(renew(host, lease_s))
        await host.start_task(
            TaskSpec(
                task=TaskId("doomed", 0),
                incarnation=1,
                plugin="task_plugins:job",
                kind=PluginKind.SINK,
                config={"mode": mode, "pid.file": pid_file},
                bootstrap_servers="127.0.0.1:1",
                key_converter=text,
                value_converter=text,
                offsets_topic="offsets",
                worker_id="w",
            )
        )
        async for event in host.events():
            print(event, flush=True)


asyncio.run(main(sys.argv[1], sys.argv[2], *map(float, sys.argv[3:])))
