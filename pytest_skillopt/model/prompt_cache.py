"""Input tokens that a provider has read from its prompt cache, or written to it.

Every provider and agent names them otherwise in its usage record; in each they are a part of the
input, which most of them count in the whole and Anthropic counts apart.
"""

from __future__ import annotations

from typing import Any, NamedTuple

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
_MOST_TOKENS = 2**53


class PromptCache(NamedTuple):
    """Input tokens that were read from a provider's cache, and that were written to it."""

    read: int = 0
    written: int = 0

    @classmethod
    def of(cls, told: Any) -> PromptCache:
        """Find the counts in a usage record; one that is not a count is left out."""
        return cls(_largest(told, _READ), _largest(told, _WRITTEN))

    def most(self, other: PromptCache) -> PromptCache:
        return PromptCache(max(self.read, other.read), max(self.written, other.written))

    def within(self, asked: int) -> PromptCache:
        """Cut the counts to a part of ``asked`` input tokens."""
        read = min(self.read, asked)
        return PromptCache(read, min(self.written, asked - read))


NO_CACHE = PromptCache()


def _largest(told: Any, places: tuple[tuple[str, ...], ...]) -> int:
    found = [0]
    for place in places:
        value = told
        for name in place:
            value = value.get(name) if isinstance(value, dict) else None
        if type(value) is int and 0 < value < _MOST_TOKENS:
            found.append(value)
    return max(found)
