"""The skill of a coding agent: release notes from a git history.

The model behind the agent speaks the Responses API, as Codex does.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_COMMIT = re.compile(r"^(feat|fix|chore|ci|test)(!?): (.+?)\s*$", re.MULTILINE)
_SHELLS = ("exec_command", "shell_command", "shell")
CAUSES = {
    "no use to users": (
        "Leave out commits that users do not notice, such as those of continuous integration."
    ),
    "the section .* is missing|other lines are": (
        "Sort what is new under the heading `## Added` and what is mended under `## Fixed`."
    ),
    "be the first item": (
        "Breaking changes, marked with an exclamation mark, come first, above any section."
    ),
}
"""Rules that a thoughtful person would make of failures, by words of their messages."""


def stream(body: dict[str, Any]) -> bytes:
    """Return the model's next turn as server-sent events."""
    said = "\n".join(_texts([body.get("instructions"), body["input"]]))
    results = ["\n".join(_texts(i["output"])) for i in body["input"] if "output" in i]
    kind, said = _next_step(said, results)
    part = {"type": "output_text", "text": said, "annotations": []}
    item: dict[str, Any] = {"type": "message", "role": "assistant", "content": [part]}
    if kind == "call":
        tools = {tool["name"]: tool["parameters"] for tool in body["tools"] if "parameters" in tool}
        name = next(name for name in _SHELLS if name in tools)
        key = "cmd" if "cmd" in tools[name]["properties"] else "command"
        listed = tools[name]["properties"][key].get("type") == "array"
        item = {"type": "function_call", "name": name, "call_id": f"call_{len(results)}"}
        item["arguments"] = json.dumps({key: ["bash", "-lc", said] if listed else said})
    item |= {"id": f"item_{len(results)}", "status": "completed"}
    asked = len(json.dumps(body)) // 4
    answered = len(said) // 4 + 1
    usage = {"input_tokens": asked, "output_tokens": answered, "total_tokens": asked + answered}
    begun = {"id": "resp_offline", "object": "response", "created_at": 0, "error": None}
    begun |= {"model": body.get("model"), "status": "in_progress", "output": [], "usage": None}
    ended = {**begun, "status": "completed", "output": [item], "usage": usage}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": ended},
    ]
    return "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events).encode()


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def _next_step(said: str, results: list[str]) -> tuple[str, str]:
    """Open the skill, look at the history, write the notes, and say so."""
    if "release-notes" not in said:
        return "say", "I know of no way in which release notes are written here."
    if not results:
        return "call", "cat .agents/skills/release-notes/SKILL.md"
    if len(results) == 1:
        return "call", "git log --reverse --format=%s $(git describe --tags --abbrev=0)..HEAD"
    if len(results) == 2:
        notes = _notes(results[0], _COMMIT.findall(results[1]))
        return "call", f"cat > NOTES.md <<'END'\n{notes}\nEND"
    return "say", "The release notes are in NOTES.md."


def _notes(skill: str, commits: list[tuple[str, str, str]]) -> str:
    """Write the notes as far as the skill says how."""
    rules = " ".join(skill.lower().split())
    if "leave out" in rules and "notice" in rules:
        commits = [commit for commit in commits if commit[0] in ("feat", "fix")]
    items = [(kind, bang, f"- {text}") for kind, bang, text in commits]
    lines = ["# 1.1", ""]
    if re.search(r"breaking changes[^.]*first", rules):
        lines += [line for _, bang, line in items if bang]
        items = [item for item in items if not item[1]]
    if "## added" in rules and "## fixed" in rules:
        for heading, wanted in (("## Added", "feat"), ("## Fixed", "fix")):
            lines += ["", heading, *(line for kind, bang, line in items if kind == wanted)]
        items = [item for item in items if item[0] not in ("feat", "fix")]
    return "\n".join([*lines, *(line for _, _, line in items)])
