"""Trim what a coding agent printed on loopback to the events that its reader knows.

    python trim.py < printed > NAME.jsonl

``.ci/harnesses record`` does it for every agent that does not speak the Agent Client Protocol.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

KEPT = re.compile(
    "result|message|tool_use|tool_result|message_end|tool_execution_(start|end)|agent_end|"
    "assistant[.]message|tool[.]execution_(start|complete)"
)
DROPPED = re.compile(
    "uuid|apiCallId|(session|message|parent|interaction|turn|originatingMessage)_?(id|Id|ID)|"
    "timestamp|usage|stats|tokens|cost|api|provider|model|snapshot|metadata|time|title|rte|"
    "duration_(ms|api_ms)|num_turns|permission_denials|messages|tool(Title|Telemetry)|"
    "shell(ToolInfo|Execution)|(detailedC|c)ontents|outputTokens|detailedContent"
)
FOLDER = re.compile(r"/tmp/pytest-of-[^\s\"'<>]*?/work\b")


def trimmed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: trimmed(item) for key, item in value.items() if not DROPPED.fullmatch(key)}
    if isinstance(value, list):
        return [trimmed(item) for item in value]
    return FOLDER.sub("/workspace", value) if isinstance(value, str) else value


for line in sys.stdin:
    event = json.loads(line)
    if KEPT.fullmatch(event.get("type", "")):
        sys.stdout.write(json.dumps(trimmed(event), ensure_ascii=False) + "\n")
