"""Make text from outside safe: transcripts, model replies, test output are never instructions.

Everything that is shown on a terminal, sent to the optimizer or written to disk passes through
one of these functions first. All are pure and linear in the length of the text.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import re
import unicodedata
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

SHORTEST_SECRET = 8
"""Length in characters below which a secret variable's value is too common a string to redact."""

# Characters that print as nothing although Unicode does not class them as format characters.
_BLANKS = frozenset("\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\u034f\u2028\u2029")
_JOINERS = "\u200c\u200d"
_EMOJI_STYLE = "\ufe0e\ufe0f"
# Letters and printable ASCII are visible; only matches of this are checked one by one.
_SUSPECT = re.compile(
    r"[^\t\n\r\x20-\x7e\xa0-\xac\xae-\u02ff\u0370-\u0588\u0900-\u10ff\u3041-\u3163\u4e00-\u9fff]"
)
_ANSI = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # control sequences
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # strings up to BEL or ST (titles, links)
    r"|\x1b[ -/]*[0-~]?"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
_COMMAND = re.compile(r"^[^\S\n]*:(?=:)|#(?=#\w*\[)", re.MULTILINE)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

_SECRET_NAME = re.compile(
    r"SECRET|TOKEN|PASSW|PASSPHRASE|CREDENTIAL|APIKEY|(?:^|_|ACCESS|PRIVATE)KEY(?:S?$|S?_)|(?:^|_)PAT$",
    re.IGNORECASE,
)
_SECRET_SHAPES = re.compile(
    r"""
    -----BEGIN\ [A-Z ]{0,30}PRIVATE\ KEY-----
        (?:[^-]{0,8000}-----END\ [A-Z ]{0,30}PRIVATE\ KEY-----)?
    |(?<![A-Za-z0-9])(?:
        sk-(?:ant-|proj-|or-|svcacct-)?[A-Za-z0-9_-]{20,}
        |(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}
        |gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}
        |glpat-[A-Za-z0-9_-]{20,}
        |xox[abeoprs]-[A-Za-z0-9-]{10,}
        |(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])
        |AIza[A-Za-z0-9_-]{35}
        |ya29\.[A-Za-z0-9_-]{20,}
        |hf_[A-Za-z0-9]{30,}
        |npm_[A-Za-z0-9]{36}
        |pypi-[A-Za-z0-9_-]{40,}
        |SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}
        |dop_v1_[a-f0-9]{40,}|shp(?:at|ca|pa|ss)_[a-f0-9]{32}|dapi[a-f0-9]{32}|SK[a-f0-9]{32}
        |(?:rubygems|glsa|lin_api|figd|dckr_pat|whsec|r8|gsk|lsv2_[ps][tk])_[A-Za-z0-9_+/=-]{24,}
        |(?:GOCSPX|PMAK|nvapi|xai|pplx|sq0(?:atp|csp)|tskey-[a-z]{2,8})-[A-Za-z0-9_-]{16,}
        |ATATT3[A-Za-z0-9_=-]{20,}|hvs\.[A-Za-z0-9_-]{20,}|AGE-SECRET-KEY-1[A-Z0-9]{40,}
        |\d{8,10}:AA[A-Za-z0-9_-]{32,}
        |hooks\.slack\.com/services/[A-Z0-9]{6,}/[A-Z0-9]{6,}/[A-Za-z0-9]{16,}
        |discord(?:app)?\.com/api/webhooks/\d{10,}/[A-Za-z0-9_-]{20,}
        # Secrets of unknown services: a prefix, and a mix of characters that no word or digest has.
        |[A-Za-z]{2,12}[_-](?:[A-Za-z0-9]{1,10}[_-]){0,2}
            (?=(?:[A-Za-z]*\d){4})(?=[A-Z0-9]*[a-z])(?=[a-z0-9]*[A-Z])[A-Za-z0-9]{28,}
        |eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}
        |(?i:bearer|basic|authorization["']?:\ ?["']?[a-z]{3,12})\ +
            (?=[A-Za-z0-9+/_=.~-]*\d)[A-Za-z0-9+/_=.~-]{20,}
        |[a-z][a-z0-9+.]{1,20}://[^\s/:@"'<>]{0,80}:(?![{$<])[^\s/@"'<>]{3,200}@(?=[A-Za-z0-9])
    )
    |(?i:api[_-]?key|secret|token|passw(?:or)?d|account[_-]?key|access[_-]?key)
        (?i:[A-Z0-9_-]{0,20})["']?\s{0,3}[:=]\s{0,3}["']?
        (?=[A-Za-z0-9+/_=.~-]{0,200}\d)(?=[0-9+/_=.~-]{0,200}[A-Za-z])(?P<value>[A-Za-z0-9+/_=.~-]{16,})
    |(?i:passw(?:or)?(?:d|t)|passphrase|pwd)["'`]?\s{0,3}(?:[:=]|is\ )\s{0,3}["'`]?
        (?=\S{0,63}[a-z])(?=\S{0,63}[A-Z])(?=\S{0,63}\d)(?P<password>[^\s"'`,;(){}<>]{8,64})
    """,
    re.VERBOSE,
)


def invisible(text: str) -> Iterator[int]:
    """Yield the offsets of characters that a reader cannot see.

    These are zero-width, bidirectional and tag characters, controls other than tab and line
    endings, fillers, private and unassigned codes; but not joiners and emoji styles that writing
    needs (between letters of a script that joins, in an emoji).
    """
    for match in _SUSPECT.finditer(text):
        if _is_invisible(text, match.start()):
            yield match.start()


def _is_invisible(text: str, at: int) -> bool:
    char = text[at]
    before = text[at - 1] if at else ""
    if char in _JOINERS:
        return not (_joins(before) and _joins(text[at + 1 : at + 2]))
    if char in _EMOJI_STYLE:
        return not (
            before and (before in "0123456789#*" or unicodedata.category(before) in _SYMBOLS)
        )
    if "\ufe00" <= char <= "\ufe0d" or "\U000e0000" <= char <= "\U000e0fff":
        return True
    return char in _BLANKS or unicodedata.category(char) in {"Cf", "Cc", "Cs", "Co", "Cn"}


_SYMBOLS = frozenset({"So", "Sm", "Sk", "Po"})


def _joins(char: str) -> bool:
    return bool(char) and (
        "\u0600" <= char <= "\u0dff"
        or char in _EMOJI_STYLE
        or unicodedata.category(char) in {"So", "Sk"}
    )


def strip_invisible(text: str) -> str:
    drop = set(invisible(text))
    return "".join(c for i, c in enumerate(text) if i not in drop) if drop else text


def printable(text: str) -> str:
    """Make text fit for a terminal: no escape sequences, no controls but tab and LF, no bidi."""
    return strip_invisible(_CONTROL.sub("", _ANSI.sub("", text.replace("\r\n", "\n"))))


def no_command(text: str) -> str:
    """Disarm commands that a CI reads from a job's output: ``::`` at a line's start, any ``##[``.

    Apply it last, to whole lines: wrapping can move any word to the start of one.
    """
    return _COMMAND.sub(lambda match: f"{match[0]} ", text)


def is_ci() -> bool:
    """Tell whether this process runs in a CI service, which may carry out what a job prints."""
    return any(os.environ.get(name) for name in ("CI", "GITHUB_ACTIONS", "TF_BUILD"))


def shown(text: str) -> str:
    """Make text fit for the output of a command: :func:`printable`, then :func:`no_command`."""
    return no_command(printable(text))


def encodable(text: str) -> str:
    """Replace lone surrogates: JSON can write them, but no file and no request can."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def bound(text: str, head: int, tail: int) -> str:
    """Keep at most ``head`` characters from the start and ``tail`` from the end; note the gap."""
    gap = len(text) - head - tail
    if gap <= 0:
        return text
    return f"{text[:head]}\n[... {gap} characters left out ...]\n{text[len(text) - tail :]}"


def shorten(text: str, limit: int) -> str:
    """Keep the head and the tail of a text that is longer than ``limit`` characters."""
    return encodable(bound(text, limit // 2, limit // 2))


def fence(text: str, nonce: str | None = None) -> str:
    """Wrap the text as a block of data whose end marker the text cannot contain.

    The nonce is derived from the text, so that the same text makes the same prompt.
    """
    nonce = nonce or _digest(text)
    while nonce.lower() in text.lower():
        nonce = _digest(nonce + text)
    return f"[data {nonce}]\n{text}\n[end of data {nonce}]"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@functools.lru_cache(64)
def secrets(text: str) -> tuple[tuple[int, int], ...]:
    """Return start and end of every stretch that looks like a known kind of secret."""
    return tuple(match.span(match.lastgroup or 0) for match in _SECRET_SHAPES.finditer(text))


class _Redacting(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = redact(printable(record.getMessage()))
        record.args = ()
        return True


def logger(name: str) -> logging.Logger:
    """Return the logger of a module; it redacts the messages that are emitted."""
    found = logging.getLogger(name)
    if not found.filters:
        found.addFilter(_Redacting())
    return found


def environment() -> dict[str, str]:
    """Copy the process environment while other threads may change it.

    ``dict(os.environ)`` raises ``KeyError`` if a name is removed meanwhile, as pytest does after
    every test.
    """
    found = ((name, os.environ.get(name)) for name in list(os.environ))
    return {name: value for name, value in found if value is not None}


def protect(variables: Iterable[str] = (), *, value: str = "") -> None:
    """Redact from now on the values of these variables, whatever their names, and this value."""
    _PROTECTED_NAMES.update(filter(None, variables))
    if value:
        _PROTECTED_VALUES.add(value)


def protect_named(values: Mapping[str, Any]) -> None:
    """Redact from now on each text, also in nested mappings and lists, that has a secret name."""
    for name, value in values.items():
        if isinstance(value, dict):
            protect_named(value)
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and _sounds_secret(name.replace("-", "_")):
                protect(value=text)


_PROTECTED_NAMES: set[str] = set()
_PROTECTED_VALUES: set[str] = set()


def secret_variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables of an environment (None: that of the process) with secret names."""
    if environ is not None:
        return {name: value for name, value in environ.items() if _is_secret(name)}
    found = ((name, os.environ.get(name)) for name in list(os.environ) if _is_secret(name))
    return {name: value for name, value in found if value is not None}


def redact(text: str, environ: Mapping[str, str] | None = None) -> str:
    """Replace secrets: configured keys, values of secret environment variables, known shapes.

    Args:
        text: the text.
        environ: the environment; None: that of the process. A variable is secret by its name; its
            value is replaced if it has at least ``SHORTEST_SECRET`` characters.
    """
    text = hide_values(text, environ)
    parts: list[str] = []
    end = 0
    for start, stop in secrets(text):
        parts += [text[end:start], "[redacted]"]
        end = stop
    return "".join([*parts, text[end:]])


def hide_values(text: str, environ: Mapping[str, str] | None = None) -> str:
    """Replace only known values, not shapes, of secrets; JSON text stays JSON text."""
    for value, name in _secret_values(secret_variables(environ)):
        if value in text:
            text = text.replace(value, f"[redacted {name}]")
    return text


def _is_secret(name: str) -> bool:
    return name in _PROTECTED_NAMES or _sounds_secret(name)


@functools.lru_cache(1_000)
def _sounds_secret(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None


def known_secrets(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the secret values of an environment and of this process, with names."""
    for name, raw in [*environ.items(), *(("key", value) for value in tuple(_PROTECTED_VALUES))]:
        if len(value := raw.strip()) >= SHORTEST_SECRET:
            yield value, name


def secrets_in(text: str) -> list[str]:
    """List the secret values of this process that a text holds in any form."""
    found = []
    for value, _ in known_secrets(secret_variables()):
        if any(form in text for form in _forms(value)):
            found.append(value)
    return found


def _secret_values(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """List secret values in all their forms, with names, the longest first."""
    found: dict[str, str] = {}
    for value, name in known_secrets(environ):
        for form in _forms(value):
            found.setdefault(form, name)
    return sorted(found.items(), key=lambda item: (-len(item[0]), item))


@functools.lru_cache(1_000)
def _forms(value: str) -> tuple[str, ...]:
    """Return a secret as it is, and as it is written in JSON, Python, URLs, HTML and encodings.

    Of several lines, such as a private key's, each is a secret, since logs and tracebacks are
    written line by line; words of ordinary text are none.
    """
    from base64 import b64encode
    from html import escape

    data = value.encode("utf-8", "replace")
    printed = data.decode()
    in_json = (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
    # A quote within a text decides by which quotes Python writes it.
    in_python = (repr(value)[1:-1], repr(f'"{value}')[2:-1])
    in_urls = (quote(printed, safe=""), quote(printed), quote_plus(printed))
    encoded = (escape(value), b64encode(data).decode(), data.hex())
    return (value, *in_json, *in_python, *in_urls, *encoded, *_lines_of_key(value))


def _lines_of_key(value: str) -> list[str]:
    """List the lines of a secret of several lines that are long enough to be secrets."""
    if "\n" not in value:
        return []
    lines = [line.strip() for line in value.split("\n")]
    return [line for line in lines if len(line) >= SHORTEST_SECRET and " " not in line]


def parsed(text: str | bytes, number: Callable[[str], float] | None = None) -> Any:
    """Parse JSON from elsewhere.

    Args:
        text: the JSON.
        number: parses a number, NaN and Infinity too; raises ValueError. Default: as Python does.

    Raises:
        ValueError: it is not JSON, or is nested too deeply, or as ``number``.
    """
    try:
        return json.loads(text, parse_float=number, parse_int=number, parse_constant=number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
