"""Text that is encoded so that a reader passes over it: hexadecimal, base64, base32."""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LEAST = 12
"""Characters of the shortest encoded text: random ones do not decode to letters that often."""
_LETTERS = 0.5
"""Share of letters, in (0, 1], from which decoded bytes count as text."""

_RUNS: tuple[tuple[re.Pattern[str], Callable[[str], bytes]], ...] = (
    (re.compile(r"(?<![0-9A-Za-z])(?:[0-9A-Fa-f]{2}){12,}(?![0-9A-Za-z])"), bytes.fromhex),
    (
        re.compile(r"(?<![\w+/=-])[A-Za-z0-9+/_-]{16,}={0,2}(?![\w+/=])"),
        lambda run: base64.b64decode(_padded(run.replace("-", "+").replace("_", "/"), 4)),
    ),
    (
        re.compile(r"(?<![\w=])[A-Z2-7]{20,}={0,6}(?![\w=])"),
        lambda run: base64.b32decode(_padded(run, 8)),
    ),
)


def encoded_texts(text: str) -> Iterator[str]:
    """The stretches that decode to plain text."""
    for pattern, decode in _RUNS:
        for match in pattern.finditer(text):
            if _is_text(decode, match[0]):
                yield match[0]


def _padded(run: str, size: int) -> str:
    bare = run.rstrip("=")
    return bare + "=" * (-len(bare) % size)


def _is_text(decode: Callable[[str], bytes], run: str) -> bool:
    try:
        plain = decode(run).decode("ascii")
    except (binascii.Error, ValueError):
        return False
    if len(plain) < _LEAST or not all(char.isprintable() or char in "\t\n\r" for char in plain):
        return False
    return sum(char.isalpha() for char in plain) >= _LETTERS * len(plain)
