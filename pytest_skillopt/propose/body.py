"""The words of a request: what we vouch for first, then the proposal's own text, made inert.

The text was rendered next to a model's output and may have been tampered with since. Outside of
fences, where forges act on what they read, it may not mention anybody, refer to or close an issue,
run a quick action, load an image, or carry a footnote or HTML other than folding.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt

from pytest_skillopt.propose.manifest import sha256
from pytest_skillopt.propose.validate import beside
from pytest_skillopt.report.markdown import prose
from pytest_skillopt.report.words import percent
from pytest_skillopt.untrusted import printable, redact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_skillopt.propose.validate import Checked

MAX_BODY = 60_000
"""Bytes of a request's text; GitHub takes 65,536 characters."""

_BREAK = "\u200b"
"""Zero-width space: the words stay readable, and are no mention or reference any more."""

_ACTIVE = (
    (
        re.compile(r"<(?=[A-Za-z/!?])(?!/?(?:details|summary|br|sub|sup|kbd)(?: open)? ?/?>)"),
        "&lt;",
    ),
    # A forge looks for mentions in the rendered text, where an entity is the character.
    (re.compile(r"&(?=[#A-Za-z])(?!(?:amp|lt|gt|quot|nbsp);)"), f"&{_BREAK}"),
    (re.compile(r"@(?=[\w\[(*_`~\\-])"), f"@{_BREAK}"),
    (re.compile(r"(?<=[#!])(?=\d)"), _BREAK),
    (re.compile(r"(?<=\bGH-)(?=\d)", re.IGNORECASE), _BREAK),
    (
        re.compile(r"/(issues|pulls?|merge_requests|work_items|discussions)/(?=\d)", re.IGNORECASE),
        rf"/\1/{_BREAK}",
    ),
    (re.compile(r"^([\s>*+-]*(?:\d+[.)]\s+)?)/(?=[A-Za-z])"), rf"\1{_BREAK}/"),
    (re.compile(r"!(?=\[)"), f"!{_BREAK}"),
    # A footnote is what forges know and CommonMark does not: without one both see the same blocks.
    (re.compile(r"\[(?=\^)"), f"[{_BREAK}"),
)


def compose(skill: Checked, text: str, *, simulated: bool, run_url: str = "") -> str:
    """The whole text of a skill's request, at most :data:`MAX_BODY` bytes.

    ``text`` is the proposal's Markdown, not to be trusted; ``run_url`` leads to the CI run that
    holds the report and is ``""`` outside of CI.
    """
    head = "\n\n".join(_vouched(skill, simulated, run_url))
    rest = inert(text, MAX_BODY - len(head.encode()) - 2)
    return f"{head}\n\n{rest}".rstrip() + "\n"


def title(skill: Checked) -> str:
    """One line: the skill and what it gains."""
    return f"Train the skill {skill.name}: pass rate {_gain(skill)}"


def marker(skill: Checked) -> str:
    """A comment that names this very change, so that a declined one is recognised."""
    digest = sha256("\0".join((skill.path, skill.before.version, skill.after.version)).encode())
    return f"<!-- skillopt-proposal: {digest[:32]} -->"


def _vouched(skill: Checked, simulated: bool, run_url: str) -> Iterator[str]:
    rates = skill.rates
    yield marker(skill)
    yield (
        f"The pass rate of the suite rises from {_gain(skill)}: "
        f"{rates.tasks} tasks, {_rollouts(skill)}, recomputed from the counts. "
        f"{_changed(skill)}."
    )
    if skill.warnings:
        yield "Look at this before you merge:"
        yield "\n".join(f"- {prose(str(warning), 400)}" for warning in skill.warnings[:20])
    if skill.scanned:
        yield f"The scanner `{skill.scanned.replace('`', '')}` let it pass."
    if simulated:
        yield "**A simulated model was measured. The figures say nothing about a real one.**"
    if run_url:
        yield f"The full report is among the artifacts of [the run that proposed it]({run_url})."
    yield "Rebuilt by every training until somebody pushes to the branch."


def _changed(skill: Checked) -> str:
    files = [
        f"`{beside(skill.path, name)}`"
        for name in skill.after.names
        if skill.after.file(name) != skill.before.file(name)
    ] or [f"`{skill.path}`"]
    if len(files) == 1:
        return f"The only file that changes is {files[0]}"
    return f"The only files that change are {', '.join(files)}"


def _gain(skill: Checked) -> str:
    return f"{percent(float(skill.rates.before))} to {percent(float(skill.rates.after))}"


def _rollouts(skill: Checked) -> str:
    if not skill.from_search:
        return f"{skill.rates.samples} fresh rollouts"
    return (
        f"{skill.rates.samples} rollouts (fresh, but for those before of {skill.from_search} "
        "tasks, which are of the search)"
    )


def inert(text: str, limit: int = MAX_BODY) -> str:
    """Markdown of unknown origin that a forge only shows.

    Args:
        text: Markdown.
        limit: bytes of the result; what is cut off is said.
    """
    # The gaps that a renderer has put into mentions are as invisible as a trick, and stay.
    text = redact(_BREAK.join(printable(part) for part in text.split(_BREAK)))
    for _ in range(8):
        # Escaping a tag can move where a code block begins, so once is not enough.
        calm = _calm(text)
        if calm == text:
            return _cut(calm, limit)
        text = calm
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    ticks = "`" * max(3, longest + 1)
    return _cut(f"{ticks}\n{text}\n{ticks}", limit)


def _calm(text: str) -> str:
    lines = text.split("\n")
    code = _code_lines(text)
    return "\n".join(line if n in code else _break_line(line) for n, line in enumerate(lines))


def _break_line(line: str) -> str:
    for pattern, replacement in _ACTIVE:
        line = pattern.sub(replacement, line)
    return line


def _code_lines(text: str) -> set[int]:
    """Numbers, from 0, of the lines inside of fences; the fences' own lines are outside.

    Indented code is treated as text: how deep is deep enough depends on the dialect.
    """
    found: set[int] = set()
    for token in MarkdownIt("commonmark").parse(text):
        if token.map and token.type == "fence":
            found.update(range(token.map[0] + 1, token.map[1] - 1))
    return found


def _cut(text: str, limit: int) -> str:
    """The start, without a fence that the cut leaves open."""
    if len(text.encode()) <= limit:
        return text
    short = text.encode()[: max(limit - 200, 0)].decode("utf-8", "ignore").rpartition("\n")[0]
    tokens = [token for token in MarkdownIt("commonmark").parse(short) if token.map]
    if tokens and tokens[-1].type == "fence" and tokens[-1].map:
        short = "\n".join(short.split("\n")[: tokens[-1].map[0]])
    return f"{short}\n\n(Cut here. The report holds the rest.)"
