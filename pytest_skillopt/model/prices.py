"""Prices of well-known models, so that a run can be capped in money."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_skillopt.model.types import ModelConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

OPENAI_URL = "https://api.openai.com/v1"
AS_OF = "2026-03"
"""When the table was read from the provider's price list (standard tier, uncached input)."""


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens."""

    input: float
    output: float

    def cost(self, input_tokens: int, output_tokens: int) -> float:
        """US dollars."""
        return (input_tokens * self.input + output_tokens * self.output) / 1e6


_OPENAI: dict[str, Price] = {
    "gpt-4o": Price(2.50, 10.00),
    "gpt-4o-mini": Price(0.15, 0.60),
    "gpt-4.1": Price(2.00, 8.00),
    "gpt-4.1-mini": Price(0.40, 1.60),
    "gpt-4.1-nano": Price(0.10, 0.40),
    "gpt-5": Price(1.25, 10.00),
    "gpt-5-mini": Price(0.25, 2.00),
    "gpt-5-nano": Price(0.05, 0.40),
    "gpt-5.1": Price(1.25, 10.00),
    "gpt-5.2": Price(1.75, 14.00),
    "gpt-5.4": Price(2.50, 15.00),
}
_SNAPSHOT = re.compile(r"-\d{4}-\d{2}-\d{2}$")


def price_of(model: str, base_url: str, overrides: Mapping[str, Price]) -> Price | None:
    """What a model costs, or None where that is unknown.

    The table holds for OpenAI's own server alone: the same name elsewhere may cost anything.
    """
    if model in overrides:
        return overrides[model]
    if base_url != OPENAI_URL:
        return None
    return _OPENAI.get(model) or _OPENAI.get(_SNAPSHOT.sub("", model))


def parse_prices(text: str) -> dict[str, Price]:
    """Read ``MODEL=IN/OUT, ...``, in US dollars per million tokens.

    Raises:
        ModelConfigError: an entry of another form.
    """
    found = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, _, figures = entry.rpartition("=")
        asked, _, said = figures.partition("/")
        try:
            price = Price(float(asked), float(said))
        except ValueError:
            price = Price(-1.0, -1.0)
        if not name.strip() or not (0 <= price.input < 1e6 and 0 <= price.output < 1e6):
            raise ModelConfigError(
                f"skillopt_prices: {entry!r} is not of the form MODEL=IN/OUT, in US dollars per "
                "million tokens, e.g. qwen2.5:7b=0.10/0.40"
            )
        found[name.strip()] = price
    return found
