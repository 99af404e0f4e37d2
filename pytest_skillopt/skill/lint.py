"""Rules on the text that an edit adds to a skill.

The rules do not judge instructions: the gate measures them, and the reader of the pull request
judges them. They find characters and markup that hide something, secrets, unknown addresses, and
damage to the document. Only added text is checked; the text before is the user's own. A rule that
does not suit a skill is switched off by name (``skillopt_lint_allow``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pytest_skillopt.skill.contact import addresses, shell_commands, stands_in
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
    "file-type": ("refuse", "a change of the byte order mark or the line endings"),
    "fences": ("refuse", "a code block that is never closed and was before"),
    "links": ("refuse", "a link to a file that is not there"),
    "size": ("refuse", "more tokens than skillopt_max_skill_tokens"),
    "command": ("warn", "a shell command that stands neither in the skill nor in its train tasks"),
}
"""Severity and meaning of every rule."""

_EXCERPT = 120
_REDACTED = re.compile(r"\[redacted(?: \w+)?\]")
_OWN_MARKER = re.compile(r"<!--\s*/?skillopt:(?:guidance|reminders)\s*-->", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Finding:
    """A part of a change that a rule refuses, or that its reader should check."""

    rule: str
    severity: Severity
    message: str
    excerpt: str = ""
    """The text, bounded, without secrets and safe for a terminal."""

    def __str__(self) -> str:
        return f"{self.message}: {self.excerpt}" if self.excerpt else self.message


def allowed(names: str) -> frozenset[str]:
    """Read an allow-list, rule names with commas between them.

    Raises:
        SkillError: a name that is not a rule.
    """
    found = frozenset(name.strip() for name in names.split(",") if name.strip())
    if unknown := sorted(found - RULES.keys()):
        raise SkillError(
            f"skillopt_lint_allow: {', '.join(unknown)} is not a rule; "
            f"the rules are {', '.join(RULES)}"
        )
    return found


def refused(findings: list[Finding]) -> list[Finding]:
    """Return the findings that forbid the change."""
    return [finding for finding in findings if finding.severity == "refuse"]


def warned(findings: list[Finding]) -> list[Finding]:
    """Return the findings that are only shown to the reader of the change."""
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
    """Check the text that ``after`` adds to ``before``, in each of its files.

    Args:
        before: the old version.
        after: the new version.
        allow: names of rules that do not apply.
        max_tokens: largest skill; 0: no bound. A larger skill may keep its size.
        known: checks if an address or a command occurs in another text of the user, such as a train
            task.
        present: paths of the files in the skill's folder, if they are known.
        description: True if the description may change.

    Returns:
        Findings in the order of ``RULES``, each once.
    """
    in_skill = stands_in(*(before.file(name).text for name in before.names))
    found: list[tuple[str, str, str]] = []
    for name in after.names:
        old, new = before.file(name), after.file(name)
        if old == new:
            continue
        judged = [
            *_judge_added(old, new, lambda what: in_skill(what) or bool(known and known(what))),
            *_judge_damage(old, new, max_tokens),
        ]
        trained = description and name == SKILL_FILE and only_description(old, new)
        if not (trained or new.same_frontmatter(old)):
            judged.append(("frontmatter", new.frontmatter_text))
        if present is not None:
            links = sorted(file_links(after, name) - file_links(before, name))
            judged += [("links", x) for x in links if x not in present and x not in after.names]
        found += [(rule, "" if name == SKILL_FILE else name, excerpt) for rule, excerpt in judged]
    order = list(RULES)
    unique = dict.fromkeys(_finding(*entry) for entry in found if entry[0] not in allow)
    return sorted(unique, key=lambda finding: order.index(finding.rule))


def _finding(rule: str, file: str, excerpt: str) -> Finding:
    severity, message = RULES[rule]
    shown = " ".join(redact(printable(excerpt)).split())
    if len(shown) > _EXCERPT:
        shown = shown[: _EXCERPT - 3] + "..."
    return Finding(rule, severity, f"{file}: {message}" if file else message, shown)


def _judge_added(
    before: Document, after: Document, known: Callable[[str], bool]
) -> Iterator[tuple[str, str]]:
    """Yield rule and excerpt of each fault in the added text."""
    blocks = (_OWN_MARKER.sub("", block) for block in added_blocks(before.text, after.text))
    added, was = "\n\n".join(blocks), before.text
    shown = "\n\n".join(added_blocks(without_code(before), without_code(after)))
    yield from (("invisible", described) for described in hidden_characters(added))
    yield from (("mixed-script", word) for word in disguised_words(added))
    for start, end in secrets(added):
        if added[start:end] not in was:
            yield "secret", added[max(0, start - 20) : start + 4] + "..."
    marks = (match[0] for match in _REDACTED.finditer(added))
    yield from (("secret", mark) for mark in marks if mark not in was)
    yield from (("encoded", text) for text in encoded_texts(added) if text not in was)
    yield from (("unsafe-link", link) for link in unsafe_links(added))
    yield from (("html-comment", text) for text in hidden_markup(_OWN_MARKER.sub("", shown)))
    own = {*addresses(was), *shell_commands(was)}
    yield from (("contact", x) for x in addresses(added) if x not in own and not known(x))
    commands = (x for x in shell_commands(after.text) if x not in own and not known(x))
    yield from (("command", command) for command in commands)


def _judge_damage(before: Document, after: Document, max_tokens: int) -> Iterator[tuple[str, str]]:
    """Yield rule and excerpt of each damage to the document."""
    if _kept(before) != _kept(after):
        yield "protected", ""
    if before.text.startswith("\ufeff") != after.text.startswith("\ufeff"):
        yield "file-type", "the byte order mark"
    if before.newline in before.text and before.newline != after.newline:
        yield "file-type", "the line endings"
    if _unclosed(after) and not _unclosed(before):
        start = after.fences[-1].start
        yield "fences", after.text[start : start + 80]
    if max_tokens and after.tokens > max(max_tokens, before.tokens):
        yield "size", f"{after.tokens} tokens, at most {max_tokens}"


def _kept(document: Document) -> list[Any]:
    return [entry for entry in protected_texts(document) if entry[0] not in MANAGED]


def _unclosed(document: Document) -> bool:
    return bool(document.fences) and not document.fences[-1].closed
