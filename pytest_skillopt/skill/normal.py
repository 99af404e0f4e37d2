"""Text as the lint reads it: without the disguises that Markdown, HTML and shells allow."""

from __future__ import annotations

import html
import re
import unicodedata

from pytest_skillopt.skill.document import to_lf
from pytest_skillopt.untrusted import strip_invisible

_BLOCK_START = r"[ \t]*(?:[-*+>][ \t]|\d{1,9}[.)][ \t]|#{1,6}[ \t]|```|~~~|\|)"
_SOFT_BREAK = re.compile(rf"[ \t]*\n(?![ \t]*\n|{_BLOCK_START})[ \t]*")
_TAG = re.compile(r"</?[A-Za-z][A-Za-z0-9]{0,15}(?:\s[^<>\n]{0,200})?/?>")
_EMPHASIS = re.compile(r"[*~`]+|(?<!\w)_+|_+(?!\w)")
_SPELLED = re.compile(r"(?<![\w.-])(?:\w(?: |\.|-|\u00b7)){4,40}\w(?![\w-])")
_DIGITS = {"0": "o", "1": "i", "3": "e", "4": "a", "5": "s", "7": "t"}
_DIGIT_LETTER = re.compile(r"(?<=[a-z])[013457](?=[a-z]{2})|(?<![\w.-])[013457](?=[a-z]{4})")
_QUOTES = str.maketrans(
    "\u2018\u2019\u201a\u201c\u201d\u201e\u2032\u02bc\u2013\u2014", "''''\"\"''--"
)
_SENTENCE = re.compile(r"(?<=\S[.!?;])\s+|\n+")
_CONTINUED = re.compile(r"[\\^`][ \t]*\n[ \t]*")
_EMPTY_QUOTES = re.compile(r"(?<=\w)(?:''|\"\"|\$@|\$\*|\$\{[@*]\})(?=\w)")
_INNER_QUOTE = re.compile(r"(?<=[A-Za-z])['\"\\](?=[A-Za-z])|(?<![\w\\])\\(?=[a-z]{2})")
_QUOTED_PART = re.compile(r"(?<![\w'\"])['\"](\w{1,12})['\"](?=\w)|(?<=\w)['\"](\w{1,12})['\"]")
_FIELD_SEPARATOR = re.compile(r"\$\{?IFS\}?")
_BRACE_LIST = re.compile(r"\{([\w./:-]+(?:,[\w./:@=-]+)+)\}")


def prose(text: str) -> str:
    """Sentences as a reader takes them in: lower case, no accents, emphasis, tags or entities,
    wrapped lines joined, s p e l l e d and d1git-written words made plain."""
    text = _compatible(html.unescape(to_lf(text))).lower()
    text = _EMPHASIS.sub("", _TAG.sub("", text))
    text = _DIGIT_LETTER.sub(lambda match: _DIGITS[match[0]], _SOFT_BREAK.sub(" ", text))
    return _SPELLED.sub(lambda match: re.sub(r"[ .\-\u00b7]", "", match[0]), text)


def commands(text: str) -> str:
    """Lines as a shell takes them in: continued lines joined, quoting inside of words undone."""
    text = _FIELD_SEPARATOR.sub(" ", _CONTINUED.sub(" ", _compatible(to_lf(text))))
    text = _BRACE_LIST.sub(lambda match: match[1].replace(",", " "), text)
    text = _QUOTED_PART.sub(lambda match: match[1] or match[2], _EMPTY_QUOTES.sub("", text))
    return _INNER_QUOTE.sub("", text)


def _compatible(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", strip_invisible(text))
    plain = "".join(char for char in decomposed if not unicodedata.combining(char))
    return plain.translate(_QUOTES)


def segments(text: str) -> list[str]:
    """Sentences, list items and lines, white space collapsed."""
    return [" ".join(part.split()) for part in _SENTENCE.split(text) if part.strip()]
