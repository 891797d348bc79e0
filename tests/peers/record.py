#!/usr/bin/env python3
"""Runs a command and records what goes through its standard input and output.

  record.py FILE -- COMMAND [ARGUMENT]...

FILE, in whose name %p stands for our process id, gets one JSON object a line: {"t": seconds since the start, "dir": "out"
to the command or "in" from it, "msg": the line as JSON, or "raw": the line as text where it is none}, and {"t", "dir":
"note", "msg"} for the command's start, the end of either stream and its exit. Every line is written at once: a recording
is whole up to the moment at which anybody is killed.

It is not to be noticed. Bytes are passed on as they are, at once; so is the end of a stream, from either side; standard
error is not touched; the exit status, or the signal, is the command's. The command stays in our process group, so that a
signal to the group reaches it, once, and we wait for what it makes of it. If we are killed, the command is killed too
(Linux), as it would have been in our place.
"""

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time

PR_SET_PDEATHSIG = 1
# Of a longer line, this much is recorded.
LONGEST = 16 * 1024 * 1024
# How long the command's output has to be quiet after its exit. Whoever else holds the pipe open is not waited for.
QUIET = 0.05


def strict(constant):
    raise ValueError(f"{constant} is not JSON")


class Recording:
    def __init__(self, path):
        self.begun = time.monotonic()
        self.lock = threading.Lock()
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)

    def write(self, direction, **what):
        with self.lock:
            record = {"t": round(time.monotonic() - self.begun, 4), "dir": direction, **what}
            data = json.dumps(record).encode() + b"\n"
            while data:
                data = data[os.write(self.file, data) :]

    def line(self, direction, line, cut):
        try:
            if cut:
                raise ValueError("not all of it is here")
            self.write(direction, msg=json.loads(line, parse_constant=strict))
        except (ValueError, RecursionError):
            self.write(direction, raw=line.decode(errors="replace"), **({"cut": cut} if cut else {}))


class Stream:
    """One direction: what comes from `source` goes to `target`, and into the recording."""

    def __init__(self, recording, direction, source, target):
        self.recording, self.direction = recording, direction
        self.source, self.target = source, target
        self.ended = threading.Event()
        self.command_gone = threading.Event()
        self.line, self.cut = bytearray(), 0

    def run(self):
        how = "end"
        try:
            while self.ready():
                data = os.read(self.source, 65536)
                if not data:
                    break
                # Before it is passed on: an answer must not come before its question.
                self.record(data)
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(self.target, rest) :]
        except OSError as error:
            how = os.strerror(error.errno)
        # Whoever is on the other side learns of it, in both directions.
        for end in (self.source, self.target):
            try:
                os.close(end)
            except OSError:
                pass
        if self.line or self.cut:
            self.flush()
        self.recording.write("note", msg={"stream": self.direction, "closed": how})
        self.ended.set()

    def ready(self):
        """Waits for data or the end; False once the command is gone and nothing more comes."""
        while not select.select([self.source], [], [], QUIET)[0]:
            if self.command_gone.is_set():
                return False
        return True

    def record(self, data):
        *whole, rest = data.split(b"\n")
        for piece in whole:
            self.add(piece)
            self.flush()
        self.add(rest)

    def add(self, piece):
        room = LONGEST - len(self.line)
        self.line += piece[:room]
        self.cut += max(0, len(piece) - room)

    def flush(self):
        self.recording.line(self.direction, bytes(self.line), self.cut)
        self.line, self.cut = bytearray(), 0


def dies_with(parent):
    """For the new process, before it becomes the command."""
    libc = ctypes.CDLL(None, use_errno=True)

    def prepare():
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(127)

    return prepare if hasattr(libc, "prctl") else None


def main(arguments):
    if len(arguments) < 3 or arguments[1] != "--":
        sys.exit("usage: record.py FILE -- COMMAND [ARGUMENT]...")
    recording = Recording(arguments[0].replace("%p", str(os.getpid())))
    command = arguments[2:]
    # Not SIG_IGN, which the command would inherit.
    for ours in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(ours, lambda *_: None)
    try:
        child = subprocess.Popen(
            command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=dies_with(os.getpid()),
        )
    except OSError as error:
        recording.write("note", msg={"command": command, "error": os.strerror(error.errno)})
        sys.exit(f"record.py: {command[0]}: {os.strerror(error.errno)}")
    recording.write("note", msg={"command": command, "pid": child.pid})
    # Each stream owns its two descriptors, and closes them; the objects are kept, so that nothing else does.
    to = Stream(recording, "out", 0, child.stdin.fileno())
    of = Stream(recording, "in", child.stdout.fileno(), 1)
    for stream in (to, of):
        threading.Thread(target=stream.run, daemon=True).start()
    status = child.wait()
    of.command_gone.set()
    of.ended.wait()
    recording.write("note", msg={"exit": status})
    if status < 0:
        if -status not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    # At once: the other stream may be waiting for input that nobody wants any more.
    os._exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main(sys.argv[1:])
