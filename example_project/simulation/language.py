"""Reading instructions: statements of a Markdown text, and whether a phrase in them is negated."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_FRONTMATTER = re.compile(r"\A\ufeff?---\r?\n.*?\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_HEADING = re.compile(r"\s{0,3}(#{1,6})\s+(.*)")
_BULLET = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+(.*)")
_FENCE = re.compile(r"\s*(?:```|~~~)")
# A full stop ends a sentence only before a capital, a quote or a backtick: "e.g. 3.50" goes on.
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"(])|;\s+")
_NEGATOR = (
    r"(?:\b(?:not|never|avoid|neither|nor|refrain from|stop|forbidden to|instead of|rather than|"
    r"without|no need to)\b|n't\b)"
)


@dataclass(frozen=True, slots=True)
class Statement:
    """One sentence or list item in lower case, without markup.

    ``context`` is what it stands under: the nearest heading below the title, and a lead-in that
    ends with a colon.
    """

    context: str
    text: str

    @property
    def full(self) -> str:
        return f"{self.context}: {self.text}" if self.context else self.text


def strip_frontmatter(text: str) -> str:
    return _FRONTMATTER.sub("", text, count=1)


def statements(text: str) -> list[Statement]:
    """The statements of a Markdown text, frontmatter and comments left out."""
    return list(_statements(_COMMENT.sub("", strip_frontmatter(text))))


def is_negated(text: str, position: int, *, reach: int = 6) -> bool:
    """Whether the phrase that starts at ``position`` is negated within its own clause.

    Args:
        reach: how many words may stand between the negation and the phrase.
    """
    clause = re.split(r"[,:;()]|\bbut\b", text[:position])[-1]
    between = rf"(?:\s+[\w'/-]+){{0,{reach}}}\s*$"
    return re.search(_NEGATOR + between, clause) is not None


def plain(text: str) -> str:
    """Lower case, with typographic and Markdown characters taken out."""
    text = text.replace("\u2019", "'").replace("_", " ").replace("\u2013", "-")
    text = re.sub(r"[`*\"\u201c\u201d|]", " ", text)
    return re.sub(r"\s+", " ", text).strip().lower()


def _statements(text: str) -> Iterator[Statement]:
    for context, block in _blocks(text):
        for sentence in _SENTENCE_END.split(block):
            if cleaned := plain(sentence):
                yield Statement(context, cleaned)


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Paragraphs, list items and lines of code, each with its context."""
    heading, lead, block, fenced = "", "", "", False
    for line in [*re.split(r"\r\n|\r|\n", text), ""]:
        if _FENCE.match(line):
            fenced = not fenced
            continue
        title, bullet = _HEADING.match(line), _BULLET.match(line)
        starts_new = fenced or title or bullet or not line.strip() or line.lstrip().startswith("|")
        if starts_new and block:
            yield _context(heading, lead), block
            # A lead-in speaks for the list under it, until the next paragraph.
            lead = block if block.rstrip().endswith(":") else lead
            block = ""
        if title and not fenced:
            heading, lead = (title[2] if len(title[1]) > 1 else ""), ""
        elif bullet and not fenced:
            block = bullet[1]
        elif line.strip():
            if not block and not fenced and not line.startswith((" ", "\t", "|")):
                lead = ""
            block = f"{block} {line.strip()}".strip()


def _context(heading: str, lead: str) -> str:
    return ", ".join(filter(None, (plain(heading), plain(lead).rstrip(":"))))
