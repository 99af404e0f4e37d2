"""Rules on the change of a skill: damage to the document, secrets, and what plugins look for.

The rules do not judge instructions: the gate measures them, and the reader of the pull request
judges them. Only added text is checked; the text before is the user's own. A rule that does not
suit a skill is switched off by name (``skillopt_lint_allow``).
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pytest_skillopt.plugins import hooks
from pytest_skillopt.skill.diff import added_blocks
from pytest_skillopt.skill.edits import file_links, only_description, protected_texts
from pytest_skillopt.skill.text import MANAGED, SkillError, Text
from pytest_skillopt.skill.version import SKILL_FILE, Version, changes
from pytest_skillopt.untrusted import printable, redact, secrets
from pytest_skillopt.words import clip

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator


Severity = Literal["refuse", "warn"]

_OWN: dict[str, tuple[Severity, str]] = {
    "secret": ("refuse", "text in the shape of a key, token or password"),
    "frontmatter": ("refuse", "a change of the frontmatter"),
    "protected": ("refuse", "a change of a region between skillopt:keep markers"),
    "file-type": ("refuse", "a change of the byte order mark or the line endings"),
    "fences": ("refuse", "a code block that is never closed and was before"),
    "links": ("refuse", "a link to a file that is not there"),
    "size": ("refuse", "more tokens than skillopt_max_skill_tokens"),
}

_EXCERPT = 120
_REDACTED = re.compile(r"\[redacted(?: \w+)?\]")
_OWN_MARKER = re.compile(
    r"<!--\s*(?:/?skillopt:(?:guidance|reminders)|(?:SLOW_UPDATE|APPENDIX)_(?:START|END))\s*-->",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one file of a skill."""

    before: Text
    after: Text
    known: Callable[[str], bool]
    """Tells if a text of the user, the skill or a train task, holds a string."""

    @property
    def added(self) -> str:
        """Added and changed lines."""
        return additions(self.before.text, self.after.text)


class LintRule(NamedTuple):
    """A rule that a plugin brings."""

    name: str
    severity: Severity
    meaning: str
    """Noun for what it finds, which the reader is shown before the excerpt."""
    find: Callable[[Change], Iterable[str]]
    """Finds the excerpts that break it."""


def _added_rules() -> list[LintRule]:
    return [rule for rules in hooks().pytest_skillopt_lint_rules() for rule in rules]


def rules() -> dict[str, tuple[Severity, str]]:
    """Return severity and meaning of every rule, those of plugins included."""
    return {rule.name: (rule.severity, rule.meaning) for rule in _added_rules()} | _OWN


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
    if unknown := sorted(found - rules().keys()):
        raise SkillError(
            f"skillopt_lint_allow: {', '.join(unknown)} is not a rule; "
            f"the rules are {', '.join(rules())}"
        )
    return found


def refused(findings: list[Finding]) -> list[Finding]:
    """Return the findings that forbid the change."""
    return [finding for finding in findings if finding.severity == "refuse"]


def warned(findings: list[Finding]) -> list[Finding]:
    """Return the findings that are only shown to the reader of the change."""
    return [finding for finding in findings if finding.severity == "warn"]


def stands_in(*texts: str) -> Callable[[str], bool]:
    """Make a function that checks if an address or a command occurs in one of the texts."""
    known = "\n".join(" ".join(text.split()) for text in texts if text).lower()

    def stands(what: str) -> bool:
        what = what.lower()
        return what in known and bool(re.search(rf"(?<![\w.-]){re.escape(what)}(?![\w-])", known))

    return stands


@dataclass(frozen=True, slots=True)
class Linter:
    """Checks the text that a version adds to the one before, in each of its files."""

    allow: frozenset[str] = frozenset()
    """Names of rules that do not apply."""
    max_tokens: int = 0
    """Largest skill; 0: no bound. A larger skill may keep its size."""
    known: Callable[[str], bool] = lambda text: False
    """Returns whether an address or a command occurs in another text of the user, such as a train
    task."""
    present: Container[str] | None = None
    """Paths of the files in the skill's folder, if they are known."""
    description: bool = False
    """Whether the description may change."""

    def check(self, before: Version, after: Version) -> list[Finding]:
        """Return the findings in the order of ``rules``, each once."""
        in_skill = stands_in(*(text.text for text in before.values()))

        def is_known(text: str) -> bool:
            return in_skill(text) or self.known(text)

        found: list[tuple[str, str, str]] = []
        for name, (old, new) in changes(before, after).items():
            change = Change(old, new, is_known)
            judged = [
                *((rule.name, text) for rule in _added_rules() for text in rule.find(change)),
                *_judge_secrets(old.text, new.text),
                *_judge_damage(old, new, self.max_tokens),
            ]
            trained = self.description and name == SKILL_FILE and only_description(old, new)
            if not (trained or new.same_frontmatter(old)):
                judged.append(("frontmatter", new.frontmatter_text))
            if self.present is not None:
                links = sorted(file_links(new, name) - file_links(old, name))
                missing = [x for x in links if x not in self.present and x not in after]
                judged += [("links", link) for link in missing]
            file = "" if name == SKILL_FILE else name
            found += [(rule, file, excerpt) for rule, excerpt in judged]
        order = list(rules())
        unique = dict.fromkeys(_finding(*entry) for entry in found if entry[0] not in self.allow)
        return sorted(unique, key=lambda finding: order.index(finding.rule))


def _finding(rule: str, file: str, excerpt: str) -> Finding:
    severity, message = rules()[rule]
    shown = " ".join(redact(printable(excerpt)).split())
    if file:
        message = f"{file}: {message}"
    return Finding(rule, severity, message, clip(shown, _EXCERPT))


@functools.lru_cache(maxsize=64)
def additions(before: str, after: str) -> str:
    """Return the added and changed lines, without the marks of managed blocks."""
    return "\n\n".join(_OWN_MARKER.sub("", block) for block in added_blocks(before, after))


def _judge_secrets(before: str, after: str) -> Iterator[tuple[str, str]]:
    """Yield rule and excerpt of each secret in the added text, also of a redacted one."""
    added = additions(before, after)
    for start, end in secrets(added):
        if added[start:end] not in before:
            yield "secret", added[max(0, start - 20) : start + 4] + "..."
    marks = (match[0] for match in _REDACTED.finditer(added))
    yield from (("secret", mark) for mark in marks if mark not in before)


def _judge_damage(before: Text, after: Text, max_tokens: int) -> Iterator[tuple[str, str]]:
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


def _kept(document: Text) -> list[Any]:
    return [entry for entry in protected_texts(document) if entry[0] not in MANAGED]


def _unclosed(document: Text) -> bool:
    return bool(document.fences) and not document.fences[-1].closed
