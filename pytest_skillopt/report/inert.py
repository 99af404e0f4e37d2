"""Text of unknown origin in Markdown: shown as it is written, and without any effect.

A pull request is read by a forge as well as by people: ``@name`` notifies somebody, ``fixes #1``
closes an issue, a line that starts with ``/`` is a command to GitLab. GitHub and GitLab look for
these in the rendered text, where a backslash or an entity no longer helps, so a zero-width space is
put inside what they look for. In code neither of them looks; there, only the end of the code must
not be written by the text itself.
"""

from __future__ import annotations

import re

from pytest_skillopt.report.text import one_line
from pytest_skillopt.untrusted import bound, printable

_GAP = "\u200b"
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_MARKS = re.compile(r"([\\`*_\[\]|~$])")
_REFERENCES = re.compile(
    r"([@#!%~$&^*])(?=[\w\"])"  # people, issues, requests, milestones, labels, snippets, epics
    r"|(?<=\bGH)(-)(?=\d)"
    r"|(:)(?=//|[a-z0-9_+-]+:)"  # addresses, emoji by name
    r"|(?<=\bwww)(\.)"
    r"|(\[)(?=[a-z_]+:\d)"
    r"|([0-9a-f]{6})(?=[0-9a-f])",  # commits
    re.IGNORECASE,
)
_START = re.compile(r"^(?:([-+=/#])|(\d{1,9})([.)]))")


def prose(text: str, most: int = 600) -> str:
    """One line of running text that holds no markup and refers to nobody and nothing."""
    line = one_line(bound(text, most * 3 // 4, most // 4))
    line = _REFERENCES.sub(lambda match: match[0] + _GAP, line)
    line = _MARKS.sub(r"\\\1", line)
    line = re.sub(r"[&<>]", lambda match: _ENTITIES[match[0]], line)
    return _START.sub(_escape_start, line)


def code(text: str, most: int = 300) -> str:
    """One line as a code span."""
    line = one_line(bound(text, most * 3 // 4, most // 4))
    if not line:
        return ""
    ticks = "`" * (_longest_run(line) + 1)
    # A span strips one space on either side, and could not begin or end with a backtick without.
    return f"{ticks} {line} {ticks}" if "`" in (line[0], line[-1]) else f"{ticks}{line}{ticks}"


def fenced(text: str, language: str = "") -> str:
    """A block of code whose fence is longer than any that the text holds."""
    block = printable(text).strip("\n")
    fence = "`" * max(_longest_run(block) + 1, 3)
    return f"{fence}{language}\n{block}\n{fence}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def _escape_start(match: re.Match[str]) -> str:
    """What would begin a list, a heading or a command at the start of a line."""
    return f"\\{match[1]}" if match[1] else f"{match[2]}\\{match[3]}"
