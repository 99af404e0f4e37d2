"""Extract a person's requests from transcripts of past agent sessions.

The formats of transcripts change, but each turn states its role. So any JSON or JSONL file is
searched for turns of the user; text in them that was written by a tool or machine is dropped.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pytest_skillopt.errors import UsageError, UserError
from pytest_skillopt.untrusted import parsed, printable, redact

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

SHORTEST, LONGEST = 15, 8_000
"""Characters of a request: shorter ones are e.g. "yes", longer ones pasted documents."""
_MOST_CLEANED = 2 * LONGEST
"""Maximum characters of a turn before cleaning, which may shorten it."""
_READ = (
    "sessions of Claude Code, Codex, OpenCode, Cursor, Copilot, VS Code's Copilot Chat and Devin "
    "(ATIF)"
)
_MOST_FILES = 2_000
_MOST_BYTES = 100_000_000

_MACHINE = re.compile(
    r"\s*(?:<[a-zA-Z][\w-]*[ >]|# AGENTS\.md|Caveat: |\[Request interrupted|This session is being|"
    r"Base directory for this skill: )"
)
_ASIDE = ("isMeta", "isSidechain", "isSynthetic", "parent_tool_use_id")
"""Keys of Claude Code's entries that hold a skill's text or the talk with a subagent."""
_ASKED, _ASKED_END = "<user_query>", "</user_query>"
"""Marks of the request in a turn of Cursor, after its own blocks."""
_PERSONAL = (
    (re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+"), "someone@example.com"),
    (re.compile(r"(?<![\w.])\+?\d(?:[ ()/-]?\d){8,14}(?![\w.])"), "555-0100"),
    (re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])"), "192.0.2.1"),
    (re.compile(r"(?<=/home/)[\w.-]+|(?<=/Users/)[\w.-]+|(?<=\\Users\\)[\w.-]+"), "someone"),
)


def read_requests(path: Path) -> tuple[int, tuple[str, ...]]:
    """Return how many files there are, one or those of a folder, and the requests in them.

    They are without secrets, personal data and duplicates, from the newest file first.

    Raises:
        UserError: the path does not exist, or has no requests.
    """
    if not path.exists():
        raise UsageError(f"--from: there is no {path}")
    files = [path] if path.is_file() else sorted(_transcripts(path), reverse=True)
    if not files:
        raise UserError(f"there is no transcript in {path}: .jsonl and .json files are read")
    texts = (text for file in files[:_MOST_FILES] for text in _of_file(file))
    cleaned = (clean(text) for text in texts if len(text) <= _MOST_CLEANED)
    requests = tuple(distinct(text for text in cleaned if SHORTEST <= len(text) <= LONGEST))
    if not requests:
        raise UserError(
            f"no turn of a user was found in {path}: {_READ} are read, and any JSON or JSONL whose "
            'turns say {"role": "user"}'
        )
    return len(files[:_MOST_FILES]), requests


def _transcripts(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*.json*"):
        if path.suffix in (".json", ".jsonl") and path.is_file() and not path.is_symlink():
            yield path


def _of_file(file: Path) -> Iterator[str]:
    if file.stat().st_size > _MOST_BYTES:
        return
    text = file.read_text(encoding="utf-8", errors="replace")
    try:
        yield from _turns(parsed(text))
    except ValueError:
        for line in text.split("\n"):
            with suppress(ValueError):  # the last line of a session that is still open
                yield from _turns(parsed(line))


def _turns(value: Any, depth: int = 0) -> Iterator[str]:
    if depth > 12:
        return
    if isinstance(value, list):
        for element in value:
            yield from _turns(element, depth + 1)
    elif isinstance(value, dict) and not any(map(value.get, _ASIDE)):
        if _role(value).lower() in ("user", "human", "user.message"):
            yield from _requests(_text(value).strip())
            return
        for name, inner in value.items():
            if name != "subagent_trajectories":
                yield from _turns(inner, depth + 1)


def _requests(text: str) -> Iterator[str]:
    """Yield what a person wrote in a turn, if anything."""
    if _ASKED in text and text.endswith(_ASKED_END):
        text = text.partition(_ASKED)[2].removesuffix(_ASKED_END).strip()
    if text and not _MACHINE.match(text):
        yield text


def _role(value: dict[str, Any]) -> str:
    """Return who speaks in a turn, or what kind of entry it is."""
    info = value.get("info")
    role = value.get("role") or (info.get("role") if isinstance(info, dict) else "")
    if not role and "message" in value:
        role = _role_of_message(value)
    return str(role or value.get("type", ""))


def _role_of_message(value: dict[str, Any]) -> str:
    """Return the role of a request of VS Code's chat, or of a step of an ATIF trajectory."""
    message = value["message"]
    source = value.get("source")
    if "step_id" in value or source in ("user", "agent", "system"):
        return "copied" if value.get("is_copied_context") else str(source)
    asked = isinstance(message, dict) and isinstance(message.get("text"), str)
    is_request = "response" in value or "requestId" in value
    if asked and is_request and not value.get("isSystemInitiated"):
        return "user"
    return ""


def _text(value: Any) -> str:
    """Return the text of a turn, without results of tools."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(filter(None, (_text(element) for element in value)))
    if isinstance(value, dict):
        if value.get("type") in ("tool_result", "image", "file", "tool", "document"):
            return ""
        for key in ("content", "text", "parts", "message", "data"):
            if value.get(key):
                return _text(value[key])
    return ""


def clean(text: str) -> str:
    """Remove secrets, personal data (addresses, numbers, user names) and odd characters."""
    text = redact(printable(text))
    for pattern, stand_in in _PERSONAL:
        text = pattern.sub(stand_in, text)
    return text.strip()


def distinct(texts: Iterable[str]) -> Iterator[str]:
    """Yield the first of all texts with the same words."""
    known: set[frozenset[str]] = {frozenset()}
    for text in texts:
        words = frozenset(re.findall(r"\w+", text.lower()))
        if words not in known:
            known.add(words)
            yield text
