"""What an edit may not add to a skill, as far as a program can decide it.

No rule here reads sentences: whether an instruction is a good one is for the gate, which measures
it, and for whoever reads the pull request. Decided is what is no matter of opinion: characters and
markup that hide something, secrets, addresses that nobody has named before, a document that is
damaged. Only added text is judged; what stood in the skill before is the user's own. A rule that
does not suit a skill is switched off by name (``skillopt_lint_allow``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pytest_skillopt.skill.contact import addresses, collapsed, shell_commands, stands_in
from pytest_skillopt.skill.diff import added_blocks
from pytest_skillopt.skill.disguise import (
    disguised_words,
    encoded_texts,
    hidden_characters,
    hidden_markup,
    unsafe_links,
    without_code,
)
from pytest_skillopt.skill.document import MANAGED, SKILL_FILE, Document, SkillError
from pytest_skillopt.skill.edits import file_links, only_description, protected_texts
from pytest_skillopt.untrusted import printable, redact, secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

Severity = Literal["refuse", "warn"]

RULES: dict[str, tuple[Severity, str]] = {
    "invisible": ("refuse", "invisible, bidirectional, tag or control characters"),
    "mixed-script": ("refuse", "words with letters of one script posing as another's"),
    "secret": ("refuse", "text in the shape of a key, token or password"),
    "encoded": ("refuse", "encoded text"),
    "contact": ("refuse", "an address that stands neither in the skill nor in its train tasks"),
    "html-comment": ("refuse", "comments and markup that a reader of the page does not see"),
    "unsafe-link": ("refuse", "links that run, load or embed something"),
    "frontmatter": ("refuse", "a change of the frontmatter"),
    "protected": ("refuse", "a change of a region between skillopt:keep markers"),
    "file-type": ("refuse", "a change of the byte order mark, line endings or type of the file"),
    "fences": ("refuse", "a code block that is never closed and was before"),
    "links": ("refuse", "a link to a file that is not there"),
    "size": ("refuse", "more tokens than skillopt_max_skill_tokens"),
    "command": ("warn", "a shell command that stands neither in the skill nor in its train tasks"),
}
"""Every rule with its severity and what it is about."""

_EXCERPT = 120
_REDACTED = re.compile(r"\[redacted(?: \w+)?\]")
_OWN_MARKER = re.compile(r"<!--\s*/?skillopt:(?:guidance|reminders)\s*-->", re.IGNORECASE)
_OTHER_TYPE = re.compile(
    r"\s*(?:#!|<\?(?:xml|php)|<!doctype|<html\b|%PDF|\{\s*\"|import \w+\s*\n|PK\x03)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that the lint objects to, or that a reader of the change should look at."""

    rule: str
    severity: Severity
    message: str
    excerpt: str = ""
    """Where it stands, bounded, without secrets and fit for a terminal."""

    def __str__(self) -> str:
        return f"{self.message}: {self.excerpt}" if self.excerpt else self.message


def allowed(names: str) -> frozenset[str]:
    """Read an allow-list, rule names with commas between them.

    Raises:
        SkillError: a name that is no rule.
    """
    found = frozenset(name.strip() for name in names.split(",") if name.strip())
    unknown = sorted(found - RULES.keys())
    if unknown:
        raise SkillError(
            f"skillopt_lint_allow: {', '.join(unknown)} is no rule; "
            f"the rules are {', '.join(RULES)}"
        )
    return found


def refused(findings: list[Finding]) -> list[Finding]:
    """The findings that forbid the change."""
    return [finding for finding in findings if finding.severity == "refuse"]


def warned(findings: list[Finding]) -> list[Finding]:
    """The findings that a reader of the change is shown."""
    return [finding for finding in findings if finding.severity == "warn"]


def lint(
    before: Document,
    after: Document,
    allow: frozenset[str] = frozenset(),
    *,
    max_tokens: int = 0,
    known: Callable[[str], bool] | None = None,
    present: Container[str] | None = None,
    description: bool = False,
) -> list[Finding]:
    """Judge what ``after`` adds to ``before``, in each of its files.

    Args:
        allow: names of rules that do not apply.
        max_tokens: largest skill; 0: no bound. A skill may stay as large as it was.
        known: whether an address or a command stands in a text of the user's other than the skill,
            such as a train task.
        present: paths of the files in the skill's folder, where they are known.
        description: whether that of the SKILL.md may be another.

    Returns:
        Findings in the order of ``RULES``, each once.
    """
    in_skill = stands_in(*(before.file(name).text for name in before.names))
    found: list[tuple[str, str, str]] = []
    for name in after.names:
        old, new = before.file(name), after.file(name)
        if old == new:
            continue
        judged = _judge_file(
            old, new, max_tokens, lambda what: in_skill(what) or bool(known and known(what))
        )
        where = "" if name == SKILL_FILE else f"{name}: "
        found += [(rule, where + message, excerpt) for rule, message, excerpt in judged]
        trained = description and name == SKILL_FILE and only_description(old, new)
        if not (trained or new.same_frontmatter(old)):
            said = where + _frontmatter_message(old, new)
            found.append(("frontmatter", said, new.frontmatter_text))
        if present is not None:
            for link in sorted(file_links(after, name) - file_links(before, name)):
                if link not in present and link not in after.names:
                    found.append(("links", where + RULES["links"][1], link))
    order = list(RULES)
    unique = dict.fromkeys(_finding(*entry) for entry in found if entry[0] not in allow)
    return sorted(unique, key=lambda finding: order.index(finding.rule))


def _judge_file(
    before: Document, after: Document, max_tokens: int, known: Callable[[str], bool]
) -> list[tuple[str, str, str]]:
    """Rule, message and excerpt of everything in one file."""
    blocks = (_OWN_MARKER.sub("", block) for block in added_blocks(before.text, after.text))
    added = "\n\n".join(blocks)
    shown = added_blocks(without_code(before), without_code(after))
    return [
        *_judge_text(added, before),
        *_judge_contact(added, before, after, known),
        *(
            ("html-comment", RULES["html-comment"][1], excerpt)
            for excerpt in hidden_markup(_OWN_MARKER.sub("", "\n\n".join(shown)))
        ),
        *_broken_structure(before, after, max_tokens),
    ]


def _finding(rule: str, message: str, excerpt: str) -> Finding:
    shown = " ".join(redact(printable(excerpt)).split())
    if len(shown) > _EXCERPT:
        shown = shown[: _EXCERPT - 3] + "..."
    return Finding(rule, RULES[rule][0], message, shown)


def _judge_text(added: str, before: Document) -> Iterator[tuple[str, str, str]]:
    """Characters, secrets, encoded text and links."""
    for description in hidden_characters(added):
        yield "invisible", RULES["invisible"][1], description
    for word in disguised_words(added):
        yield "mixed-script", f"the word {word!r} is written in letters of several scripts", word
    for start, end in secrets(added):
        if added[start:end] not in before.text:
            yield "secret", RULES["secret"][1], added[max(0, start - 20) : start + 4] + "..."
    for match in _REDACTED.finditer(added):
        if match[0] not in before.text:
            yield "secret", "the mark of a secret that was taken out", match[0]
    for excerpt in encoded_texts(added):
        if excerpt not in before.text:
            yield "encoded", RULES["encoded"][1], excerpt
    for message, excerpt in unsafe_links(added):
        yield "unsafe-link", message, excerpt


def _judge_contact(
    added: str, before: Document, after: Document, known: Callable[[str], bool]
) -> Iterator[tuple[str, str, str]]:
    own = set(addresses(before.text))
    for address in addresses(added):
        if address not in own and not known(address):
            yield "contact", RULES["contact"][1], address
    had = set(shell_commands(before.text))
    for command in shell_commands(after.text):
        bare = collapsed(command)
        if bare not in had and not known(bare):
            yield "command", RULES["command"][1], bare


def _broken_structure(
    before: Document, after: Document, max_tokens: int
) -> Iterator[tuple[str, str, str]]:
    """Rule, message and excerpt of everything that the change broke."""
    if _kept(before) != _kept(after):
        yield "protected", "a region between skillopt:keep markers was changed", ""
    yield from _other_type(before, after)
    if _unclosed(after) and not _unclosed(before):
        fence = after.fences[-1]
        excerpt = after.text[fence.start : fence.start + 80]
        yield "fences", "a code block is opened and never closed", excerpt
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
