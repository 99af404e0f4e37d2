"""What an edit may not break in a document: frontmatter, regions, file type, fences, links."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pytest_skillopt.skill.document import MANAGED, Document, to_lf
from pytest_skillopt.skill.edits import protected_texts

if TYPE_CHECKING:
    from collections.abc import Iterator

_OTHER_TYPE = re.compile(
    r"\s*(?:#!|<\?(?:xml|php)|<!doctype|<html\b|%PDF|\{\s*\"|import \w+\s*\n|PK\x03)", re.IGNORECASE
)
_DEFINITION = re.compile(r"^ {0,3}\[([^\]\n]{1,200})\]:[ \t]*\S", re.MULTILINE)
_REFERENCE = re.compile(r"\[([^\]\n]{1,200})\]\[([^\]\n]{0,200})\]")
_ANCHOR = re.compile(r"\]\(#([^)\s]{1,200})\)")
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(.+?)[ \t]*#*[ \t]*$", re.MULTILINE)
_ANCHOR_TAG = re.compile(r"\b(?:id|name)=[\"']([^\"']{1,200})[\"']")


def broken_structure(
    before: Document, after: Document, max_tokens: int
) -> Iterator[tuple[str, str, str]]:
    """Rule, message and excerpt of everything that the change broke."""
    if not after.same_frontmatter(before):
        yield "frontmatter", _frontmatter_message(before, after), after.frontmatter_text
    if _kept(before) != _kept(after):
        yield "protected", "a region between skillopt:keep markers was changed", ""
    yield from _other_type(before, after)
    if _unclosed(after) and not _unclosed(before):
        fence = after.fences[-1]
        excerpt = after.text[fence.start : fence.start + 80]
        yield "fences", "a code block is opened and never closed", excerpt
    for link in sorted(_broken_links(after) - _broken_links(before)):
        if link in _working_links(before):
            yield "links", "a link that worked before points nowhere now", link
    if max_tokens and after.tokens > max(max_tokens, before.tokens):
        yield "size", f"the skill would have {after.tokens} tokens, at most {max_tokens}", ""


def _frontmatter_message(before: Document, after: Document) -> str:
    old, new = before.frontmatter or {}, after.frontmatter or {}
    changed = sorted({str(key) for key in {*old, *new} if old.get(key) != new.get(key)})
    return "the frontmatter was changed" + (f" ({', '.join(changed)})" if changed else "")


def _kept(document: Document) -> list[Any]:
    return [entry for entry in protected_texts(document) if entry[0] not in MANAGED]


def _other_type(before: Document, after: Document) -> Iterator[tuple[str, str, str]]:
    if before.text.startswith("\ufeff") != after.text.startswith("\ufeff"):
        yield "file-type", "the byte order mark was added or taken out", ""
    had_breaks = before.newline in before.text
    if had_breaks and before.newline != after.newline:
        yield "file-type", "the line endings of the file were changed", ""
    if _OTHER_TYPE.match(after.body) and not _OTHER_TYPE.match(before.body):
        yield "file-type", "the body would be read as another type of file", after.body[:80]


def _unclosed(document: Document) -> bool:
    return bool(document.fences) and not document.fences[-1].closed


def _links(document: Document) -> tuple[set[str], set[str]]:
    """Links within the document, and those of them that lead somewhere."""
    text = to_lf(document.body)
    defined = {_label(name) for name in _DEFINITION.findall(text)}
    slugs = {_slug(title) for title in _HEADING.findall(text)} | set(_ANCHOR_TAG.findall(text))
    references = {_label(name or shown) for shown, name in _REFERENCE.findall(text)}
    anchors = set(_ANCHOR.findall(text))
    links = {f"[{name}]" for name in references} | {f"#{name}" for name in anchors}
    working = {f"[{name}]" for name in references & defined}
    return links, working | {f"#{name}" for name in anchors & slugs}


def _broken_links(document: Document) -> set[str]:
    links, working = _links(document)
    return links - working


def _working_links(document: Document) -> set[str]:
    return _links(document)[1]


def _label(name: str) -> str:
    return " ".join(name.split()).casefold()


def _slug(title: str) -> str:
    """The anchor of a heading as GitHub makes it."""
    kept = re.sub(r"[^\w\- ]", "", title.lower())
    return kept.replace(" ", "-")
