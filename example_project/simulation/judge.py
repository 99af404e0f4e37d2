"""The simulated judge: scores an answer against a rubric by the words they have in common."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulation.chat import Request

_COMMON = {"about", "answer", "contains", "every", "mentions", "names", "reply", "should", "states"}
_NOISE = 0.05
_RUBRIC = re.compile(
    r"^#* ?(?:rubric|criteri\w+)\W*\n(.*?)(?=\n#|\n\n(?:question|answer):|\Z)",
    re.IGNORECASE | re.DOTALL | re.MULTILINE,
)


def is_judge(request: Request) -> bool:
    return "score" in ((request.schema or {}).get("properties") or {})


def judge(request: Request) -> dict[str, Any]:
    """A score in [0, 1]: the share of the rubric's words that the rest of the prompt uses too.

    The rubric is the first paragraph of the user's message or what stands under a heading that
    says so. A draw of noise keeps two votes from being one.
    """
    rubric, answer = _parts(request.prompt)
    wanted = _words(rubric)
    share = len(wanted & _words(answer)) / len(wanted) if wanted else 0.5
    noise = _NOISE * (2 * request.draws.uniform("judge") - 1)
    score = round(min(1.0, max(0.0, share + noise)), 2)
    reason = f"The answer uses {share:.0%} of the words of the rubric (simulated)."
    reply: dict[str, Any] = {"reasoning": reason, "reason": reason, "score": score}
    members = (request.schema or {}).get("properties") or {}
    return {name: reply[name] for name in members if name in reply}


def _parts(prompt: str) -> tuple[str, str]:
    found = _RUBRIC.search(prompt)
    if found:
        return found[1], prompt[: found.start()] + prompt[found.end() :]
    first, _, rest = prompt.partition("\n\n")
    return first, rest


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]{5,}", text.lower())) - _COMMON
