"""Markup in added text that hides, runs or pretends something, and the URLs in it."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterator

_HIDDEN = re.compile(
    r"<!(?:--|\[cdata\[|doctype\b)|<\?(?:php|xml|=)"
    r"|^[ \t]*\[[^\]\n]{0,80}\]:[ \t]*(?:#|<>|\S+[ \t]+[\"'(][^\n]{25,})[^\n]*"
    r"|<[a-z][^<>\n]{0,200}(?:display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0"
    r"|opacity\s*:\s*0|color\s*:\s*(?:white|transparent|#fff)|\shidden\b|aria-hidden)[^<>\n]{0,200}>"
    r"|<(?:script|style|template|noscript|iframe|object|embed|form|meta|link|svg|base|details)\b"
    r"|<[a-z][^<>\n]{0,200}\son[a-z]{3,20}\s*="
    r"|\{#|\{%-?\s*comment\b|^%%|\[comment\]",
    re.IGNORECASE | re.MULTILINE,
)
_ROLE_TAG = re.compile(
    r"<\|[a-z_]{2,30}\|>|\[/?INST\]|<</?SYS>>"
    r"|</?(?:system|assistant|developer)(?:[ _-]?(?:prompt|message|reminder|instructions?))?\s*>"
    r"|^\W{0,4}(?:system|assistant|developer)\s*(?:(?:prompt|message|override)\s*:\s*\S"
    r"|:\s*(?:you|ignore|obey|do|from|new|override|disregard|always|never|follow|the user|this)\b)"
    r"|^\W{0,4}\[(?:system|assistant|developer)\]"
    r"|\b(?:end|start|beginning) of (?:the )?(?:system )?(?:prompt|instructions|skill)\b"
    r"|\[end of data\b",
    re.IGNORECASE | re.MULTILINE,
)
_LINK = re.compile(r"(!?)\[([^\]\n]{0,300})\]\(\s*<?([^)\s>]{1,2000})")
_SCHEME = re.compile(r"(?:javascript|data|vbscript|file)\s*:[^\s,]", re.IGNORECASE)
_HTML_LINK = re.compile(r"<(?:a|img|area|video|audio|source)\s[^<>\n]{0,300}", re.IGNORECASE)
_IMAGE_REFERENCE = re.compile(r"!\[[^\]\n]{0,300}\]\[[^\]\n]{0,100}\]")
_URL = re.compile(r"\b(?:https?|ftps?|wss?|file)://[^\s<>()\[\]\"'`]{1,2000}", re.IGNORECASE)
_HOST = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//(?:[^/\s@]*@)?([^/\s:?#]+)", re.IGNORECASE)
_SHOWN_HOST = re.compile(r"\b((?:[a-z0-9-]+\.)+[a-z]{2,})\b(?!\()", re.IGNORECASE)
_FILE_NAME = re.compile(
    r"\.(?:md|py|json|ya?ml|txt|csv|toml|sh|html?|pdf|js|ts|xml|ini|cfg)$", re.I
)


def hidden_markup(text: str) -> Iterator[str]:
    """Comments, markup that is not shown, and markup that poses as another speaker."""
    for pattern in (_HIDDEN, _ROLE_TAG):
        for form in dict.fromkeys((text, html.unescape(text))):
            for match in pattern.finditer(form):
                yield form[match.start() : match.end() + 60]


def urls(text: str) -> Iterator[str]:
    """The URLs of a text, without the punctuation that follows them."""
    for match in _URL.finditer(text):
        yield match[0].rstrip(".,;:!?*_")


def unsafe_links(text: str) -> Iterator[tuple[str, str]]:
    """Message and excerpt of each link that runs, loads or pretends something."""
    for match in _LINK.finditer(text):
        image, shown, target = match[1], match[2], unquote(html.unescape(match[3])).strip()
        if image and (target.startswith("//") or "://" in target):
            yield "an image that is loaded from elsewhere", match[0]
        if _SCHEME.match(target):
            yield "a link that runs or embeds something", match[0]
        host, claimed = _HOST.match(target), _SHOWN_HOST.search(shown)
        if (
            host
            and claimed
            and not _FILE_NAME.search(claimed[1])
            and not _same(host[1], claimed[1])
        ):
            yield f"a link that shows {claimed[1]} and leads to {host[1]}", match[0]
    for match in _URL.finditer(text):
        reason = _odd_url(match[0])
        if reason:
            yield reason, match[0]
    for pattern in (_HTML_LINK, _IMAGE_REFERENCE):
        for match in pattern.finditer(text):
            yield "an HTML link or image, or an image by reference", match[0]


def _same(host: str, claimed: str) -> bool:
    host, claimed = host.lower(), claimed.lower()
    return host == claimed or host.endswith("." + claimed) or claimed.endswith("." + host)


def _odd_url(url: str) -> str:
    authority = url.split("://", 1)[1].split("/", 1)[0].split("?", 1)[0]
    host = authority.rpartition("@")[2].partition(":")[0].lower()
    if "@" in authority:
        return "a URL with a name before the host"
    if re.fullmatch(r"(?:\d{1,3}\.){3}\d{1,3}|0x[0-9a-f]+|\d{8,}", host) and not host.startswith(
        ("127.", "10.", "192.168.")
    ):
        return "a URL with a number in place of a host"
    if "xn--" in host or not host.isascii():
        return "a URL whose host is not plain ASCII"
    return ""
