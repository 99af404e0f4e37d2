"""Tokens of a model call, as a usage record tells them.

Every provider and agent names them otherwise in its record. Input that was read from a prompt
cache, or written to it, is a part of the input, which most of them count in the whole and Anthropic
counts apart.
"""

from __future__ import annotations

from typing import Any, NamedTuple

_ASKED = (
    ("prompt_tokens",),
    ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"),
    ("promptTokenCount", "toolUsePromptTokenCount"),
    ("input", "cacheRead", "cacheWrite"),
)
_SAID = (
    ("completion_tokens",),
    ("output_tokens",),
    ("candidatesTokenCount", "thoughtsTokenCount"),
    ("output",),
)
"""Names of the counts to sum, by provider or agent; the first whose sum is not 0 counts."""
_READ = (
    ("prompt_tokens_details", "cached_tokens"),
    ("input_tokens_details", "cached_tokens"),
    ("prompt_cache_hit_tokens",),
    ("cache_read_input_tokens",),
    ("cached_input_tokens",),
    ("cachedContentTokenCount",),
    ("cacheRead",),
    ("cache", "read"),
    ("cached",),
)
_WRITTEN = (
    ("prompt_tokens_details", "cache_write_tokens"),
    ("cache_creation_input_tokens",),
    ("cacheWrite",),
    ("cache", "write"),
)
"""Places of the counts; the largest counts."""
_MOST_TOKENS = 2**53


class Tokens(NamedTuple):
    """Tokens of model calls; 0: none, or not known."""

    asked: int = 0
    """Input."""
    said: int = 0
    """Output."""
    read: int = 0
    """Part of the input that was read from a provider's prompt cache."""
    written: int = 0
    """Part of the input that was written to it."""

    @classmethod
    def of(cls, told: Any) -> Tokens:
        """Find the counts in a usage record; one that is not a count is left out."""
        asked, said = _first_sum(told, _ASKED), _first_sum(told, _SAID)
        # Some providers count a model's thoughts only in the total.
        said = max(said, _count(told, "total_tokens") - asked)
        read = min(asked, max(_count(told, *place) for place in _READ))
        written = min(asked - read, max(_count(told, *place) for place in _WRITTEN))
        return cls(asked, said, read, written)

    @classmethod
    def most(cls, told: list[Any]) -> Tokens:
        """Find the largest of each count in the records of one call, which repeat or raise it."""
        return cls(*map(max, zip(cls(), *map(cls.of, told), strict=True)))


def _first_sum(told: Any, groups: tuple[tuple[str, ...], ...]) -> int:
    for names in groups:
        if found := sum(_count(told, name) for name in names):
            return found
    return 0


def _count(told: Any, *place: str) -> int:
    for name in place:
        told = told.get(name) if isinstance(told, dict) else None
    return told if type(told) is int and 0 < told < _MOST_TOKENS else 0
