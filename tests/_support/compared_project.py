"""A project with one skill of greetings, versions of which are compared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from chat_server import system_of

if TYPE_CHECKING:
    import pytest
    from chat_server import Body, ChatServer

SKILL = "---\nname: greet\ndescription: Greets.\n---\n# Greeting\n\n{}\n"
PLACE = "skills/greet/SKILL.md"
OTHER_TESTS = """
import pytest

@pytest.mark.skill_task(skill="other/SKILL.md")
def test_it(skill_agent):
    skill_agent("Hi")
"""


class ComparedProject:
    """The skill, the tests over it, and the calls that arrive at its server."""

    def __init__(
        self, pytester: pytest.Pytester, server: ChatServer, *, text: str, tests: str, keys: str
    ) -> None:
        self.pytester = pytester
        self.server = server
        self.root = pytester.path
        self.text = text
        self.skill = Path(self.write(text, PLACE))
        pytester.makepyfile(test_greeting=tests)
        pytester.makeini(
            "[pytest]\naddopts = -p no:xdist -p no:cacheprovider\n"
            f"skillopt_skill = {PLACE}\nskillopt_base_url = {server.url}\n{keys}"
        )

    def write(self, text: str, name: str) -> Path:
        """Write a file of the project."""
        path = self.root / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
        return path

    def add_skill(self) -> None:
        """Add a second skill with a task of its own."""
        self.write(self.text, "other/SKILL.md")
        self.pytester.makepyfile(test_other=OTHER_TESTS)

    def runs(self) -> list[Path]:
        """Folders of all runs, the latest last."""
        return sorted(self.root.glob(".skillopt/runs/*"))

    def compare(self, *arguments: str) -> tuple[int, str]:
        """Run a session; exit status and what the terminal shows."""
        done = self.pytester.runpytest_inprocess(*arguments)
        assert self.skill.read_text() == self.text, "a comparison writes no skill"
        return int(done.ret), " ".join((done.stdout.str() + done.stderr.str()).split())


def has_rule(body: Body) -> bool:
    """Whether the skill that a model was shown asks for an exclamation mark."""
    return "exclamation" in system_of(body)
