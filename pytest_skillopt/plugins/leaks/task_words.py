"""Leaks of task content into added text: an answer, an id, a part of a prompt.

A skill that holds answers is not a better skill. The search is for specific forms: long numbers,
dates, codes, addresses, names, opaque expected words, and runs of ``NGRAM`` words, also in another
format, in other letters, in pieces or over two lines. Text that many tasks share, text of the skill
itself, and ordinary English (``words.txt``: words in at least 15 texts of public Python
documentation and sources, and a list of everyday and business words) do not count. The rules favour
few false alarms, since the gate and the unseen tasks also protect against leaks.
"""

from __future__ import annotations

import contextlib
import datetime
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from pytest_skillopt import Refusal
from pytest_skillopt.untrusted import strip_invisible

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from pytest_skillopt import Edit, SkillTask

    Keys = Iterator[tuple[str, tuple[int, int]]]
    """The specific words and numbers of a text, each with its place."""

_DATE = re.compile(
    r"(?<![\w.,/-])(?:(?:19|20)(?:\d{6}|\d\d([-/.])\d\d?\1\d\d?)|"
    r"(?:\d\d?|[A-Za-z]{3,9})(?:st|nd|rd|th)?[ ./,-]{1,2}(?:of )?"
    r"(?:\d\d?|[A-Za-z]{3,9})(?:st|nd|rd|th)?[ ./,-]{1,2}(?:of )?(?:19|20)\d\d)(?![\w/-])"
)
_DATE_FORMS = (
    "%Y%m%d", "%Y %m %d", "%d %m %Y", "%m %d %Y", "%d %b %Y", "%d %B %Y", "%b %d %Y", "%B %d %Y",
)  # fmt: skip

NGRAM = 8
"""Equal words in a row that count as copied."""

_SPLITS = {"train": 0, "val": 1, "test": 2}
_ESCAPE = re.compile(r"\\(?:[nrt]|u([0-9a-fA-F]{4}))")
_CODE = re.compile(r"(?<![\w-])(?=[^\s]{0,60}?[A-Za-z])\w+(?:[-_/#]\w+)*(?![\w-])")
_NUMBER = re.compile(
    r"(?<![\w.,])(?<!\w-)"
    r"(?:\d{1,3}(?:[.,_'\u2019\u00a0\u202f ]\d{3})+(?:[.,]\d{1,4})?|\d+(?:[.,]\d+)?)(?!\w)"
)
_COMMON_CODE = re.compile(
    r"(?:u?int|float|sha|base|utf|iso|rfc|md|x|h|p|v|py|python|http|ascii|cp|latin|windows|web|win"
    r"|blake|aes|rsa|tls|ipv|en|din|ean|gtin|q|fy)[-_]?\d{1,4}(?:[._-][a-z\d]{1,4})*[a-z_]{0,3}"
    r"|cve-\d{4}-\d+|\d+(?:[a-z]{1,3}|st|nd|rd|th)"
    r"|x86[-_]64|(?:19|20)\d\d-\d\d|\d[\dx_-]*",
    re.IGNORECASE,
)
_YEAR = re.compile(r"(?:19|20)\d\d")
_STANDARD = frozenset({"8601", "3339", "4217", "3166", "1234", "12345", "123456", "8859", "9001"})
_NAME = re.compile(r"(?<!\w)[^\W\d_a-z][^\W\d_]{2,}(?:[ \u00a0][^\W\d_a-z][^\W\d_]{2,}){1,3}(?!\w)")
_LITERAL = re.compile(r"""(?<![\w\]])(["'])((?:(?!\1)[^\\\n]|\\.){5,200})\1(?!\s*[:\]])""")
_INVERTED = re.compile(r"(?<!\w)([^\W\d_a-z][^\W\d_]{2,}), ([^\W\d_a-z][^\W\d_]{2,})(?!\w)")
_WORD = re.compile(r"[^\W_]+(?:['.,-][^\W_]+)*")
_PART = re.compile(r"[^\W_]+")
_GROUPED = re.compile(
    r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
    r"|(?<![\w-])\+?[A-Za-z]{0,4}\d\w*(?:[ /().-]{1,2}\w*\d\w*)*(?!\w)"
)
"""Mail addresses, and numbers or codes that may stand in groups, such as a telephone number."""
_WRAPPED_NUMBER = re.compile(r"(?<=[\d.,])[ \t]*\n[ \t]*(?=[.,]?\d)")
_LONGEST_JOINED = 60
"""Maximum characters of a code, name or phrase that is found in pieces."""
_LEAST_LETTERS, _LEAST_DIGITS = 7, 4
"""Minimum letters of a word, and digits of a code, that is found in pieces."""
_LEAST_GROUPED = 9
"""Minimum characters of a number or address that is found in any grouping."""
_LARGEST_GAP = 3
"""Maximum characters between the pieces of a code or word."""


@dataclass(frozen=True, slots=True)
class Leak:
    """Text of a task in the added text."""

    split: str
    """``train`` if a train task holds it, else ``val`` or ``test``, hidden from the optimizer."""
    tasks: tuple[str, ...]
    """Node ids of the tasks of that split that hold it."""
    excerpt: str
    """The words as they are in the added text."""


class LeakIndex:
    """Index of the text that is specific to each task of a suite, which refuses edits for leaks.

    Words of ``skill``, its text at the start, are the user's own and not leaks.
    """

    def __init__(self, tasks: Iterable[SkillTask], skill: str = "") -> None:
        self._tasks = list(tasks)
        groups = {task.group or task.id for task in self._tasks}
        self._rare = max(2, len(groups) // 8) if len(groups) > 4 else 1
        self._holders: dict[str, list[int]] = {}
        for number, task in enumerate(self._tasks):
            for key in _task_keys(task):
                self._holders.setdefault(key, []).append(number)
        self._spelled = {key.partition(" ")[2] for key in self._holders}
        own = {key for key, _ in (*_keys(skill), *_joined(skill, self._spelled))}
        for task in self._tasks:
            if task.split == "train":
                # The optimizer is shown the docstring of a train task; its words are not answers.
                own |= {key for key, _ in _word_keys(task.doc)}
                own |= {key for key, _ in _joined(task.doc, self._spelled) if key[:4] == "join"}
        self._holders = {
            key: holders
            for key, holders in self._holders.items()
            if key not in own and self._is_rare(key, holders)
        }

    def _is_rare(self, key: str, holders: list[int]) -> bool:
        groups = {self._tasks[number].group or self._tasks[number].id for number in holders}
        return len(groups) <= (1 if key.startswith("word ") else self._rare)

    def check(self, added: str) -> list[Leak]:
        """List the leaks in a text, in order."""
        found: dict[str, list[int]] = {}
        text = strip_invisible(added)
        for form in dict.fromkeys((text, _WRAPPED_NUMBER.sub("", text))):
            for excerpt, holders in self._find(form):
                found.setdefault(excerpt, holders)
        return [self._leak(excerpt, holders) for excerpt, holders in found.items()]

    def __call__(self, edit: Edit, added: str) -> Refusal | None:
        """Refuse an edit for leaks in its text; only the report sees those of hidden tasks."""
        leaks = self.check(added)
        why = "it carries words of a particular task instead of a rule"
        if hidden := [leak for leak in leaks if leak.split in ("val", "test")]:
            words = ", ".join(f"{leak.excerpt!r} of {leak.tasks[0]}" for leak in hidden[:3])
            unseen = f"({hidden[0].split}), which the optimizer has not been shown"
            return Refusal(edit, why, detail=f"contamination: it carries {words} {unseen}")
        terms = tuple(dict.fromkeys(leak.excerpt for leak in leaks))
        words = ", ".join(map(repr, terms[:3]))
        return Refusal(edit, f"{why}: {words}", terms) if terms else None

    def _find(self, text: str) -> Iterator[tuple[str, list[int]]]:
        """Yield excerpt and tasks of every indexed key in a text; joined runs last."""
        runs: list[tuple[int, int, list[int]]] = []
        keys = [*_keys(text), *_joined(text, self._spelled)]
        for key, (start, end) in sorted(keys, key=lambda entry: entry[1]):
            holders = self._holders.get(key)
            if not holders:
                continue
            if key.startswith("run "):
                _extend(runs, start, end, holders)
            else:
                yield " ".join(text[start:end].split()), holders
        for start, end, holders in runs:
            yield " ".join(text[start:end].split()), holders

    def _leak(self, excerpt: str, holders: list[int]) -> Leak:
        tasks = [self._tasks[number] for number in holders]
        split = min((task.split for task in tasks), key=lambda name: _SPLITS.get(name, 3))
        return Leak(split, tuple(sorted(t.id for t in tasks if t.split == split)), excerpt)


def _extend(
    runs: list[tuple[int, int, list[int]]], start: int, end: int, holders: list[int]
) -> None:
    """Join runs that overlap into one."""
    if runs and start <= runs[-1][1]:
        first, last, before = runs[-1]
        runs[-1] = (first, max(last, end), [n for n in before if n in holders] or before)
    else:
        runs.append((start, end, holders))


def _task_keys(task: SkillTask) -> set[str]:
    parameters = task.id.partition("[")[2].rstrip("]")
    text = strip_invisible(_unescaped("\n".join([task.text, task.doc, parameters])))
    raw = f"{task.text}\n{task.doc}"
    keys = {key for key, _ in _keys(text) if not key.startswith("word ")}
    keys |= {cents for key in keys if (cents := _in_cents(key))}
    grouped = (_compact(match[0]) for match in _GROUPED.finditer(text))
    keys |= {f"join {compact}" for compact in grouped if len(compact) >= _LEAST_GROUPED}
    return keys | set(_expected(raw))


def _unescaped(text: str) -> str:
    """Decode line endings and letters that Python or JSON writes as escapes."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else "\n", text)


def _expected(text: str) -> Iterator[str]:
    """Yield opaque words and phrases of the string literals that are values, not keys."""
    for match in _LITERAL.finditer(text):
        words = [word.casefold() for word in _WORD.findall(_unescaped(match[2]))]
        opaque = [
            word for word in words if word.isalpha() and len(word) > 4 and not _is_common(word)
        ]
        if opaque and len(words) == 1:
            yield f"word {words[0]}"
        elif opaque and 2 <= len(words) < NGRAM:
            yield f"join {_compact(''.join(words))}"


def _keys(text: str) -> Keys:
    """Yield a key for everything specific in a text, with its place."""
    taken: set[int] = set()
    for iso, span in dates(text):
        taken.update(range(*span))
        yield f"date {iso}", span
    for match in _CODE.finditer(text):
        if _is_code(match[0]) and match.start() not in taken:
            taken.update(range(*match.span()))
            yield f"code {_compact(match[0])}", match.span()
    for match in _NUMBER.finditer(text):
        digits = _significant(match[0])
        if digits and match.start() not in taken:
            yield f"number {digits}", match.span()
    yield from _name_keys(text)
    yield from _word_keys(text)


def _name_keys(text: str) -> Keys:
    """Yield a key for every name of several words, in whichever order they stand."""
    for match in _NAME.finditer(text):
        words = match[0].casefold().split()
        if not all(map(_is_common, words)):
            yield f"name {' '.join(sorted(words))}", match.span()
    for match in _INVERTED.finditer(text):
        words = [part.casefold() for part in match.groups()]
        yield f"name {' '.join(sorted(words))}", match.span()


def _joined(text: str, known: Container[str]) -> Keys:
    """Yield the codes and words that adjacent pieces of a text spell together.

    ``known`` holds the letters and digits of all keys.
    """
    parts = [(match[0].casefold(), match.span()) for match in _PART.finditer(text)]
    for first in range(len(parts)):
        spelled = ""
        start = parts[first][1][0]
        end = parts[first][1][0]
        for part, (here, there) in parts[first : first + _LONGEST_JOINED]:
            if here - end > _LARGEST_GAP or len(spelled) + len(part) > _LONGEST_JOINED:
                break
            in_pieces = bool(spelled)
            spelled = spelled + part
            end = there
            if spelled not in known:
                continue
            yield f"join {spelled}", (start, end)
            if sum(char.isdigit() for char in spelled) >= _LEAST_DIGITS:
                yield f"code {spelled}", (start, end)
            elif in_pieces and len(spelled) >= _LEAST_LETTERS:
                yield f"word {spelled}", (start, end)


def _compact(text: str) -> str:
    """Return only the letters and digits, without case."""
    return re.sub(r"[\W_]", "", text).casefold()


def _in_cents(key: str) -> str:
    """Return the key of an amount in its smallest unit; empty if it is not one, or is round."""
    kind, _, number = key.partition(" ")
    whole, _, fraction = number.partition(".")
    if kind != "number" or not 1 <= len(fraction) <= 2:
        return ""
    cents = f"{whole}{fraction:0<2}"
    return f"number {cents}" if len(cents.strip("0")) >= _LEAST_DIGITS else ""


def _word_keys(text: str) -> Keys:
    words = [(match[0].casefold(), match.span()) for match in _WORD.finditer(text)]
    plain = [word for word, _ in words]
    for at, (word, span) in enumerate(words):
        # "Nordwind's" and "Nordwind-style" contain "Nordwind".
        for part in dict.fromkeys([word, *re.split(r"['.,-]", word)]):
            if len(part) > 4 and not _is_common(part):
                yield f"word {part}", span
        if at + NGRAM <= len(words):
            run = " ".join(plain[at : at + NGRAM])
            yield f"run {run}", (span[0], words[at + NGRAM - 1][1][1])


def _is_code(text: str) -> bool:
    """Check for an identifier with digits, such as an order number; not a unit or version."""
    digits = sum(char.isdigit() for char in text)
    letters = sum(char.isalpha() for char in text)
    return digits >= 2 and letters >= 1 and len(text) >= 5 and not _COMMON_CODE.fullmatch(text)


def _significant(number: str) -> str:
    """Return a number in one form; empty if it is not specific.

    ``1,249.50``, ``1.249,5`` and ``1249.5`` are one number; a last group of three digits is read
    as thousands. Fewer than four digits, years, and round thousands (one digit besides zeros, or
    two if it is written without separators) are not specific.
    """
    digits = re.sub(r"\D", "", number)
    if len(digits) < 4 or number in _STANDARD or _YEAR.fullmatch(number):
        return ""
    if len(digits.strip("0")) < (3 if digits == number else 2):
        return ""
    decimals = re.search(r"[.,](\d{1,2}|\d{4,})$", number)
    fraction = decimals[1] if decimals else ""
    whole = digits[: len(digits) - len(fraction)].lstrip("0")
    return f"{whole}.{fraction}".rstrip("0").rstrip(".") if fraction else whole


def _is_common(word: str) -> bool:
    """Check for ordinary English, inflected or not; apostrophes and hyphens separate words."""
    return all(_is_common_part(part) for part in re.split(r"['.,-]", word) if len(part) > 2)


def _is_common_part(word: str) -> bool:
    stems = [word.removesuffix(ending) for ending in _ENDINGS.split(" ") if word.endswith(ending)]
    stems += [stem[:-1] for stem in stems if len(stem) > 3 and stem[-1] == stem[-2]]
    return any(stem + end in _common_words() for stem in stems for end in _STEM_ENDS)


_STEM_ENDS = ("", "e", "y", "le", "ize")
_ENDINGS = " ies ied ily es s ed ing ly er est ers ness ment able isation ation ise ised ising"


def dates(text: str) -> Keys:
    """Yield every date as ``YYYY-MM-DD``, with its place.

    ``2024-03-12``, ``12.03.2024``, ``3/12/2024``, ``Mar. 12, 2024`` and ``20240312`` are one date.
    If day and month are ambiguous, both readings count.
    """
    for match in _DATE.finditer(text):
        parts = " ".join(re.findall(r"\d+|[A-Za-z]{3,}", match[0]))
        for form in _DATE_FORMS:
            with contextlib.suppress(ValueError):
                yield f"{datetime.datetime.strptime(parts, form):%Y-%m-%d}", match.span()


@cache
def _common_words() -> frozenset[str]:
    source = files(__package__).joinpath("words.txt")
    return frozenset(source.read_text("utf-8").split())
