"""Edits of a document, applied deterministically or refused.

An edit that does not fit exactly is refused with the reason. It is never changed to fit and never
silently appended, since an edit in the wrong place would be measured as if it were the right one.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import yaml

from pytest_skillopt.skill.text import (
    MANAGED,
    NEWLINE,
    OWN_MARKER,
    SkillError,
    Text,
    split_lines,
    to_lf,
)
from pytest_skillopt.skill.version import SKILL_FILE, Version

if TYPE_CHECKING:
    from collections.abc import Iterable

Op = Literal["append", "insert_after", "replace", "delete"]
Origin = Literal["failure", "contrast", "success", "slow", "appendix", "rewrite"]
"""Kind of the rollouts that an analyst was shown, or the published mechanism that made the edit."""
EditField = Literal["body", "description"]
"""Edited part of a file; the description is in the frontmatter."""

DESCRIPTION_LIMIT = 1024
"""Maximum characters of a skill's description (Agent Skills specification)."""

_NO_OP = "no-op: the document would not change"
_WORD = re.compile(r"\w+")
# Includes the indented lines that continue its value.
_DESCRIPTION = re.compile(
    rf"(?<![^\r\n])description:[^\r\n]*(?:{NEWLINE}(?:[ \t]*{NEWLINE})*[ \t][^\r\n]*)*"
)
# A relative path, not a URL, an anchor or an absolute path.
_FILE_LINK = re.compile(
    r"\]\(<?((?![a-z][a-z0-9+.-]{0,30}:|/)[^)\s<>#?]{1,1000}+)[^)\s]{0,1000}+\)", re.IGNORECASE
)
_LINE_END = re.compile(NEWLINE)
_LIST_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]")
_TABLE_ROW = re.compile(r"[ \t]*\|")
# Headings, fences, rows and comments end with their line and begin no paragraph.
_SINGLE_LINE = re.compile(r"[ \t]*(?:#{1,6}[ \t]|```|~~~|\||<!--)")
# Beginnings of blocks, which never continue the paragraph above.
_BLOCK_START = re.compile(r"[ \t]*(?:[-*+>][ \t]|\d{1,9}[.)][ \t]|#{1,6}[ \t]|```|~~~|\||<!--)")


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of a skill, with its reason and the tasks that asked for it."""

    op: Op
    target: str = ""
    """Text that occurs exactly once in the editable text; unused by ``append``."""
    content: str = ""
    """Text to add; unused by ``delete``."""
    reason: str = ""
    tasks: tuple[str, ...] = ()
    """Node ids of the failing train tasks that its analysts were shown."""
    support: int = 1
    """Analyst calls that asked for it, at least 1."""
    origin: Origin = "failure"
    step: int = 0
    """Step of the training in which it was proposed."""
    file: str = SKILL_FILE
    """Path relative to the skill's folder, with ``/``."""
    field: EditField = "body"
    also: tuple[Edit, ...] = ()
    """Edits that are applied before it, all or none: those that link to the file it begins."""

    @property
    def adds(self) -> bool:
        return self.op in ("append", "insert_after")

    @property
    def place(self) -> tuple[str, str]:
        return self.file, self.field

    @property
    def key(self) -> str:
        """Text that is equal for two wordings of one edit: its words, operation and place."""
        shown = self.content if self.adds else f"{self.target} | {self.content}"
        key = f"{'add' if self.adds else self.op}: {' '.join(_WORD.findall(shown.casefold()))}"
        return key if self.place == (SKILL_FILE, "body") else f"{self.file} {self.field} {key}"

    @property
    def text(self) -> str:
        """The edit in one line, for prompts and reasons."""
        return f"{self.op} {' '.join((self.content or self.target).split())}"


_Change: TypeAlias = tuple[int, int, str]
"""Start and end of the replaced text, and its replacement."""


def apply(version: Version, edit: Edit) -> Version:
    """Apply an edit to the file that it names.

    ``append`` adds at the end of the body, before managed blocks at its end. ``insert_after`` adds
    after the paragraph or list item in which the target ends (inside a code block: after the line).
    Both add a blank line between blocks that would otherwise merge. ``replace`` replaces exactly
    the target; ``delete`` removes the target and, if it consists of whole lines, its last line
    ending too. Nothing else changes. A target matches any style of line endings; added lines use
    the document's style.

    Raises:
        SkillError: it does not fit; the message says why.
    """
    for other in edit.also:
        version = apply(version, other)
    if edit.field == "description":
        if (edit.op, edit.file) != ("replace", SKILL_FILE):
            raise SkillError("only SKILL.md has a description, and it is replaced as a whole")
        described = with_description(version.main, edit.content)
        if described == version.main:
            raise SkillError(_NO_OP)
        return version | {SKILL_FILE: described}
    is_new = edit.file not in version
    if is_new and edit.file not in file_links(version.main, SKILL_FILE):
        raise SkillError(f"{edit.file} is not a trained file of the skill, and nothing links to it")
    if is_new and edit.op != "append":
        raise SkillError(f"{edit.file} does not exist yet; append its text")
    _check_form(edit)
    if is_new:
        changed = Text.from_text(to_lf(edit.content).strip("\n") + "\n")
    else:
        changed = _changed(version[edit.file], edit)
    return version | {edit.file: changed}


def with_description(document: Text, description: str) -> Text:
    """Replace the description of a SKILL.md, with the comments in its lines.

    The rest of the frontmatter stays byte for byte.

    Raises:
        SkillError: the description is not valid by the Agent Skills specification, or the skill has
            none to replace.
    """
    description = " ".join(description.split())
    length = len(description)
    if not 1 <= length <= DESCRIPTION_LIMIT:
        raise SkillError(f"a description has 1 to {DESCRIPTION_LIMIT} characters, not {length}")
    if not description.isprintable() or set("<>") & set(description):
        raise SkillError("a description holds no < or >, and no invisible characters")
    if "description" not in (document.frontmatter or {}):
        raise SkillError("the frontmatter has no description to replace")
    new = yaml.safe_dump({"description": description}, allow_unicode=True, width=10**6).rstrip()
    head = _DESCRIPTION.sub(lambda match: new, document.frontmatter_text, count=1)
    result = Text.from_text(head + document.body)
    fields_after = {**(document.frontmatter or {}), "description": description}
    if result.frontmatter != fields_after or result.body != document.body:
        raise SkillError("the description cannot be replaced without changing other fields")
    return result


def only_description(before: Text, after: Text) -> bool:
    """Check if the frontmatter differs only in the value of the description."""
    try:
        made = with_description(before, str((after.frontmatter or {}).get("description", "")))
    except SkillError:
        return False
    return made.same_frontmatter(after)


def with_links(edits: Iterable[Edit], version: Version) -> list[Edit]:
    """Join each edit that begins a file with the edits of the SKILL.md that link to the file."""
    edits = list(edits)
    known = {*version, *file_links(version.main, SKILL_FILE)}
    joined: list[Edit] = []
    taken: list[Edit] = []
    for edit in edits:
        free = [other for other in edits if other != edit and other not in taken]
        links = [o for o in free if edit.file not in known and edit.file in _links(o)]
        taken += links
        joined.append(replace(edit, also=tuple(links)))
    return [new for new, edit in zip(joined, edits, strict=True) if edit not in taken]


def _links(edit: Edit) -> set[str]:
    """Return the paths to which an edit of the SKILL.md links."""
    added = Text(edit.content.encode(errors="replace"))
    return file_links(added, SKILL_FILE) if edit.place == (SKILL_FILE, "body") else set()


def file_links(document: Text, name: str) -> set[str]:
    """Return the paths to which the text of this name links; one outside begins with ``..``."""
    folder = posixpath.dirname(name)
    targets = (match[1].rstrip("/") for match in _FILE_LINK.finditer(document.body))
    return {posixpath.normpath(posixpath.join(folder, target)) for target in targets}


def _changed(document: Text, edit: Edit) -> Text:
    start, end, new = _change(document, edit)
    text = document.text
    after = text[:start] + new + text[end:]
    if after == text:
        raise SkillError(_NO_OP)
    result = Text.from_text(after)
    if not result.body.strip():
        raise SkillError("the body would be empty")
    if not result.same_frontmatter(document):
        raise SkillError("it would change the frontmatter")
    if protected_texts(result) != protected_texts(document):
        raise SkillError("it would change a protected region")
    return result


def _check_form(edit: Edit) -> None:
    if edit.op != "append" and not edit.target.strip():
        raise SkillError(f"empty target: {edit.op} needs a text from the body")
    if edit.op != "delete" and not edit.content.strip():
        way_out = "; use delete to remove text" if edit.op == "replace" else ""
        raise SkillError(f"empty content{way_out}")
    if edit.op != "delete" and OWN_MARKER.search(edit.content):
        raise SkillError("the content holds a skillopt marker, which only the user may set")


def _change(document: Text, edit: Edit) -> _Change:
    content = to_lf(edit.content).replace("\n", document.newline)
    if edit.op == "append":
        return _added(document, _append_offset(document), content)
    if edit.op == "insert_after":
        _, end = _find(document, edit.target.rstrip("\r\n"))
        return _added(document, _insert_offset(document, end), content)
    start, end = _find(document, edit.target)
    if edit.op == "replace":
        return start, end, content
    ended = _LINE_END.match(document.text, end)
    if ended and start == _line_start(document.text, start):
        end = ended.end()
    return start, end, ""


def _find(document: Text, target: str) -> tuple[int, int]:
    """Return the offsets of the one occurrence of the target in the editable body.

    It is found with any style of line endings; occurrences that overlap count, too.
    """
    pattern = NEWLINE.join(re.escape(line) for line in to_lf(target).split("\n"))
    spans = [match.span(1) for match in re.finditer(f"(?=({pattern}))", document.text)]
    editable = [
        span for span in spans if span[0] >= document.body_start and not document.protected(*span)
    ]
    if len(editable) == 1:
        return editable[0]
    if len(editable) > 1:
        raise SkillError(f"target found {len(editable)} times; quote enough of it to be unique")
    for span in spans:
        if region := document.protected(*span):
            raise SkillError(f"target lies in or overlaps the protected region {region.name}")
    if spans:
        raise SkillError("target lies in or overlaps the frontmatter")
    raise SkillError("target not found; it must be quoted exactly from the body")


def _append_offset(document: Text) -> int:
    """Return the end of the text, or the start of the managed blocks at its end."""
    end = len(document.text)
    for region in reversed(document.regions):
        if not region.closed:
            raise SkillError(f"the region {region.name} is never closed and protects the end")
        if region.name not in MANAGED or document.text[region.end : end].strip():
            break
        end = region.start
    fence = document.fence_at(end)
    if fence and not fence.closed:
        raise SkillError("the document ends in a code block that is never closed")
    return end


def _insert_offset(document: Text, end: int) -> int:
    """Return the end of the paragraph or list item that holds the character before ``end``."""
    text = document.text
    lines = split_lines(text[end:])
    position = end + len(lines[0]) if lines else end
    single = _SINGLE_LINE.match(text, _line_start(text, end)) or document.fence_at(end)
    for line in [] if single else lines[1:]:
        if not line.strip() or _BLOCK_START.match(line):
            break
        position += len(line)
    if region := document.protected(position, position):
        raise SkillError(f"the target's paragraph overlaps the protected region {region.name}")
    return position


def _line_start(text: str, offset: int) -> int:
    return max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1


def _added(document: Text, offset: int, content: str) -> _Change:
    """Add the content as separate lines at ``offset``, with blank lines around it if needed."""
    newline = document.newline
    content = content.strip("\r\n")
    before = split_lines(document.text[:offset])
    after = split_lines(document.text[offset:])
    lines = content.split(newline)
    in_code = document.fence_at(offset) is not None
    unended = bool(before) and not before[-1].endswith(("\n", "\r"))
    lead = newline if unended else ""
    tail = "" if unended and not after else newline
    if before and not in_code and not _runs_on(before[-1], lines[0]):
        lead += newline
    if after and not in_code and not _runs_on(lines[-1], after[0]):
        tail += newline
    return offset, offset, lead + content + tail


def _runs_on(upper: str, lower: str) -> bool:
    """Check if no blank line is needed: there is one, or both are of one list or one table."""
    if not upper.strip() or not lower.strip():
        return True
    if _TABLE_ROW.match(upper) and _TABLE_ROW.match(lower):
        return True
    return bool(_LIST_ITEM.match(lower)) and bool(_LIST_ITEM.match(upper) or upper[:1] in " \t")


def protected_texts(document: Text) -> list[tuple[str, str, bool]]:
    """List the protected regions: name, text, and if it is closed."""
    return [(r.name, document.text[r.start : r.end], r.closed) for r in document.regions]
