#!/usr/bin/env python3
"""Cuts a recording of record.py down to a transcript, for the replay in actors/acp/src/transcripts.rs.

  transcript.py RECORDING > actors/acp/src/transcripts/AGENT-SCENARIO.wire

A transcript has a line for each message: `< ` and what the agent wrote, or `> ` and what it was sent. They are the true
messages, but for this: what differs from run to run and from machine to machine (ids, paths, ports) is replaced, each by
the same throughout; lists of commands, models and options are cut to their first entries.
"""

import json
import re
import sys

# As many entries of a long list are kept.
KEPT = 3
LISTS = {"availableCommands", "availableModels", "options"}
# What differs, and how it is written instead; each that is different gets a number of its own.
DIFFERENT = [
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "00000000-0000-4000-8000-{:012}"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "{:032}"),
    (re.compile(r"\bses_[0-9A-Za-z]{10,}"), "ses_{:026}"),
    (re.compile(r"\bmsg_[0-9a-f]{12}[0-9A-Za-z]{10,}"), "msg_{:026}"),
    (re.compile(r"(?<=127\.0\.0\.1:)[0-9]+"), "{}"),
    (re.compile(r"/tmp/peers-[0-9A-Za-z]+"), "/srv/agent-{}"),
]


def cut(value, key=None, within=None):
    if isinstance(value, dict):
        return {key: cut(inner, key, value) for key, inner in value.items()}
    if isinstance(value, list):
        # The options of a permission are no long list.
        long = key in LISTS and not (within and "toolCall" in within)
        return [cut(inner) for inner in (value[:KEPT] if long else value)]
    return value


def main(path):
    seen = {}

    def same(pattern, instead):
        def replace(match):
            known = seen.setdefault(pattern, {})
            return instead.format(known.setdefault(match.group(), len(known) + 1))

        return replace

    with open(path, encoding="utf-8") as recording:
        for record in map(json.loads, recording):
            if record["dir"] == "note":
                continue
            line = record.get("raw")
            if line is None:
                line = json.dumps(cut(record["msg"]), ensure_ascii=False, separators=(",", ":"))
            for pattern, instead in DIFFERENT:
                line = pattern.sub(same(pattern, instead), line)
            print("<" if record["dir"] == "in" else ">", line)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
