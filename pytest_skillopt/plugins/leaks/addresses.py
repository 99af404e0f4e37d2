"""Addresses outside of the local network, and shell commands."""

from __future__ import annotations

import html
import ipaddress
import re
import tomllib
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pytest_skillopt.skill.text import to_lf
from pytest_skillopt.untrusted import strip_invisible

if TYPE_CHECKING:
    from collections.abc import Iterator

# A pattern that can begin anywhere in a long run of one character takes quadratic time.
_DOT = re.compile(
    r"(?:(?<!\s)\s++)?[\[({]\s*+(?:dot|\.)\s*+[\])}]\s*+|(?<=\w)\s++dot\s+(?=[a-z]{2,})"
)
_PLACEHOLDER = re.compile(r"\$?\{[^{}\s]{0,80}\}|\$\w+|<[^<>\s]{0,80}>")
_URL = re.compile(
    r"(?:(?:\b[a-z][a-z0-9+.-]{1,20}:|(?<![\w:/.]))//+|\bwww\.)((?:[^\s/?#\"'()\[\]]|\[[0-9a-f:.]+\]){1,300})"
)
_MAIL = re.compile(
    r"(?<![\w.+-])[\w.+-]{1,64}@((?!v?\d+\.\d)(?:[\w-]{1,63}\.)+[a-z]{2,24})(?![\w-])"
)
_NAME = r"(?<![\w@/.:$-])((?:[a-z0-9][\w-]{0,62}\.){1,8}"
_TABLE = tomllib.loads(Path(__file__).with_name("names.toml").read_text(encoding="utf-8"))
_NAMES = {kind: names.split() for kind, names in _TABLE.items()}
_DOMAINS, _WITH_PATH, _NETWORK = (
    "|".join(_NAMES[kind]) for kind in ("domains", "domains_with_path", "network_programs")
)
_HOSTS = (
    re.compile(rf"{_NAME}(?:{_DOMAINS}))(?![\w(-]|\.\w)"),
    re.compile(rf"{_NAME}(?:{_WITH_PATH}))(?=/[\w?~.-]|:\d{{2,5}}\b)"),
)
_NETWORK_PROGRAM = re.compile(rf"(?<![\w.-])(?:{_NETWORK})\s+([^\n`|;]{{1,300}})")
_ARGUMENT = re.compile(
    r"(?:^|[\s=@'\"(])((?:[a-z0-9][\w-]{0,62}\.){1,8}[a-z]{2,24})(?=$|[\s/:'\"?)])"
)
_COMPUTED = re.compile(r"\b(?:https?|ftp|wss?|ssh)://[^\s/?#\"']{0,100}?\$\([^\s]{0,100}")
"""A URL whose host a shell command computes."""
_ESCAPED = re.compile(r"(?<!\\)\\++(?:(?:x|u00)([0-9a-f]{2})|([01][0-7]{2}))", re.IGNORECASE)
"""A character as ``printf`` and ``echo -e`` read it, in hexadecimal or octal digits."""
_PRODUCTS = frozenset({"asp.net", "ado.net", "vb.net", "ml.net"})
_RESERVED = re.compile(
    r"(?:.+\.)?(?:example(?:\.(?:com|org|net|edu))?|test|invalid|localhost|local)", re.IGNORECASE
)
"""Names that are never resolved (RFC 2606, RFC 6761), or only locally (RFC 6762)."""
_IPV4 = re.compile(r"(?<![\w.-])\d{1,3}(?:\.\d{1,3}){3}(?![\w-]|\.\d)")
_IPV6 = re.compile(r"(?<![\w:])(?:[0-9a-f]{1,4}:){2,7}(?::?[0-9a-f]{1,4}){1,6}(?![\w:])")
_NUMBERED = re.compile(r"(?:version|release|section|chapter|clause|paragraph|rule)s?\s+$")

_PROGRAM = rf"(?:{'|'.join(sorted(map(re.escape, _NAMES['programs']), reverse=True))})"
_LINE = re.compile(rf"\s*(?:[$%>#]\s+)?(?:\w+=\S*\s+)*(?:sudo\s+)?{_PROGRAM}\s+\S", re.IGNORECASE)
_PROMPT = re.compile(r"\A\s*[$%>]\s+")
_FENCE = re.compile(r"[\s>*+-]*(`{3,}|~{3,})\s*(?:\{?\.?([\w-]*))")
_SPAN = re.compile(r"(?<!`)(`++)([^`\n]+)\1(?!`)")
_IN_PROSE = re.compile(
    rf"(?<![\w./`-]){_PROGRAM}\s+(?:-{{1,2}}\w|[\w+.-]+://|[~/]\S|(?:-\S+\s+)*install\s)[^\n`;]*",
    re.IGNORECASE,
)
_LONGEST = 300
"""Maximum characters of a command."""


def addresses(text: str) -> Iterator[str]:
    """Yield hosts of URLs, mail addresses and IP addresses, in lower case.

    Names reserved for examples and private networks are left out; disguises (``[.]``, entities,
    percent signs) are decoded. A name without a scheme counts if it cannot be a file or an
    attribute.
    """
    plain = _ESCAPED.sub(_character, strip_invisible(html.unescape(to_lf(text))))
    plain = unicodedata.normalize("NFKC", plain).lower().translate(_UNQUOTED)
    for form in dict.fromkeys((plain, _DOT.sub(".", plain), unquote(plain))):
        yield from _addresses(form)


def _character(escape: re.Match[str]) -> str:
    if escape[1]:
        return chr(int(escape[1], 16))
    return chr(int(escape[2], 8))


_UNQUOTED = str.maketrans("\u3002", ".", "*\\")  # a full stop in names of hosts, too


def _addresses(text: str) -> Iterator[str]:
    yield from _of_urls(text)
    yield from _COMPUTED.findall(text)
    for match in _MAIL.finditer(text):
        if not _RESERVED.fullmatch(match[1]):
            yield match[0]
    for pattern in _HOSTS:
        for match in pattern.finditer(text):
            yield from _outside(match[1].removeprefix("www."))
    yield from _of_programs(text)
    for pattern in (_IPV4, _IPV6):
        for match in pattern.finditer(text):
            if not _NUMBERED.search(text, max(0, match.start() - 20), match.start()):
                yield from _outside_ip(match[0])


def _of_urls(text: str) -> Iterator[str]:
    for match in _URL.finditer(text):
        host = _PLACEHOLDER.sub("", match[1]).rpartition("@")[2]
        if not host.startswith("["):
            host = host.partition(":")[0]
            yield from _outside(host.strip(".,;:!*_`'").removeprefix("www."))


def _of_programs(text: str) -> Iterator[str]:
    """Yield the hosts that programs of the network are called with."""
    for match in _NETWORK_PROGRAM.finditer(text):
        for name in _ARGUMENT.findall(match[1]):
            if name.rpartition(".")[2] not in _NAMES["file_endings"]:
                yield from _outside(name)


def _outside(host: str) -> Iterator[str]:
    """Yield the host unless it is reserved or without a dot, and so in the local network."""
    if re.fullmatch(r"0x[0-9a-f]+|\d{6,}|(?:[\d.]+\.)?0\d[\d.]+", host):
        yield host  # an IP address in one number, or in octal ones
    elif re.fullmatch(r"[\d.]+", host):
        yield from _outside_ip(host)
    elif "." in host and not _RESERVED.fullmatch(host) and host not in _PRODUCTS:
        yield host


def _outside_ip(text: str) -> Iterator[str]:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return
    if address.is_global or address.is_link_local:
        yield text


def shell_commands(text: str) -> Iterator[str]:
    """Yield commands in code blocks, code spans and sentences, white space collapsed."""
    fence = ""
    is_shell = False
    for line in to_lf(text).split("\n"):
        mark = _FENCE.match(line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence, is_shell = (
                ("", False) if fence else (mark[1], mark[2].lower() in _NAMES["shells"])
            )
        elif fence:
            bare = _PROMPT.sub("", line, count=1).strip()
            is_comment = is_shell and bare.startswith(("#", "//"))
            if bare and not is_comment and (is_shell or _LINE.match(line)):
                yield collapsed(bare)
        else:
            for span in _SPAN.finditer(line):
                if _LINE.match(span[2]):
                    yield collapsed(_PROMPT.sub("", span[2], count=1))
            for prose in _IN_PROSE.finditer(_SPAN.sub(" ", line)):
                yield collapsed(prose[0])


def collapsed(text: str) -> str:
    """Return one bounded line with single spaces."""
    return " ".join(text.split())[:_LONGEST].strip()
