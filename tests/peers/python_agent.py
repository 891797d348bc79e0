"""A scripted ACP agent on the official Python SDK: no model, the prompt says what it does.

A prompt holds words in double brackets, done in their order; what stands around them is ignored:

  [[say:TEXT]]     answers TEXT, in portions, as a model streams it
  [[drip:MS]]      from here on, MS milliseconds before each portion
  [[think:TEXT]]   a thought, which is no part of the answer
  [[run:COMMAND]]  a tool call that runs the shell command, in a session of its own as real agents do
  [[ask:COMMAND]]  the same, once the client permits it; if it does not, the call has failed and the turn goes on
  [[fail:TEXT]]    the turn ends as a model's failure: a JSON-RPC error with this message
  [[hang]]         nothing more comes, and only a cancel ends the turn
  [[crash]]        kills itself
  [[next]]         what follows is for the session's next prompt; the last part answers all that come after it

A prompt without words goes on with the session's script, or is repeated back if there is none. A cancel ends the turn at
once, with the tool that it runs; what that has put in a session of its own is left alive, and is the client's to find.
"""

import asyncio
import os
import re
import signal
import sys
import uuid

import acp
from acp.schema import (
    AgentCapabilities,
    Implementation,
    InitializeResponse,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    ToolCallUpdate,
    Usage,
)

# A word ends at the first `]]` before a space, another word or the end of the prompt, so that JSON can stand in it.
WORD = re.compile(r"\[\[(?:(say|drip|think|run|ask|fail):(.*?)|(hang|crash|next))\]\](?=\s|\[\[|$)", re.S)
PORTION = 16
OPTIONS = [
    PermissionOption(option_id="yes", name="Yes", kind="allow_once"),
    PermissionOption(option_id="always", name="Yes, always", kind="allow_always"),
    PermissionOption(option_id="no", name="No", kind="reject_once"),
]


def parse(text):
    """The words of a prompt, as parts of (word, argument)."""
    parts = [[]]
    for argued, argument, bare in WORD.findall(text):
        if bare == "next":
            parts.append([])
        else:
            parts[-1].append((argued or bare, argument))
    return parts if any(parts) or len(parts) > 1 else []


class Session:
    def __init__(self, client, session_id, cwd):
        self.client, self.id, self.cwd = client, session_id, cwd
        self.parts = []
        self.calls = 0
        self.turn = None

    def script(self, text):
        """What this prompt makes the agent do."""
        self.parts = parse(text) or self.parts
        if not self.parts:
            return [("say", f"echo: {text}")]
        return self.parts.pop(0) if len(self.parts) > 1 else self.parts[0]

    async def play(self, script):
        pause = 0
        for word, argument in script:
            if word == "say":
                await self.say(argument, pause)
            elif word == "drip":
                pause = int(argument) / 1000
            elif word == "think":
                await self.update(acp.update_agent_thought_text(argument))
            elif word in ("run", "ask"):
                await self.tool(argument, asks=word == "ask")
            elif word == "fail":
                raise acp.RequestError(-32603, argument, {"errorKind": "server_error"})
            elif word == "hang":
                await asyncio.Event().wait()
            elif word == "crash":
                os.kill(os.getpid(), signal.SIGKILL)

    async def update(self, update):
        await self.client.session_update(session_id=self.id, update=update)

    async def say(self, text, pause):
        for start in range(0, len(text), PORTION):
            await asyncio.sleep(pause)
            await self.update(acp.update_agent_message_text(text[start : start + PORTION]))

    async def tool(self, command, asks):
        self.calls += 1
        call = f"call-{self.calls}"
        await self.update(acp.start_tool_call(call, command, kind="execute", status="pending"))
        if asks and not await self.permitted(call, command):
            await self.update(acp.update_tool_call(call, status="failed"))
            return
        await self.update(acp.update_tool_call(call, status="in_progress"))
        process = await asyncio.create_subprocess_shell(
            command,
            cwd=self.cwd,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            output, _ = await process.communicate()
        except asyncio.CancelledError:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            raise
        content = [acp.tool_content(acp.text_block(output.decode(errors="replace")))]
        status = "failed" if process.returncode else "completed"
        await self.update(acp.update_tool_call(call, status=status, content=content))

    async def permitted(self, call, command):
        answer = await self.client.request_permission(
            session_id=self.id,
            tool_call=ToolCallUpdate(tool_call_id=call, title=command, kind="execute", status="pending"),
            options=OPTIONS,
        )
        return answer.outcome.outcome == "selected" and answer.outcome.option_id != "no"


class ScriptedAgent(acp.Agent):
    def __init__(self):
        self.client = None
        self.sessions = {}

    def on_connect(self, conn):
        self.client = conn

    async def initialize(self, protocol_version, client_capabilities=None, client_info=None, **_):
        return InitializeResponse(
            protocol_version=min(protocol_version, acp.PROTOCOL_VERSION),
            agent_capabilities=AgentCapabilities(),
            agent_info=Implementation(name="python-agent", title="Scripted agent", version="1"),
            auth_methods=[],
        )

    async def new_session(self, cwd, additional_directories=None, mcp_servers=None, **_):
        session = Session(self.client, uuid.uuid4().hex, cwd)
        self.sessions[session.id] = session
        return NewSessionResponse(session_id=session.id)

    async def prompt(self, prompt, session_id, **_):
        session = self.sessions.get(session_id)
        if session is None:
            raise acp.RequestError.invalid_params({"reason": f"no session {session_id}"})
        if session.turn is not None:
            raise acp.RequestError.invalid_request({"reason": "the turn before is not over"})
        text = "\n".join(getattr(block, "text", "") for block in prompt)
        # A task of its own: the SDK does not cancel the handler of a prompt.
        session.turn = asyncio.create_task(session.play(session.script(text)))
        try:
            await session.turn
        except asyncio.CancelledError:
            if not session.turn.cancelled():
                raise
            return PromptResponse(stop_reason="cancelled")
        finally:
            session.turn.cancel()
            session.turn = None
        words = len(text.split())
        usage = Usage(input_tokens=words, output_tokens=1, total_tokens=words + 1)
        return PromptResponse(stop_reason="end_turn", usage=usage)

    async def cancel(self, session_id, **_):
        session = self.sessions.get(session_id)
        if session is not None and session.turn is not None:
            session.turn.cancel()


if __name__ == "__main__":
    print("scripted agent: ready", file=sys.stderr)
    asyncio.run(acp.run_agent(ScriptedAgent()))
