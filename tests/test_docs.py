"""What the documents show is run, word for word."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from chat_server import ChatServer

DOCS = Path(__file__).parent.parent / "docs"
SKILL = "---\nname: greeting\ndescription: Greets.\n---\n# Greeting\n\nSay hello.\n"


def blocks(document: str, language: str) -> list[str]:
    """The fenced blocks of a language."""
    text = (DOCS / document).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def play(body: dict[str, Any]) -> str:
    """A model that greets in JSON, and a judge."""
    if "response_format" in body:
        return json.dumps({"reason": "polite", "score": 0.9})
    return '```json\n{"greeting": "Hello Ada"}\n```'


@pytest.mark.parametrize("mode", [(), ("--skillopt", "--skillopt-rollouts=1")])
def test_the_examples_of_the_fixtures(
    pytester: pytest.Pytester, chat_server: ChatServer, mode: tuple[str, ...]
) -> None:
    chat_server.reply = play
    (pytester.path / "SKILL.md").write_text(SKILL)
    examples = blocks("reference.md", "python")
    assert len(examples) == 4
    for number, code in enumerate(examples):
        (pytester.path / f"test_{number}.py").write_text(code)
    result = pytester.runpytest_subprocess(
        "--skillopt-model=openai:m", f"--skillopt-base-url={chat_server.url}", *mode
    )
    result.assert_outcomes(passed=5)


def test_every_link_leads_somewhere() -> None:
    for path in DOCS.rglob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path.name}: {target}"
