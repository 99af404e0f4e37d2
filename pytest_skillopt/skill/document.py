"""A skill document: bytes in, bytes out.

Nothing here re-serialises YAML or Markdown. A document is its bytes; everything else (frontmatter,
body, protected regions) is a view with offsets into the decoded text. Strict UTF-8 decoding is
reversible, so that slicing the text loses no byte: BOM, CRLF, a missing final newline all survive.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import yaml

SKILL_FILE = "SKILL.md"
_PACKED = b"\0skillopt-files/1\n"
MANAGED = ("guidance", "reminders")
"""Blocks that the trainer writes itself; ordinary edits may not touch them."""

NEWLINE = r"(?:\r\n|(?<!\r)\n|\r(?!\n))"
"""One line ending of any style, never half of a CRLF."""

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")
_BREAK = re.compile(NEWLINE)
_FRONTMATTER = re.compile(
    rf"\ufeff?(?:---[ \t]*{NEWLINE}(?:[^\r\n]*{NEWLINE})*?---[ \t]*(?:{NEWLINE}|\Z))?"
)
_FENCE = re.compile(r"(?:[ \t]|[-*+>]|\d{1,9}[.)])*(?P<run>`{3,}|~{3,})(?P<info>[^\r\n]*)")
# A marker between backticks is a mention of the marker.
_MARKER = re.compile(
    r"(?<!`)<!--\s*(?P<close>/?)skillopt:(?P<name>keep|guidance|reminders)\s*-->(?!`)",
    re.IGNORECASE,
)
# What PyYAML lets through besides its own errors when a scalar carries an unfit tag.
_YAML_FAULTS = (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, RecursionError)


class SkillError(ValueError):
    """A skill file or document that cannot be used; the message says which, why and what to do."""


@dataclass(frozen=True, slots=True)
class Region:
    """A stretch of the text, markers or delimiter lines included: ``text[start:end]``."""

    name: str
    """``keep``, ``guidance`` or ``reminders`` where it is protected; ``code`` of a code block."""
    start: int
    end: int
    closed: bool = True
    """False when its end is missing: it goes on to the end of the document."""


@dataclass(frozen=True)
class Document:
    """One version of a skill: its SKILL.md, and the files beside it that are trained with it.

    Equal when the bytes are equal. Everything but ``files`` and what is made of it is about the
    SKILL.md alone; a file is looked at as a document of its own.
    """

    data: bytes
    files: tuple[tuple[str, bytes], ...] = ()
    """Trained files by their path in the skill's folder, in the order of the paths."""

    @classmethod
    def from_bytes(cls, data: bytes) -> Document:
        """Check that the bytes are a text that can be edited.

        Raises:
            SkillError: empty or blank, not UTF-8 (names the byte offset), or holding a NUL.
        """
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise SkillError(
                f"not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start} "
                "cannot be decoded; save the file as UTF-8"
            ) from None
        if not text.strip("\ufeff \t\r\n"):
            raise SkillError("empty: there is no text to train")
        if "\0" in text:
            offset = data.index(b"\0")
            raise SkillError(f"not a text file: NUL byte at offset {offset}")
        return cls(data)

    @classmethod
    def from_text(cls, text: str) -> Document:
        """As ``from_bytes``; a text that has no UTF-8 form (a lone surrogate) is an error too."""
        try:
            return cls.from_bytes(text.encode("utf-8"))
        except UnicodeEncodeError as error:
            raise SkillError(f"no valid text: lone surrogate at character {error.start}") from None

    @classmethod
    def unpack(cls, packed: bytes) -> Document:
        """The version out of its one sequence of bytes (``packed``)."""
        if not packed.startswith(_PACKED):
            return cls(packed)
        files = {n: t.encode() for n, t in json.loads(packed[len(_PACKED) :]).items()}
        return cls(files.pop(SKILL_FILE), tuple(sorted(files.items())))

    @cached_property
    def packed(self) -> bytes:
        """All files in one: the bytes of a SKILL.md that stands alone, else JSON behind a mark that
        no text begins with."""
        if not self.files:
            return self.data
        texts = {name: self.file(name).text for name in self.names}
        return _PACKED + json.dumps(texts, ensure_ascii=False).encode()

    @property
    def names(self) -> tuple[str, ...]:
        return (SKILL_FILE, *(name for name, _ in self.files))

    @property
    def size(self) -> int:
        """Characters of all files."""
        return sum(len(self.file(name).text) for name in self.names)

    def file(self, name: str) -> Document:
        """One file as a document of its own, empty where the version has none of the name."""
        return Document(self.data if name == SKILL_FILE else dict(self.files).get(name, b""))

    def with_text(self, text: str) -> Document:
        """This version with another text of its SKILL.md."""
        return replace(self, data=Document.from_text(text).data)

    def with_file(self, name: str, document: Document) -> Document:
        if name == SKILL_FILE:
            return replace(self, data=document.data)
        return replace(self, files=tuple(sorted({**dict(self.files), name: document.data}.items())))

    @cached_property
    def text(self) -> str:
        """The bytes decoded, BOM and line endings as they are."""
        return self.data.decode("utf-8")

    @cached_property
    def version(self) -> str:
        """SHA-256 of the bytes of all files, in hexadecimal."""
        return hashlib.sha256(self.packed).hexdigest()

    @cached_property
    def body_start(self) -> int:
        """Offset in ``text`` at which the body begins."""
        head = _FRONTMATTER.match(self.text)
        return head.end() if head else 0

    @property
    def frontmatter_text(self) -> str:
        """All before the body, raw: the BOM and the frontmatter with both its delimiter lines."""
        return self.text[: self.body_start]

    def same_frontmatter(self, other: Document) -> bool:
        """Equal byte for byte; the end of its last line is not counted, which a document that is
        nothing but frontmatter may lack and gets with its first line of body."""
        mine, theirs = self.frontmatter_text, other.frontmatter_text
        return mine.rstrip("\r\n") == theirs.rstrip("\r\n")

    @property
    def body(self) -> str:
        return self.text[self.body_start :]

    @cached_property
    def _parsed(self) -> tuple[dict[str, Any] | None, str]:
        return _parse_frontmatter(self.frontmatter_text)

    @property
    def frontmatter(self) -> dict[str, Any] | None:
        """The frontmatter as a mapping; None where there is none or it does not parse."""
        return self._parsed[0]

    @property
    def name(self) -> str:
        """``name`` of the frontmatter, else empty."""
        value = (self.frontmatter or {}).get("name")
        return value if isinstance(value, str) else ""

    @cached_property
    def newline(self) -> str:
        """The commonest line ending of the document; LF where it has none."""
        found = _BREAK.findall(self.text)
        return max(("\n", "\r\n", "\r"), key=found.count)

    @cached_property
    def fences(self) -> tuple[Region, ...]:
        """Fenced code blocks of the body."""
        return _find_fences(self.text, self.body_start)

    @cached_property
    def _regions(self) -> tuple[tuple[Region, ...], tuple[str, ...]]:
        return _find_regions(self.text, self.body_start, self.fences)

    @property
    def regions(self) -> tuple[Region, ...]:
        """Protected stretches of the body, in order."""
        return self._regions[0]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with the document and was left alone."""
        fault = self._parsed[1]
        return ((fault,) if fault else ()) + self._regions[1]

    @property
    def tokens(self) -> int:
        """Estimated length in tokens, at four characters each, rounded up."""
        return -(-len(self.text) // 4)

    def protected(self, start: int, end: int) -> Region | None:
        """The first protected region that the stretch overlaps; an empty stretch lies inside."""
        return _overlapped(self.regions, start, end)

    def fence_at(self, offset: int) -> Region | None:
        """The code block that holds the offset."""
        return _overlapped(self.fences, offset, offset)


def _overlapped(regions: tuple[Region, ...], start: int, end: int) -> Region | None:
    for region in regions:
        open_end = start == end == region.end and not region.closed
        if (start < region.end and end > region.start) or open_end:
            return region
    return None


def split_lines(text: str) -> list[str]:
    """Lines with their endings. Unlike ``str.splitlines``, LF, CRLF and CR alone end a line."""
    return _LINE.findall(text)


def to_lf(text: str) -> str:
    """The text with every line ending written as LF."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _parse_frontmatter(text: str) -> tuple[dict[str, Any] | None, str]:
    lines = split_lines(text.removeprefix("\ufeff"))
    if not lines:
        return None, ""
    try:
        value = yaml.safe_load(to_lf("".join(lines[1:-1])))
    except _YAML_FAULTS as error:
        reason = to_lf(str(error)).split("\n")[0] or type(error).__name__
        return None, f"the frontmatter is not valid YAML ({reason}); it is left as it is"
    if value is None:
        return {}, ""
    if not isinstance(value, dict):
        return None, "the frontmatter is not a mapping; it is left as it is"
    return value, ""


def _find_fences(text: str, start: int) -> tuple[Region, ...]:
    """Fences by CommonMark's rules, the containers (lists, quotes) read leniently."""
    found: list[Region] = []
    opened: tuple[int, str] | None = None
    position = start
    for line in split_lines(text[start:]):
        match = _FENCE.match(line)
        if match and opened is None:
            if match["run"][0] == "~" or "`" not in match["info"]:
                opened = (position, match["run"])
        elif match and opened and match["run"].startswith(opened[1]) and not match["info"].strip():
            found.append(Region("code", opened[0], position + len(line)))
            opened = None
        position += len(line)
    if opened:
        found.append(Region("code", opened[0], len(text), closed=False))
    return tuple(found)


def _find_regions(
    text: str, start: int, fences: tuple[Region, ...]
) -> tuple[tuple[Region, ...], tuple[str, ...]]:
    """Markers inside a closed code block are text; after a fence that never closes they count,
    because protecting too much is the lesser fault."""
    regions: list[Region] = []
    warnings: list[str] = []
    opened: tuple[str, int] | None = None
    blocks = [fence for fence in fences if fence.closed]
    for match in _MARKER.finditer(text, start):
        if any(block.start <= match.start() < block.end for block in blocks):
            continue
        name = match["name"].lower()
        if opened is None and not match["close"]:
            opened = (name, match.start())
        elif opened and match["close"] and name == opened[0]:
            regions.append(Region(name, opened[1], match.end()))
            opened = None
        elif opened is None:
            warnings.append(f"line {_line_of(text, match.start())} closes no region: {match[0]}")
    if opened:
        regions.append(Region(opened[0], opened[1], len(text), closed=False))
        warnings.append(
            f"the region skillopt:{opened[0]} opened on line {_line_of(text, opened[1])} is never "
            "closed; everything after it is protected"
        )
    return tuple(regions), tuple(warnings)


def _line_of(text: str, offset: int) -> int:
    return len(_BREAK.findall(text, 0, offset)) + 1


NO_SKILL = Document(b"")
"""The side ``none`` of a comparison: no skill at all, an empty text."""
