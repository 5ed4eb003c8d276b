"""A worker that only runs the job it is told to, for tests that kill it"""

import asyncio
import signal
import sys

from tidemill.connect.api import ConverterSpec, PluginKind
from tidemill.connect.remote.host import TaskHost
from tidemill.connect.task_spec import TaskId, TaskSpec

# Whoever was started in the background of a script ignores it, and so would all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


async def main(mode: str, pid_file: str) -> None:
    text = ConverterSpec(kind="string")
    async with TaskHost() as host:
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


asyncio.run(main(sys.argv[1], sys.argv[2]))
