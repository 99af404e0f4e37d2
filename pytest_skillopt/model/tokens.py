"""Tokens of a model call: as a usage record tells them, or estimated.

Every provider and agent names them otherwise in its record. Input that was read from a prompt
cache, or written to it, is a part of the input, which most of them count in the whole and Anthropic
counts apart.
"""

from __future__ import annotations

from typing import Any, NamedTuple

_INPUT = (
    ("prompt_tokens",),
    ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"),
    ("promptTokenCount", "toolUsePromptTokenCount"),
    ("input", "cacheRead", "cacheWrite"),
)
_OUTPUT = (
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
_CHARACTERS_PER_TOKEN = 4


class Tokens(NamedTuple):
    """Tokens of model calls; 0: none, or not known."""

    input: int = 0
    output: int = 0
    read: int = 0
    """Part of the input that was read from a provider's prompt cache."""
    written: int = 0
    """Part of the input that was written to it."""

    @classmethod
    def of(cls, told: Any) -> Tokens:
        """Find the counts in a usage record; one that is not a count is left out."""
        whole = _first_sum(told, _INPUT)
        output = _first_sum(told, _OUTPUT)
        # Some providers count a model's thoughts only in the total.
        output = max(output, _count(told, "total_tokens") - whole)
        read = min(whole, max(_count(told, *place) for place in _READ))
        written = min(whole - read, max(_count(told, *place) for place in _WRITTEN))
        return cls(whole, output, read, written)

    @classmethod
    def most(cls, told: list[Any]) -> Tokens:
        """Find the largest of each count in the records of one call, which repeat or raise it."""
        return cls(*map(max, zip(cls(), *map(cls.of, told), strict=True)))


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text, at about 4 characters each, at least 1."""
    return max(1, len(text) // _CHARACTERS_PER_TOKEN)


def _first_sum(told: Any, groups: tuple[tuple[str, ...], ...]) -> int:
    for names in groups:
        if found := sum(_count(told, name) for name in names):
            return found
    return 0


def _count(told: Any, *place: str) -> int:
    for name in place:
        told = told.get(name) if isinstance(told, dict) else None
    return told if type(told) is int and 0 < told < _MOST_TOKENS else 0
