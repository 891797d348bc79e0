"""Calls the tool as a user of the Python SDK would, and says on stdout what came: client.py MODE SCENARIO [URL]."""

import asyncio
import json
import os
import pathlib
import sys

from mcp import Client, StdioServerParameters

mode, scenario, *url = sys.argv[1:]
server = url[0] if url else StdioServerParameters(command="subagents", args=["mcp"], env=dict(os.environ))
PATIENCE = 60


def told(result):
    text = "".join(block.text for block in result.content if block.type == "text")
    return {"error": bool(result.is_error), "text": text, "structured": result.structured_content}


async def call(client, prompt, **more):
    return await client.call_tool("subagent", {"description": "a short task", "prompt": prompt}, **more)


async def appears(path):
    for _ in range(PATIENCE * 50):
        if path.exists():
            return
        await asyncio.sleep(0.02)
    raise TimeoutError(path)


async def gives_up(client, child):
    """Once by its own deadline, once because its user has changed his mind."""
    seen = []
    try:
        seen.append(told(await call(client, "hangs", read_timeout_seconds=4)))
    except Exception as error:
        seen.append({"raised": f"{type(error).__name__}: {error}"})
    # Whoever watches looks whether anything is left, and says so.
    (child / "gave-up-1").touch()
    await appears(child / "go-on-1")
    for name in ("hangs", "held"):
        (child / name).unlink()
    task = asyncio.create_task(call(client, "hangs"))
    await appears(child / "hangs")
    task.cancel()
    try:
        seen.append(told(await task))
    except asyncio.CancelledError:
        seen.append({"raised": "CancelledError"})
    (child / "gave-up-2").touch()
    await appears(child / "go-on-2")
    seen.append(told(await call(client, "answer Still there.")))
    return seen


async def main():
    progress = []

    async def note(done, total, message):
        progress.append([done, total, message])

    async with Client(server, mode=mode) as client:
        seen = {
            "protocol": client.protocol_version,
            "tools": [tool.model_dump(mode="json", by_alias=True) for tool in (await client.list_tools()).tools],
        }
        if scenario in ("one", "http"):
            seen["calls"] = [told(await call(client, "answer The child says 42.", progress_callback=note))]
        elif scenario == "five":
            calls = (call(client, f"together {n}", progress_callback=note) for n in range(1, 6))
            seen["calls"] = [told(result) for result in await asyncio.gather(*calls)]
        elif scenario == "fails":
            seen["calls"] = [told(await call(client, "fails"))]
        elif scenario == "gives-up":
            seen["calls"] = await gives_up(client, pathlib.Path("../child"))
        else:
            seen["calls"] = [told(await call(client, "hangs"))]
        seen["progress"] = progress
    print(json.dumps(seen))


asyncio.run(main())
