"""Drives the rig over MCP with the official Python client, in both eras.

    client.py stdio COMMAND ARG...
    client.py http URL
    client.py evals COMMAND ARG...      runs the rig's evals as tools
    client.py lab COMMAND ARG...        chooses a rig of the lab, which has a rig r1
"""

import asyncio
import os
import sys

from mcp import Client, MCPError, StdioServerParameters

# A wait that only a cancellation ends in time.
FOREVER = {"channel": "AUX", "min": 9, "max": 10, "within_ms": 60000}


async def drive(server, mode):
    logs = []

    async def log(params):
        logs.append(params.data)

    async with Client(server, mode=mode, read_timeout_seconds=60, logging_callback=log, log_level="debug") as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert "self_test" in names and "measure" in names, names

        result = await client.call_tool("measure", {"channel": "3V3"})
        assert not result.is_error and "volts" in result.structured_content, result

        heard = []

        async def progress(done, total, message):
            heard.append((done, total))

        result = await client.call_tool("self_test", {}, progress_callback=progress)
        assert result.structured_content == {"passed": 6, "failed": 0}, result
        assert heard == [(done, 6) for done in range(1, 7)], heard
        assert logs, "no log came"

        result = await client.call_tool("measure", {"channel": "nope"})
        assert result.is_error and "nope" in result.content[0].text, result
        try:
            await client.call_tool("no_such_tool", {})
            raise AssertionError("an unknown tool was called")
        except MCPError as error:
            assert error.error.code == -32602, error

        # The reason of a failure with outputs reaches the agent: anthropics/claude-code#79944.
        result = await client.call_tool("wait_for", FOREVER | {"within_ms": 50})
        assert result.is_error and result.structured_content is None, result
        assert "not from 9.000 to 10.000 V" in result.content[0].text, result
        # What clients add to arguments, null, and numbers as text: n8n-io/n8n#21500, rossoctl/examples#175, VibiumDev/vibium#85.
        result = await client.call_tool("measure", {"channel": "3V3", "samples": "4", "toolCallId": "x", "_y": {}})
        assert result.structured_content["samples"] == 4, result
        result = await client.call_tool("measure", {"channel": "3V3", "samples": None})
        assert result.structured_content["samples"] == 16, result
        result = await client.call_tool("power", {"rail": "3V3", "on": True, "volts": 5})
        assert result.is_error and "volts" in result.content[0].text, result

        # A rail that is on goes off when a call is cancelled, and the next result says so.
        result = await client.call_tool("power", {"rail": "3V3", "on": True})
        assert not result.is_error, result

        # Cancelling the task sends `notifications/cancelled`, or closes the stream.
        waiting = asyncio.create_task(client.call_tool("wait_for", FOREVER))
        await asyncio.sleep(0.5)
        waiting.cancel()
        try:
            await waiting
            raise AssertionError("the call was not cancelled")
        except asyncio.CancelledError:
            pass
        started = asyncio.get_running_loop().time()
        result = await client.call_tool("measure", {"channel": "3V3"})
        assert not result.is_error, result
        assert "outputs_switched_off" in result.structured_content, result
        result = await client.call_tool("state", {})
        assert result.structured_content["rails_on"] == [], result
        # In the legacy era over HTTP there is nothing that cancels for sure but the notification.
        assert asyncio.get_running_loop().time() - started < 20, "the cancelled call still runs"
        print(f"python {mode} {client.protocol_version}: lists, calls, progress, errors, cancels")


async def drive_evals(server, mode):
    async with Client(server, mode=mode, read_timeout_seconds=120) as client:
        # Whatever result these tools have, the client checks against their output schemas.
        assert {"list_evals", "run_eval"} <= {tool.name for tool in (await client.list_tools()).tools}
        listed = await client.call_tool("list_evals", {})
        ids = [found["id"] for found in listed.structured_content["evals"]]
        assert "rails/eval.yaml" in ids, ids

        heard = []

        async def progress(done, total, message):
            heard.append((done, total))

        result = await client.call_tool("run_eval", {"id": "rails/eval.yaml", "trials": 2}, progress_callback=progress)
        outcome = result.structured_content
        assert not result.is_error and outcome["verdict"] == "pass", result
        assert [task["trialsPassed"] for task in outcome["tasks"]] == [2, 2, 2], outcome
        assert heard == [(done, 6) for done in range(1, 7)], heard

        result = await client.call_tool("run_eval", {"id": "broken/eval.yaml"})
        assert not result.is_error and result.structured_content["verdict"] == "fail", result
        result = await client.call_tool("run_eval", {"id": "nothing"})
        assert result.is_error and "nothing" in result.content[0].text, result

        waiting = asyncio.create_task(client.call_tool("run_eval", {"id": "rails/eval.yaml", "trials": 1000}))
        await asyncio.sleep(1)
        waiting.cancel()
        try:
            await waiting
            raise AssertionError("the run was not cancelled")
        except asyncio.CancelledError:
            pass
        result = await client.call_tool("measure", {"channel": "3V3"})
        assert not result.is_error, result
        print(f"python {mode} {client.protocol_version}: lists evals, runs them, progress, errors, cancels")


async def drive_lab(server, mode):
    """An agent that knows no target: it finds a rig, leases it, has its tools, and gives it back."""
    changes = asyncio.Queue()

    async def message(received):
        if getattr(received, "method", None) == "notifications/tools/list_changed":
            changes.put_nowait(received)

    async def listen(client):
        async with client.listen(tools_list_changed=True) as subscription:
            async for event in subscription:
                changes.put_nowait(event)

    async with Client(server, mode=mode, read_timeout_seconds=60, message_handler=message) as client:
        listening = asyncio.create_task(listen(client)) if mode == "auto" else None
        await asyncio.sleep(0.5)

        async def names():
            return {tool.name for tool in (await client.list_tools()).tools}

        own = await names()
        assert {"lab_list", "lease", "release"} <= own and "measure" not in own, own
        listed = await client.call_tool("lab_list", {})
        rigs = [rig["name"] for rig in listed.structured_content["rigs"]]
        assert "r1" in rigs, rigs
        result = await client.call_tool("lease", {})
        assert result.is_error and "rig" in result.content[0].text, result
        result = await client.call_tool("lease", {"rig": "r1", "wait_s": 30})
        assert not result.is_error and result.structured_content["rig"] == "r1", result
        await asyncio.wait_for(changes.get(), 30)
        assert "measure" in await names(), await names()
        result = await client.call_tool("measure", {"channel": "3V3"})
        assert not result.is_error and "volts" in result.structured_content, result
        while not changes.empty():
            changes.get_nowait()
        result = await client.call_tool("release", {})
        assert result.structured_content == {"released": True, "rig": "r1"}, result
        await asyncio.wait_for(changes.get(), 30)
        assert await names() == own, await names()
        if listening:
            listening.cancel()
        print(f"python {mode} {client.protocol_version}: chooses a rig of the lab, has its tools, gives it back")


async def main():
    kind, *words = sys.argv[1:]
    if kind == "lab":
        for mode in ["auto", "legacy"]:
            server = StdioServerParameters(command=words[0], args=words[1:], env={"RIGLINE_LAB_DIR": os.environ["RIGLINE_LAB_DIR"]})
            await asyncio.wait_for(drive_lab(server, mode), 120)
        return
    if kind == "evals":
        for mode in ["auto", "legacy"]:
            server = StdioServerParameters(command=words[0], args=words[1:])
            await asyncio.wait_for(drive_evals(server, mode), 300)
        return
    for mode in ["auto", "legacy"]:
        server = StdioServerParameters(command=words[0], args=words[1:]) if kind == "stdio" else words[0]
        await asyncio.wait_for(drive(server, mode), 120)


asyncio.run(main())
