"""The line that is redrawn in place, on a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from typing import TYPE_CHECKING

from fault_project import play

if TYPE_CHECKING:
    import pytest
    from chat_server import ChatServer


def test_a_terminal_has_a_line_that_is_gone_at_the_end(
    pytester: pytest.Pytester, chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    monkeypatch.setenv("COLUMNS", "100")
    chat_server.reply = play
    chat_server.latency = 0.05
    (pytester.path / "SKILL.md").write_text("---\nname: g\ndescription: G.\n---\nSay hello.\n")
    pytester.makepyfile(
        test_greeting="""
        import pytest

        @pytest.mark.skill_task
        @pytest.mark.parametrize("name", ["Ada", "Ben", "Cleo", "Dan"])
        def test_greeting(skill_agent, name):
            assert skill_agent(f"Greet {name}.")
        """
    )
    above, below = pty.openpty()
    options = ["--skillopt", "--skillopt-rollouts=5", "--skillopt-max-calls=500", "-p", "no:xdist"]
    models = ["--skillopt-model=openai:worker", f"--skillopt-base-url={chat_server.url}"]
    command = [sys.executable, "-m", "pytest", *options, *models]
    process = subprocess.Popen(command, cwd=pytester.path, stdout=below, stderr=below)
    os.close(below)
    shown = b""
    while True:
        try:
            part = os.read(above, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(above)
    assert process.wait() == 0, shown.decode()
    text = shown.decode()
    said = r"skillopt evaluation: \d+ of 20 rollouts, [\d.]+ s, about .* left; 100 % of \d+ passed"
    assert re.search(said, text)
    drawn, erased = text.count("skillopt evaluation: "), text.count("\r\x1b[K")
    assert drawn == erased > 1
    assert "skillopt evaluation: " not in text[text.rindex("\x1b[K") :]
