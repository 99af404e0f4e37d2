"""What is written past ordinary edits: whole-body rewrites, managed blocks, a new skill."""

from __future__ import annotations

import difflib
import re

import yaml

from pytest_skillopt.skill.document import MANAGED, Document, Region, SkillError, split_lines, to_lf
from pytest_skillopt.skill.edits import protected_texts

NAME_LIMIT = 64
"""Characters of a skill's name (Agent Skills specification)."""
DESCRIPTION_LIMIT = 1024
"""Characters of a skill's description (Agent Skills specification)."""

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_ANY_MARKER = re.compile(r"<!--\s*/?skillopt:", re.IGNORECASE)


def get_block(document: Document, name: str) -> str:
    """Content of the managed block ``guidance`` or ``reminders``, with LF; empty where none is."""
    region = _managed(document, name)
    if region is None:
        return ""
    lines = split_lines(document.text[region.start : region.end])
    return to_lf("".join(lines[1:-1])).strip("\n")


def set_block(document: Document, name: str, content: str) -> Document:
    """Put the content into a managed block; empty content takes the block out.

    A block that is not there yet is added at the end of the document. Nothing outside the block
    changes but the blank line that sets it off.

    Raises:
        SkillError: an unknown block, content with a skillopt marker, or no place for the block
            because a region or code block before it is never closed.
    """
    region = _managed(document, name)
    content = to_lf(content).strip("\n")
    if _ANY_MARKER.search(content):
        raise SkillError(f"the content of the block {name} holds a skillopt marker")
    text, newline = document.text, document.newline
    if not content.strip():
        return document if region is None else _without(document, region)
    block = f"<!-- skillopt:{name} -->\n{content}\n<!-- /skillopt:{name} -->"
    block = block.replace("\n", newline)
    if region is None:
        result = Document.from_text(_appended(text, block, newline))
    else:
        result = Document.from_text(text[: region.start] + block + text[region.end :])
    others = [entry for entry in protected_texts(document) if entry[0] != name]
    if [entry for entry in protected_texts(result) if entry[0] != name] != others or (
        get_block(result, name) != content
    ):
        raise SkillError(
            f"the block {name} has no place: a region or code block of the document, or one in "
            "the block's own content, is never closed"
        )
    return result


def _managed(document: Document, name: str) -> Region | None:
    if name not in MANAGED:
        raise SkillError(f"unknown block {name!r}, it must be one of {', '.join(MANAGED)}")
    found = [region for region in document.regions if region.name == name]
    if len(found) > 1:
        raise SkillError(f"the document holds {len(found)} blocks {name}; keep one of them")
    if found and not found[0].closed:
        raise SkillError(f"the block {name} is never closed; add <!-- /skillopt:{name} -->")
    return found[0] if found else None


def _appended(text: str, block: str, newline: str) -> str:
    if text.endswith(("\n", "\r")):
        blank = "" if not split_lines(text)[-1].strip() else newline
        return text + blank + block + newline
    return text + newline * 2 + block


def _without(document: Document, region: Region) -> Document:
    text, newline = document.text, document.newline
    before, after = text[: region.start], text[region.end :]
    if after.startswith(newline):
        after = after.removeprefix(newline)
    elif not after:
        before = before.removesuffix(newline)
    if before.endswith(newline * 2) or not after:
        before = before.removesuffix(newline)
    return Document.from_text(before + after)


def rewrite_body(document: Document, new_body: str) -> Document:
    """Replace the body and keep, by construction, frontmatter and every protected region.

    Regions that the new body repeats get their original text back, in their order. One that it
    lost is put back beside its old neighbour: after the nearest line above it, else before the
    nearest line below it, that still stands exactly once. Lines that did not change keep their
    line endings, the others take the document's. Frontmatter at the head of the new body is an
    echo and is dropped.

    Raises:
        SkillError: an empty body, regions that the document does not have, or a lost region whose
            neighbours are gone.
    """
    echo = Document.from_text(to_lf(new_body)) if new_body.strip() else None
    fresh = "" if echo is None else (echo.body if echo.frontmatter else echo.text)
    fresh = fresh.removeprefix("\ufeff").strip("\n")
    if not fresh.strip():
        raise SkillError("the rewritten body is empty")
    fresh = _with_regions(document, fresh)
    head, tail = _margins(document.body)
    body = _with_line_ends(document, head + fresh.replace("\n", document.newline) + tail)
    body = _restored(document, body)
    result = Document.from_text(document.frontmatter_text + body)
    if not result.same_frontmatter(document):
        raise SkillError("the rewritten body would be read as frontmatter")
    if protected_texts(result) != protected_texts(document):
        raise SkillError("the rewritten body changes what a protected region covers")
    return result


def _margins(body: str) -> tuple[str, str]:
    """Blank lines before the body's first text and line endings after its last."""
    start = len(body) - len(body.lstrip("\r\n"))
    end = len(body.rstrip("\r\n"))
    return (body[:start], body[end:]) if body.strip("\r\n") else ("", body)


def _with_regions(document: Document, fresh: str) -> str:
    """The new body, in LF, with each region of the document in it exactly once, in order."""
    wanted = [(name, to_lf(text)) for name, text, _ in protected_texts(document)]
    draft = Document.from_text(fresh)
    given = list(draft.regions)
    if len(given) > len(wanted):
        raise SkillError(
            "the rewritten body holds protected regions that the document does not have"
        )
    matches = _matched(wanted, [(r.name, draft.text[r.start : r.end]) for r in given])
    parts, end = [], 0
    for region, index in zip(given, matches, strict=True):
        parts += [draft.text[end : region.start], wanted[index][1]]
        end = region.end
    body = "".join([*parts, draft.text[end:]])
    for index in range(len(wanted)):
        if index not in matches:
            body = _put_back(document, index, body)
    return body


def _matched(wanted: list[tuple[str, str]], given: list[tuple[str, str]]) -> list[int]:
    """For every given region the index of the wanted one it stands for, in increasing order."""
    matches: list[int] = []
    first = 0
    for position, (name, text) in enumerate(given):
        last = len(wanted) - (len(given) - position - 1)
        same = [i for i in range(first, last) if wanted[i] == (name, text)]
        kind = [i for i in range(first, last) if wanted[i][0] == name]
        if not kind:
            raise SkillError(f"the rewritten body moves or invents a protected region {name}")
        matches.append((same or kind)[0])
        first = matches[-1] + 1
    return matches


def _put_back(document: Document, index: int, body: str) -> str:
    region = document.regions[index]
    text = to_lf(document.text[region.start : region.end])
    if region.name in MANAGED or not region.closed:
        return f"{body}\n\n{text}"
    above = to_lf(document.text[document.body_start : region.start]).split("\n")
    below = to_lf(document.text[region.end :]).split("\n")
    lines = body.split("\n")
    for line in reversed(above):
        if line.strip() and lines.count(line) == 1:
            at = lines.index(line) + 1
            return "\n".join([*lines[:at], "", text, *_set_off(lines[at:])])
    for line in below:
        if line.strip() and lines.count(line) == 1:
            at = lines.index(line)
            return "\n".join([*lines[:at], text, "", *lines[at:]])
    raise SkillError(
        f"the rewritten body loses the protected region {text[:60]!r}, and no line beside it is "
        "left to put it back"
    )


def _set_off(lines: list[str]) -> list[str]:
    return ["", *lines] if lines and lines[0].strip() else lines


def _with_line_ends(document: Document, body: str) -> str:
    """Give lines that did not change their old line endings (a document may mix styles)."""
    old, new = split_lines(document.body), split_lines(body)
    matcher = difflib.SequenceMatcher(
        None,
        [line.rstrip("\r\n") for line in old],
        [line.rstrip("\r\n") for line in new],
        autojunk=False,
    )
    for i, j, size in matcher.get_matching_blocks():
        for k in range(size):
            if old[i + k] != old[i + k].rstrip("\r\n") and new[j + k] != new[j + k].rstrip("\r\n"):
                new[j + k] = old[i + k]
    return "".join(new)


def _restored(document: Document, body: str) -> str:
    """Regions with mixed line endings, byte for byte as they were."""
    draft = Document.from_text(body)
    originals = [document.text[r.start : r.end] for r in document.regions]
    if len(draft.regions) != len(originals):
        return body
    parts, end = [], 0
    for region, original in zip(draft.regions, originals, strict=True):
        parts += [draft.text[end : region.start], original]
        end = region.end
    return "".join([*parts, draft.text[end:]])


def new_skill(name: str, description: str, body: str) -> Document:
    """A SKILL.md with valid frontmatter.

    Raises:
        SkillError: a name that is not lowercase letters, digits and single hyphens (at most
            ``NAME_LIMIT``), or a description that is empty or longer than ``DESCRIPTION_LIMIT``.
    """
    if not _NAME.fullmatch(name) or len(name) > NAME_LIMIT:
        raise SkillError(
            f"{name!r} is no skill name: lowercase letters, digits and single hyphens, at most "
            f"{NAME_LIMIT} characters"
        )
    description = " ".join(description.split())
    if not description or len(description) > DESCRIPTION_LIMIT:
        raise SkillError(
            f"a skill's description has 1 to {DESCRIPTION_LIMIT} characters, this one has "
            f"{len(description)}"
        )
    fields = {"name": name, "description": description}
    head = yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, width=10**6)
    return Document.from_text(f"---\n{head}---\n\n{to_lf(body).strip(chr(10))}\n")
