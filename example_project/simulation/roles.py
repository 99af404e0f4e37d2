"""Which role a request is for. A client does not say: the form it asks for does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from simulation.chat import Reply
from simulation.judge import is_judge, judge
from simulation.optimizer import is_optimizer, propose
from simulation.target import answer

if TYPE_CHECKING:
    from simulation.chat import Request


def respond(request: Request) -> Reply:
    """Answer as an optimizer, a judge or the agent."""
    if is_optimizer(request):
        text = json.dumps(propose(request), ensure_ascii=False)
        garbled = request.draws.chance("garbled", request.temper.garbled)
        return Reply(text[: len(text) // 2] if garbled else text)
    if is_judge(request):
        return Reply(json.dumps(judge(request)))
    return answer(request)
