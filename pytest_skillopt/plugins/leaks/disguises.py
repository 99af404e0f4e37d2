"""Text that a reader sees differently than a model, or not at all."""

from __future__ import annotations

import base64
import binascii
import html
import re
import unicodedata
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pytest_skillopt.skill.text import to_lf
from pytest_skillopt.untrusted import invisible, known_secrets, secret_variables, strip_invisible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_skillopt import Text

_WORD = re.compile(r"[^\W\d_]+")
_LATIN = re.compile("[A-Za-z]")
_POSING = re.compile("[\u0370-\u058f\u13a0-\u13ff\u2c80-\u2cff]")
"""Letters of Greek, Cyrillic, Armenian, Cherokee and Coptic, many of which look like Latin ones."""
_SHORT = 3
"""Maximum letters of a word that may mix Latin and Greek: units and variables (kΩ, Δx)."""
_LEAST_ENCODED = 12
"""Minimum characters of an encoded text: longer random ones rarely decode to letters."""
_LETTER_SHARE = 0.5
"""Share of letters, in (0, 1], from which decoded bytes count as text."""

_BASE16 = re.compile(r"(?<![0-9A-Za-z])(?:[0-9A-Fa-f]{2} ?){11,}[0-9A-Fa-f]{2}(?![0-9A-Za-z])")
_BASE64 = re.compile(r"(?<![\w+/=-])[A-Za-z0-9+/_-]{16,}={0,2}(?![\w+/=])")
_BASE32 = re.compile(r"(?<![\w=])[A-Z2-7]{20,}={0,6}(?![\w=])")
_ESCAPES = re.compile(
    r"(?:(?<!\\)\\++(?:x|u00)[0-9a-f]{2}|%[0-9a-f]{2}|&#(?:x[0-9a-f]{2}|\d{2,3});){6,}", re.I
)
_ESCAPE = re.compile(r"(?:x|u00|%)([0-9a-f]{2})|#(\d+);", re.IGNORECASE)
_BLOB = re.compile(
    r"(?<![\w/+.:=-])(?=[A-Za-z0-9+/]*\d)(?=[A-Za-z0-9+/]*[a-z])(?=[A-Za-z0-9+/]*[A-Z])"
    r"[A-Za-z0-9+/]{60,}={0,2}"
)
"""Encoded data; neither a hexadecimal digest nor a path matches."""
_LEAST_BROKEN = 16
"""Minimum letters and digits, some of each, of a secret that is looked for in pieces: a shorter one
may be made of the words of a sentence."""
_TAG = re.compile(r"<[^<>]*>")
_BETWEEN = re.compile(r"[\W_]+")
_HIDDEN = re.compile(
    r"<!(?:--|\[cdata\[|doctype\b)|<\?(?:php|xml|=)"
    r"|^[ \t]*\[[^\]\n]{0,80}\]:[ \t]*(?:#|<>|\S+[ \t]+[\"'(][^\n]{25,})[^\n]*"
    r"|<[a-z][^<>\n]{0,200}(?:display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0"
    r"|opacity\s*:\s*0|color\s*:\s*(?:white|transparent|#fff)|\shidden\b|aria-hidden)[^<>\n]{0,200}>"
    r"|<(?:script|style|template|noscript|iframe|object|embed|form|meta|link|svg|base|details)\b"
    r"|<[a-z][^<>\n]{0,200}\son[a-z]{3,20}\s*=",
    re.IGNORECASE | re.MULTILINE,
)
_TURN = re.compile(
    r"<\|[a-z_]{2,30}\|>|\[/?INST\]|<</?SYS>>"
    r"|</?(?:system|assistant|developer)(?:[ _-]?(?:prompt|message|reminder|instructions?))?\s*>",
    re.IGNORECASE,
)
"""Marks of chat templates between the turns of speakers."""
_CODE_SPAN = re.compile(r"(?<![`\\])(`+)(?!`)[^\n]+?(?<!`)\1(?!`)")
_LINK = re.compile(r"(!?)\[[^\]\n]{0,300}\]\(\s*<?([^)\s>]{1,2000})")
_SCHEME = re.compile(r"(?:javascript|data|vbscript|file)\s*:[^\s,]", re.IGNORECASE)
_HTML_LINK = re.compile(
    r"<(?:a|img|area|video|audio|source)\s[^<>\n]{0,300}|!\[[^\]\n]{0,300}\]\[[^\]\n]{0,100}\]",
    re.IGNORECASE,
)


def broken_secrets(text: str) -> set[str]:
    """Name the secret variables whose value is in a text, if need be without what breaks it up.

    That is all but letters and digits: blanks, line ends, invisible characters, Markdown, tags.
    """
    plain = strip_invisible(html.unescape(text))
    bare = [_BETWEEN.sub("", whole) for whole in (plain, _TAG.sub("", plain))]
    found = set()
    for secret, name in known_secrets(secret_variables()):
        value = _BETWEEN.sub("", secret)
        mixed = not (value.isalpha() or value.isdigit())
        if mixed and len(value) >= _LEAST_BROKEN and any(value in whole for whole in bare):
            found.add(name)
    return found


def hidden_characters(text: str) -> Iterator[str]:
    """Describe each invisible character with the text around it."""
    for at in invisible(text):
        name = unicodedata.name(text[at], "control character")
        around = text[max(0, at - 12) : at + 13].replace("\n", " ")
        yield f"U+{ord(text[at]):04X} {name} in {around!r}"


def disguised_words(text: str) -> Iterator[str]:
    """Yield words that mix Latin with letters posing as it, or are drawn in other characters."""
    for word in _WORD.findall(text):
        if not word.isascii() and (_is_mixed(word) or _is_drawn(word)):
            yield word


def _is_mixed(word: str) -> bool:
    posing = _POSING.findall(word)
    is_unit = len(word) <= _SHORT and all("\u0370" <= char < "\u0400" for char in posing)
    return bool(posing and _LATIN.search(word)) and not is_unit


def _is_drawn(word: str) -> bool:
    """Check for mathematical, raised or wide letters; single ones have their use."""
    plain = [unicodedata.normalize("NFKC", char) for char in word if not char.isascii()]
    drawn = sum(char.isascii() for char in plain)
    return len(word) >= _SHORT and 2 * drawn > len(word)


def encoded_texts(text: str) -> Iterator[str]:
    """Yield parts that decode to plain text, runs of escapes that do, and large encoded blobs."""
    decoders = {_BASE16: bytes.fromhex, _BASE64: _from_base64, _BASE32: _from_base32}
    for pattern, decode in decoders.items():
        yield from (run for run in pattern.findall(text) if _is_text(decode, run))
    for match in _ESCAPES.finditer(text):
        codes = []
        for base16, base10 in _ESCAPE.findall(match[0]):
            code = int(base16, 16) if base16 else int(base10)
            codes.append(code)
        if all(0x20 <= code < 0x7F for code in codes):
            yield match[0]
    yield from _BLOB.findall(text)


def _from_base64(run: str) -> bytes:
    """Decode either alphabet: the usual one, or that of URLs."""
    usual = run.replace("-", "+").replace("_", "/")
    return base64.b64decode(usual + "==")  # what is too much is ignored


def _from_base32(run: str) -> bytes:
    bare = run.rstrip("=")
    return base64.b32decode(bare + "=" * (-len(bare) % 8))


def _is_text(decode: Callable[[str], bytes], run: str) -> bool:
    try:
        plain = decode(run).decode("ascii")
    except (binascii.Error, ValueError):
        return False
    if len(plain) < _LEAST_ENCODED or not all(c.isprintable() or c in "\t\n\r" for c in plain):
        return False
    return sum(char.isalpha() for char in plain) >= _LETTER_SHARE * len(plain)


def hidden_markup(text: str) -> Iterator[str]:
    """Yield comments, markup that a page does not show, and marks of chat templates.

    ``text`` is added text without its code (``without_code``), which a page shows.
    """
    for pattern in (_HIDDEN, _TURN):
        for match in pattern.finditer(text):
            yield text[match.start() : match.end() + 60]


def without_code(document: Text) -> str:
    """Return the text of a document, line for line, without closed code blocks and code spans."""
    parts = []
    end = 0
    for fence in document.fences:
        if fence.closed:
            gap = "\n" * to_lf(document.text[fence.start : fence.end]).count("\n")
            parts += [document.text[end : fence.start], gap]
            end = fence.end
    return _CODE_SPAN.sub("``", "".join([*parts, document.text[end:]]))


def unsafe_links(text: str) -> Iterator[str]:
    """Yield links that run, load or embed something."""
    for match in _LINK.finditer(text):
        target = unquote(html.unescape(match[2])).strip()
        elsewhere = match[1] and (target.startswith("//") or "://" in target)
        if elsewhere or _SCHEME.match(target):
            yield match[0]
    yield from _HTML_LINK.findall(text)
