"""What an edit may not add to a skill.

Only added text is judged: a sentence that stood in the skill before is the user's own. The rules
are heuristics on the safe side of a model-written text that runs with the user's rights; a rule
that does not suit a skill is switched off by name (``skillopt_lint_allow``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pytest_skillopt.skill.characters import disguised_words, hidden_characters
from pytest_skillopt.skill.contract import contradictions
from pytest_skillopt.skill.diff import added_blocks
from pytest_skillopt.skill.document import SkillError
from pytest_skillopt.skill.encoded import encoded_texts
from pytest_skillopt.skill.markup import hidden_markup, unsafe_links, urls
from pytest_skillopt.skill.normal import commands, prose, segments
from pytest_skillopt.skill.patterns import PATTERNS
from pytest_skillopt.skill.patterns_tests import TESTING_SUBJECT
from pytest_skillopt.skill.structure import broken_structure
from pytest_skillopt.untrusted import printable, secrets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_skillopt.skill.document import Document
    from pytest_skillopt.skill.pattern import Form, Pattern

Severity = Literal["refuse", "warn"]

RULES: dict[str, tuple[Severity, str]] = {
    "invisible": ("refuse", "invisible, bidirectional, tag or control characters"),
    "mixed-script": ("refuse", "words with letters of one script posing as another's"),
    "secret": ("refuse", "text in the shape of a key, token or password"),
    "override": (
        "refuse",
        "instructions to ignore or override instructions, or to take another role",
    ),
    "hide": ("refuse", "instructions to hide something from the user"),
    "tamper": ("refuse", "instructions that spoil, special-case or read tests or graders"),
    "network": ("refuse", "commands or instructions that use the network"),
    "credentials": ("refuse", "commands or instructions that touch credentials"),
    "install": ("refuse", "commands or instructions that install software"),
    "destructive": ("refuse", "commands or instructions that destroy data or change the machine"),
    "hidden-command": ("refuse", "encoded or indirectly executed commands"),
    "html-comment": ("refuse", "comments and markup that a reader of the page does not see"),
    "unsafe-link": ("refuse", "links that run, load or pretend something"),
    "frontmatter": ("refuse", "a change of the frontmatter"),
    "protected": ("refuse", "a change of a region between skillopt:keep markers"),
    "file-type": ("refuse", "a change of the byte order mark, line endings or type of the file"),
    "fences": ("refuse", "a code block that is never closed and was before"),
    "links": ("refuse", "a link within the document that worked before"),
    "size": ("refuse", "more tokens than skillopt_max_skill_tokens"),
    "contract": ("refuse", "a contradiction to what the tasks fix about the answer"),
    "url": ("warn", "a new URL"),
    "tests": ("warn", "a mention of tests"),
}
"""Every rule with its severity and what it is about."""

_EXCERPT = 120
_NEGATION = re.compile(
    r"\b(?:never|do not|don'?t|must not|mustn'?t|should not|shouldn'?t|may not|avoid|refuse to"
    r"|instead of|rather than|without|forbidden to|not allowed to|no)\b(?P<between>[^.!?;:]*)$",
    re.IGNORECASE,
)
# Words that may stand between a negation and what it forbids; anything else breaks its reach.
_BETWEEN = frozenset(
    re.findall(
        r"\w+",
        """
    ever even to be by any the a an or nor of on in as such like e g directly with use using
    run running call calling execute executing suggest suggesting propose recommend write
    writing emit output add adding include invoke invoking try type paste attempt ask asking
    print send show log store share save read edit delete remove skip change modify disable
    weaken follow request destructive dangerous shell command commands tool tools operations
    statements git network install installing download upload must you should agent user users
    his her their own your this these those other anything else touch rely depend perform
    issue put
        """,
    )
)
_DOUBLE_NEGATION = re.compile(
    r"\b(?:no|not|never|nothing|why|hardly|cannot|can'?t|without)\b|n't\b", re.I
)
_AS_DATA = re.compile(
    r"\b(?:do not|don't|never) (?:follow|obey|act on|comply|heed)\b|\bprompt injection\b"
    r"|\b(?:treat|regard)\b.{0,60}\bas (?:data|text|content|untrusted)"
)
_REDACTED = re.compile(r"\[redacted(?: \w+)?\]")
_TESTING = re.compile(r"\b(?:tests?|testing|pytest|unittest|jest|assertions?)\b", re.IGNORECASE)
_OWN_MARKER = re.compile(r"<!--\s*/?skillopt:(?:guidance|reminders)\s*-->", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that the lint objects to."""

    rule: str
    severity: Severity
    message: str
    excerpt: str = ""
    """Where it stands, bounded and fit for a terminal."""

    def to_json(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "severity": self.severity,
            "message": self.message,
            "excerpt": self.excerpt,
        }


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


def lint(
    before: Document,
    after: Document,
    allow: frozenset[str] = frozenset(),
    *,
    max_tokens: int = 0,
    contract: str = "",
) -> list[Finding]:
    """Judge what ``after`` adds to ``before``.

    Args:
        allow: names of rules that do not apply.
        max_tokens: largest skill; 0: no bound. A skill may stay as large as it was.
        contract: what the tasks fix about the answer (see ``contract.py``).

    Returns:
        Findings in the order of ``RULES``, each once.
    """
    blocks = [_OWN_MARKER.sub("", block) for block in added_blocks(before, after)]
    found = [
        *_judge_text("\n\n".join(blocks), before),
        *_judge_phrases(blocks, before),
        *broken_structure(before, after, max_tokens),
    ]
    if contract:
        added = contradictions(contract, "\n\n".join(blocks))
        found += [("contract", message, excerpt) for message, excerpt in added]
    order = list(RULES)
    unique = dict.fromkeys(_finding(*entry) for entry in found if entry[0] not in allow)
    return sorted(unique, key=lambda finding: order.index(finding.rule))


def _finding(rule: str, message: str, excerpt: str) -> Finding:
    shown = " ".join(printable(excerpt).split())
    if len(shown) > _EXCERPT:
        shown = shown[: _EXCERPT - 3] + "..."
    return Finding(rule, RULES[rule][0], message, shown)


def _judge_text(added: str, before: Document) -> Iterator[tuple[str, str, str]]:
    """Rules that look at characters and markup."""
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
        yield "hidden-command", "encoded text", excerpt
    for excerpt in hidden_markup(added):
        yield "html-comment", RULES["html-comment"][1], excerpt
    for message, excerpt in unsafe_links(added):
        yield "unsafe-link", message, excerpt
    for url in urls(added):
        if url not in before.text:
            yield "url", RULES["url"][1], url
    mention = _TESTING.search(added)
    if mention:
        yield "tests", RULES["tests"][1], added[max(0, mention.start() - 40) : mention.end() + 40]


def _judge_phrases(blocks: list[str], before: Document) -> Iterator[tuple[str, str, str]]:
    """Rules that look at sentences and commands."""
    patterns = PATTERNS if is_about_testing(before) else (*PATTERNS, *TESTING_SUBJECT)
    forms: dict[Form, Any] = {"prose": prose, "commands": commands}
    for form, normalise in forms.items():
        known = set(segments(normalise(before.text)))
        for block in blocks:
            for segment in segments(normalise(block)):
                if segment not in known:
                    yield from _judge_segment(segment, form, patterns)


def is_about_testing(document: Document) -> bool:
    """Whether tests are the skill's own subject, so that it may speak of changing them."""
    return len(_TESTING.findall(document.text)) >= 3


def _judge_segment(
    segment: str, form: Form, patterns: tuple[Pattern, ...]
) -> Iterator[tuple[str, str, str]]:
    for pattern in patterns:
        if pattern.form != form:
            continue
        for match in pattern.regex.finditer(segment):
            if not (pattern.negatable and _is_forbidden(segment, match)):
                yield pattern.rule, RULES[pattern.rule][1], segment[max(0, match.start() - 30) :]
                break


def _is_forbidden(segment: str, match: re.Match[str]) -> bool:
    """Whether the sentence forbids what was found, or quotes it as data not to be followed."""
    head = segment[: match.start()]
    negation = _NEGATION.search(head)
    if negation and not _DOUBLE_NEGATION.search(head[: negation.start()]):
        between = negation["between"].lower()
        if set(re.findall(r"[a-z']+", between)) <= _BETWEEN and "," not in between:
            return True
    quoted = head.count('"') % 2 or re.search(r"(?:^|\W)'[^']*$", head)
    rest = segment[: match.start()] + " " + segment[match.end() :]
    return bool(quoted and _AS_DATA.search(rest))
