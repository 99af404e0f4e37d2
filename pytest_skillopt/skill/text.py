"""One text file: bytes in, bytes out.

A text is its bytes; frontmatter, body and protected regions are views with offsets into the
decoded text. YAML and Markdown are never re-serialised. Strict UTF-8 decoding is reversible, so
that slicing the text loses no byte: BOM, CRLF and a missing final newline are kept.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import yaml

from pytest_skillopt.errors import UserError

MANAGED = ("guidance", "reminders")
"""Blocks that only the trainer writes; ordinary edits may not change them."""

NEWLINE = r"(?:\r\n|(?<!\r)\n|\r(?!\n))"
"""One line ending of any style, never half of a CRLF."""

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")
_BREAK = re.compile(NEWLINE)
_FRONTMATTER = re.compile(
    rf"\ufeff?(?:---[ \t]*{NEWLINE}(?:[^\r\n]*{NEWLINE})*?---[ \t]*(?:{NEWLINE}|\Z))?"
)
_FENCE = re.compile(r"(?:[ \t]|[-*+>]|\d{1,9}[.)])*(?P<run>`{3,}|~{3,})(?P<info>[^\r\n]*)")
_THEIRS = {"slow_update": "guidance", "appendix": "reminders"}
"""Names of MANAGED by those that SkillOpt writes in its markers."""
OWN_MARKER = re.compile(
    r"<!--\s*(?:/?skillopt:|(?:SLOW_UPDATE|APPENDIX)_(?:START|END)\s*-->)", re.IGNORECASE
)
"""Begin of a marker of a region, or a marker of SkillOpt's."""
# A marker between backticks is a mention of the marker.
_MARKER = re.compile(
    r"(?<!`)<!--\s*(?:(?P<close>/?)skillopt:(?P<name>keep|guidance|reminders)"
    r"|(?P<theirs>SLOW_UPDATE|APPENDIX)_(?P<end>START|END))\s*-->(?!`)",
    re.IGNORECASE,
)
_CONFLICT = re.compile(r"^(?:<{7} .*|={7}\r?|>{7} .*)$", re.MULTILINE)
"""Markers of a conflict, as git writes them."""
# PyYAML raises these besides its own errors for a scalar with a wrong tag.
_YAML_FAULTS = (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, RecursionError)


class SkillError(UserError, ValueError):
    """A skill file or document that cannot be used; the message says which, why and what to do."""


@dataclass(frozen=True, slots=True)
class Region:
    """A part of the text with its markers or delimiter lines: ``text[start:end]``."""

    name: str
    """``keep``, ``guidance`` or ``reminders`` if it is protected; ``code`` for a code block."""
    start: int
    end: int
    closed: bool = True
    """False if its end is missing: it extends to the end of the document."""


@dataclass(frozen=True)
class Text:
    """A text file as it is on disk. Texts with equal bytes are equal."""

    data: bytes

    @classmethod
    def from_bytes(cls, data: bytes) -> Text:
        """Check that the bytes are an editable text.

        Raises:
            SkillError: empty or blank, not UTF-8 (names the byte offset), or holding a NUL, or the
                conflict of a merge outside of code blocks (names its line).
        """
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise SkillError(
                f"not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start} "
                "cannot be decoded; save the file as UTF-8"
            ) from None
        if not text.strip("\ufeff \t\r\n"):
            raise SkillError("empty: write a first line, which the training can edit")
        if "\0" in text:
            offset = data.index(b"\0")
            raise SkillError(f"not a text file: NUL byte at offset {offset}; save it as UTF-8")
        found = cls(data)
        if line := found._conflict():
            raise SkillError(
                f"not merged: line {line} begins a conflict; choose a side and remove the markers, "
                "or put an example of a conflict into a code block"
            )
        return found

    @classmethod
    def from_text(cls, text: str) -> Text:
        """Make a text as ``from_bytes``; a lone surrogate is an error too."""
        try:
            return cls.from_bytes(text.encode("utf-8"))
        except UnicodeEncodeError as error:
            raise SkillError(f"not valid text: lone surrogate at character {error.start}") from None

    def _conflict(self) -> int:
        """Return the line of the first conflict outside of code blocks, as git marks it; else 0."""
        begin = 0
        due = "<"
        for match in _CONFLICT.finditer(self.text):
            sign = match[0][0]
            if sign == "<":
                begin = match.start()
                due = "="
            elif sign == due == "=":
                due = ">"
            elif sign == due == ">":
                due = "<"
                above = bisect_right(self.fences, begin, key=lambda fence: fence.start)
                if not above or self.fences[above - 1].end <= begin:
                    return _line_of(self.text, begin)
        return 0

    @cached_property
    def text(self) -> str:
        """The decoded bytes, with BOM and original line endings."""
        return self.data.decode("utf-8")

    @cached_property
    def body_start(self) -> int:
        """Offset of the body in ``text``."""
        head = _FRONTMATTER.match(self.text)
        return head.end() if head else 0

    @property
    def frontmatter_text(self) -> str:
        """Raw text before the body: the BOM and the frontmatter with its delimiter lines."""
        return self.text[: self.body_start]

    def same_frontmatter(self, other: Text) -> bool:
        """Compare byte for byte, except for the final line ending.

        A document that consists only of frontmatter may lack it.
        """
        mine = self.frontmatter_text
        theirs = other.frontmatter_text
        return mine.rstrip("\r\n") == theirs.rstrip("\r\n")

    @property
    def body(self) -> str:
        return self.text[self.body_start :]

    @property
    def frontmatter(self) -> dict[str, Any] | None:
        """The frontmatter as a mapping; None if there is none or it does not parse."""
        return _parse(self.frontmatter_text)[0]

    @property
    def name(self) -> str:
        """``name`` of the frontmatter, else empty."""
        return self._stated("name")

    @property
    def description(self) -> str:
        """``description`` of the frontmatter, else empty."""
        return self._stated("description")

    def _stated(self, key: str) -> str:
        value = (self.frontmatter or {}).get(key)
        return value if isinstance(value, str) else ""

    @cached_property
    def newline(self) -> str:
        """The most common line ending of the document; LF if it has none."""
        found = _BREAK.findall(self.text)
        return max(("\n", "\r\n", "\r"), key=found.count)

    @cached_property
    def fences(self) -> tuple[Region, ...]:
        """Fenced code blocks of the body, by CommonMark's rules; lenient in lists and quotes."""
        found: list[Region] = []
        opened: tuple[int, str] | None = None
        position = self.body_start
        for line in split_lines(self.body):
            match = _FENCE.match(line)
            run, info = match.groups() if match else ("", "")
            if opened is None:
                if run and (run[0] == "~" or "`" not in info):
                    opened = (position, run)
            elif run.startswith(opened[1]) and not info.strip():
                found.append(Region("code", opened[0], position + len(line)))
                opened = None
            position += len(line)
        if opened:
            found.append(Region("code", opened[0], len(self.text), closed=False))
        return tuple(found)

    @cached_property
    def _regions(self) -> tuple[tuple[Region, ...], tuple[str, ...]]:
        """Protected regions and their faults.

        Markers inside a closed code block are text; after a fence that never closes they count,
        because it is safer to protect too much.
        """
        text = self.text
        regions: list[Region] = []
        warnings: list[str] = []
        opened: tuple[str, int] | None = None
        blocks = [fence for fence in self.fences if fence.closed]
        for match in _MARKER.finditer(text, self.body_start):
            if any(block.start <= match.start() < block.end for block in blocks):
                continue
            name, closes = _read_marker(match)
            if opened is None and not closes:
                opened = (name, match.start())
            elif opened and closes and name == opened[0]:
                regions.append(Region(name, opened[1], match.end()))
                opened = None
            elif opened is None:
                warnings.append(
                    f"line {_line_of(text, match.start())} closes no region: {match[0]}"
                )
        if opened:
            regions.append(Region(opened[0], opened[1], len(text), closed=False))
            warnings.append(
                f"the region skillopt:{opened[0]} opened on line {_line_of(text, opened[1])} is "
                "never closed; everything after it is protected"
            )
        return tuple(regions), tuple(warnings)

    @property
    def regions(self) -> tuple[Region, ...]:
        """Protected regions of the body, in order."""
        return self._regions[0]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Faults of the document, which are left as they are."""
        fault = _parse(self.frontmatter_text)[1]
        found = [fault] if fault else []
        for block in self.fences:
            if not block.closed:
                line = _line_of(self.text, block.start)
                found.append(
                    f"the code block opened on line {line} is never closed, so that no edit can be "
                    "appended: close it"
                )
        return (*found, *self._regions[1])

    @property
    def unloadable(self) -> str:
        """Reason why agents that keep to the Agent Skills format do not load it; else empty."""
        found, fault = _parse(self.frontmatter_text)
        if fault:
            return "the frontmatter cannot be read"
        if found is None:
            begins = self.text.lstrip("\ufeff \t\r\n").startswith("---")
            return (
                "the frontmatter is not closed, or not at the top" if begins else "no frontmatter"
            )
        missing = [key for key in ("name", "description") if not self._stated(key).strip()]
        return f"the frontmatter has no {' and no '.join(missing)}" if missing else ""

    @property
    def tokens(self) -> int:
        """Estimated length in tokens, at four characters each, rounded up."""
        return -(-len(self.text) // 4)

    def protected(self, start: int, end: int) -> Region | None:
        """Return the first protected region that overlaps ``start`` to ``end``, or holds it."""
        return _overlapped(self.regions, start, end)

    def fence_at(self, offset: int) -> Region | None:
        """Return the code block that holds the offset."""
        return _overlapped(self.fences, offset, offset)


def _read_marker(match: re.Match[str]) -> tuple[str, bool]:
    """Return the name of a marker's region, and if it closes the region."""
    if match["theirs"]:
        return _THEIRS[match["theirs"].lower()], match["end"].lower() == "end"
    return match["name"].lower(), bool(match["close"])


def with_markers_of_skillopt(text: str) -> str:
    """Return a skill's text with the markers by which SkillOpt knows guidance and reminders."""
    theirs = {name: marker.upper() for marker, name in _THEIRS.items()}

    def renamed(match: re.Match[str]) -> str:
        name, closes = _read_marker(match)
        if name not in theirs:
            return match[0]
        return f"<!-- {theirs[name]}_{'END' if closes else 'START'} -->"

    return _MARKER.sub(renamed, text)


@lru_cache(maxsize=64)
def _parse(frontmatter: str) -> tuple[dict[str, Any] | None, str]:
    """Return the frontmatter as a mapping, or None with its fault, empty if it is missing."""
    lines = split_lines(frontmatter.removeprefix("\ufeff"))
    if not lines:
        return None, ""
    try:
        value = yaml.safe_load(to_lf("".join(lines[1:-1])))
    except _YAML_FAULTS as error:
        reason = to_lf(str(error)).split("\n")[0] or type(error).__name__
        return None, f"the frontmatter is not valid YAML ({reason}); it is left as it is"
    if value is not None and not isinstance(value, dict):
        return None, "the frontmatter is not a mapping; it is left as it is"
    return value or {}, ""


def _overlapped(regions: tuple[Region, ...], start: int, end: int) -> Region | None:
    for region in regions:
        open_end = start == end == region.end and not region.closed
        if (start < region.end and end > region.start) or open_end:
            return region
    return None


def split_lines(text: str) -> list[str]:
    """Split into lines with their endings: only LF, CRLF and CR, unlike ``str.splitlines``."""
    return _LINE.findall(text)


def to_lf(text: str) -> str:
    """Replace every line ending by LF."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _line_of(text: str, offset: int) -> int:
    return len(_BREAK.findall(text, 0, offset)) + 1
