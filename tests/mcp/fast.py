"""Drives the rig over MCP with FastMCP's client.

    fast.py stdio COMMAND ARG...
    fast.py http URL
    fast.py confirm COMMAND ARG...      a server that has `power` confirmed
"""

import asyncio
import sys

from fastmcp import Client
from fastmcp.client.transports import StdioTransport

# A wait that only a cancellation ends in time.
FOREVER = {"channel": "AUX", "min": 9, "max": 10, "within_ms": 60000}


async def drive(server):
    heard = []

    async def progress(done, total, message):
        heard.append((done, total))

    async with Client(server) as client:
        names = [tool.name for tool in await client.list_tools()]
        assert {"self_test", "measure"} <= set(names), names

        measured = await client.call_tool("measure", {"channel": "3V3"})
        assert "volts" in measured.structured_content, measured
        tested = await client.call_tool("self_test", {}, progress_handler=progress)
        assert tested.structured_content == {"passed": 6, "failed": 0}, tested
        assert heard and all(total == 6 for _, total in heard), heard

        # The reason of a failure reaches the agent, whatever is wrong.
        for arguments, reason in [({"channel": "nope"}, "nope"), ({}, "channel")]:
            failed = await client.call_tool("measure", arguments, raise_on_error=False)
            assert failed.is_error and reason in failed.content[0].text, failed
        told = await client.call_tool("last_failure", {})
        assert told.structured_content["tool"] == "measure", told

        waiting = asyncio.create_task(client.call_tool("wait_for", FOREVER))
        await asyncio.sleep(0.5)
        waiting.cancel()
        try:
            await waiting
            raise AssertionError("the call was not cancelled")
        except asyncio.CancelledError:
            pass
        started = asyncio.get_running_loop().time()
        assert not (await client.call_tool("measure", {"channel": "3V3"})).is_error
        assert asyncio.get_running_loop().time() - started < 20, "the cancelled call still runs"

        resources = {str(resource.uri) for resource in await client.list_resources()}
        assert "rigline://manifest" in resources, resources
        manifest = (await client.read_resource("rigline://manifest"))[0].text
        assert '"measure"' in manifest, manifest
    print("fastmcp: lists, calls, progress, failures, cancels, reads")


async def confirm(server):
    asked = []

    async def answer(message, response_type, params, context):
        asked.append(message)
        return {}

    power = {"rail": "3V3", "on": True}
    async with Client(server, elicitation_handler=answer) as client:
        done = await client.call_tool("power", power, raise_on_error=False)
        assert not done.is_error and len(asked) == 1 and "power" in asked[0], (done, asked)
    async with Client(server) as client:
        refused = await client.call_tool("power", power, raise_on_error=False)
        assert refused.is_error and "confirmation" in refused.content[0].text and len(asked) == 1, (refused, asked)
    print("fastmcp: confirms, and is refused where it cannot")


async def main():
    kind, *words = sys.argv[1:]
    server = words[0] if kind == "http" else StdioTransport(command=words[0], args=words[1:], keep_alive=False)
    await asyncio.wait_for(confirm(server) if kind == "confirm" else drive(server), 120)


asyncio.run(main())
