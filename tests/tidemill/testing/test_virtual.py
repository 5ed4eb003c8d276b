"""The simulated world's loop and network, as users get them"""

import asyncio
import random

import tidemill.testing


def test_a_program_that_waits_and_talks_runs_in_no_time() -> None:
    network = tidemill.testing.VirtualNetwork(random.Random(1))

    async def hello(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(3600)
        writer.write(b"hello")
        writer.close()

    async def main() -> bytes:
        await asyncio.start_server(hello, "localhost", 1234)
        reader, _ = await asyncio.open_connection("localhost", 1234)
        return await reader.read()

    with asyncio.Runner(loop_factory=lambda: tidemill.testing.VirtualLoop(network=network)) as runner:
        assert runner.run(main()) == b"hello"
