"""Untrusted text in Markdown; the style of pages and what their policy needs."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from functools import cache
from importlib.resources import files

from pytest_skillopt.untrusted import bound, printable
from pytest_skillopt.words import one_line

_GAP = "\u200b"
_MARKS = re.compile(r"([\\`*_\[\]|~$])")
_REFERENCES = re.compile(
    r"([@#!%~$&^*])(?=[\w\"])"  # people, issues, requests, milestones, labels, snippets, epics
    r"|(?<=\bGH)(-)(?=\d)"
    r"|(?-i:\b[A-Z][A-Z0-9_]+-)(?=\d)"  # keys of other trackers
    r"|(:)(?=//|[\w+-]+:)"  # addresses, emoji by name
    r"|(?<=\bwww)(\.)"
    r"|(\[)(?=[a-z_]+:\d|(?:skip|no|ci|actions)\b)"  # among them words that skip a CI
    r"|([0-9a-f]{6})(?=[0-9a-f])",  # commits
    re.IGNORECASE,
)
_START = re.compile(r"^(?:(?=[-+=/#])|(\d{1,9})(?=[.)]))")
"""Start of a line that would begin a list, a heading or a command."""


@cache
def style() -> str:
    """Return the style sheet of all pages."""
    return (files(__package__) / "templates" / "report.css").read_text(encoding="utf-8")


def hash_source(text: str) -> str:
    """Return the Content-Security-Policy source of a style or script with exactly this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def policy(css: str, *more: str) -> str:
    """Return the policy of a page: it fetches and runs nothing, and has only the given style.

    ``more`` are further directives.
    """
    first = ["default-src 'none'", f"style-src {hash_source(css)}", *more]
    return "; ".join([*first, "img-src data:", "base-uri 'none'", "form-action 'none'"])


def short(text: str, most: int = 1_200) -> str:
    """Shorten a text to its beginning and end, ``most`` characters together."""
    return bound(text, most * 3 // 4, most // 4)


def prose(text: str, most: int = 600) -> str:
    """Make one line of text without markup and without references to people or issues."""
    line = inert(one_line(short(text, most)))
    line = _MARKS.sub(r"\\\1", line)
    return _START.sub(r"\1\\", html.escape(line, quote=False))


def inert(text: str) -> str:
    """Put a gap that nobody sees into each reference of a Markdown text, also in its code."""
    return _REFERENCES.sub(lambda match: match[0] + _GAP, text)


def code(text: str, most: int = 300) -> str:
    """Make one line a code span."""
    line = one_line(short(text, most))
    if not line:
        return ""
    ticks = "`" * (_longest_run(line) + 1)
    # A span strips one space on either side; a backtick at its begin or end needs that space.
    return f"{ticks} {line} {ticks}" if "`" in (line[0], line[-1]) else f"{ticks}{line}{ticks}"


def fenced(text: str, language: str) -> str:
    """Make a code block whose fence is longer than any in the text."""
    block = printable(text).strip("\n")
    fence = "`" * max(_longest_run(block) + 1, 3)
    return f"{fence}{language}\n{block}\n{fence}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)
