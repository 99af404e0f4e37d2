"""The second skill: release notes from a git history, written by a coding agent.

What the simulated model does behind the agent, in the form of the Responses API (which Codex
speaks), and what the simulated optimizer makes of tasks that failed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_SKILL = "release-notes"
_PLACE = f".agents/skills/{_SKILL}/SKILL.md"
_COMMIT = re.compile(r"^(feat|fix|chore|ci|test)(!?): (.+?)\s*$", re.MULTILINE)
_SHELLS = ("exec_command", "shell_command", "shell")
_RULES = (
    (
        "of no use to users",
        "Leave out commits that users do not notice, such as those of continuous integration.",
    ),
    (
        "the section .* is missing|other lines are under",
        "Sort what is new under the heading `## Added` and what is mended under `## Fixed`.",
    ),
    (
        "should be the first item",
        "Breaking changes, marked with an exclamation mark, come first, above any section.",
    ),
)
"""What is said of a failure, and the rule that a thoughtful person would make of it."""


@dataclass
class Talk:
    """What the agent has sent."""

    text: str = ""
    tools: dict[str, Any] = field(default_factory=dict)
    calls: int = 0
    results: list[str] = field(default_factory=list)


def edits(body: str, shown: str) -> list[dict[str, str]]:
    """What the optimizer proposes.

    Args:
        body: of the skill.
        shown: the tasks that failed, as the optimizer is shown them.
    """
    missing = [rule for pattern, rule in _RULES if re.search(pattern, shown) and rule not in body]
    return [{"op": "append", "target": "", "content": f"- {rule}"} for rule in missing]


def is_about(document: str) -> bool:
    """Whether a skill's document is this one."""
    return f"name: {_SKILL}" in document


def stream(body: dict[str, Any]) -> bytes:
    """The model's next turn as server-sent events."""
    talk = _read(body)
    kind, said = _next_step(talk)
    part = {"type": "output_text", "text": said, "annotations": []}
    item: dict[str, Any] = {"type": "message", "role": "assistant", "content": [part]}
    if kind == "call":
        name = next(name for name in _SHELLS if name in talk.tools)
        properties: dict[str, Any] = talk.tools[name].get("properties", {})
        key = "cmd" if "cmd" in properties else "command"
        value = ["bash", "-lc", said] if properties[key].get("type") == "array" else said
        item = {"type": "function_call", "name": name, "arguments": json.dumps({key: value})}
        item["call_id"] = f"call_{talk.calls}"
    item |= {"id": f"item_{talk.calls}", "status": "completed"}
    asked, answered = len(json.dumps(body)) // 4, len(said) // 4 + 1
    usage = {"input_tokens": asked, "output_tokens": answered, "total_tokens": asked + answered}
    whole: dict[str, Any] = {"id": "resp_offline", "object": "response", "created_at": 0}
    whole |= {"error": None}
    whole |= {"model": body.get("model"), "status": "completed", "output": [item], "usage": usage}
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
    ]
    return "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events).encode()


def _read(body: dict[str, Any]) -> Talk:
    talk = Talk("\n".join(_texts([body.get("instructions"), body["input"]])))
    talk.tools = {t["name"]: t["parameters"] for t in body.get("tools", ()) if "parameters" in t}
    for item in body["input"]:
        talk.calls += item.get("type") == "function_call"
        if item.get("type") == "function_call_output":
            talk.results.append("\n".join(_texts(item["output"])))
    return talk


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def _next_step(talk: Talk) -> tuple[str, str]:
    """Open the skill, look at the history, write the notes, and say so."""
    if _SKILL not in talk.text:
        return "say", "I know of no way in which release notes are written here."
    if talk.calls == 0:
        return "call", f"cat {_PLACE}"
    if talk.calls == 1:
        return "call", "git log --reverse --format=%s $(git describe --tags --abbrev=0)..HEAD"
    if talk.calls == 2:
        notes = _notes(talk.results[0], _COMMIT.findall(talk.results[1]))
        return "call", f"cat > NOTES.md <<'END'\n{notes}\nEND"
    return "say", "The release notes are in NOTES.md."


def _notes(skill: str, commits: list[tuple[str, str, str]]) -> str:
    """The notes as far as the skill says how they are written."""
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
