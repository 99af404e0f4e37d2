"""Lines while a mode runs; one is redrawn in place, on a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import re
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import warm_sessions
from fault_project import play
from patience import PATIENCE

from pytest_skillopt.report import live
from pytest_skillopt.run.result import EditRow, StepRow

if TYPE_CHECKING:
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
    models = ["--skillopt-model=openai:worker", f"-oskillopt_base_url={chat_server.url}"]
    process = warm_sessions.start(*options, *models, cwd=pytester.path, terminal=below)
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
    said = (
        r"skillopt evaluation: 100 % of \d+ passed, \d+ of 20 rollouts, "
        r"\d+ of 500 calls, [\d.]+ s left"
    )
    assert re.search(said, text)
    assert "of 500 call," not in text
    drawn = text.count("skillopt evaluation: ")
    erased = text.count("\r\x1b[K")
    assert drawn == erased > 1
    assert "skillopt evaluation: " not in text[text.rindex("\x1b[K") :]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> tuple[live.Display, list[str]]:
    """A display of a log of 80 columns, and its lines."""
    monkeypatch.setenv("COLUMNS", "80")
    lines: list[str] = []
    reporter = SimpleNamespace(isatty=False, ensure_newline=list, write_line=lines.append)
    plugins = SimpleNamespace(get_plugin=lambda name: reporter)
    config = SimpleNamespace(pluginmanager=plugins, option=SimpleNamespace(verbose=0))
    return live.Display(cast("Any", config)), lines


def test_a_note_that_quotes_several_lines_is_one_line(
    told: tuple[live.Display, list[str]],
) -> None:
    """As the message of an exception in a fixture has them."""
    display, lines = told
    display.line("skillopt: the last: set-up failed: no database\n::error::second line")
    assert lines == ["skillopt: the last: set-up failed: no database ::error::second line"]


def test_only_edits_that_join_or_go_and_decisions_of_a_gate_are_told(
    told: tuple[live.Display, list[str]],
) -> None:
    display, lines = told
    dates = EditRow(op="append", content="- Put the year first.", chance=0.973, points=0.312)
    long = EditRow(op="append", content="word " * 40, chance=1.0, points=0.04)
    display.step(StepRow(step=1, train=0.5, reason="2 edits proposed"))
    display.joins(dates)
    display.joins(long)
    display.joins(dates.model_copy(update={"chance": 0.98}))
    display.goes(dates.model_copy(update={"chance": 0.31, "points": -0.0011}))
    display.joins(dates)
    decided = StepRow(step=2, edits=1, before=0.4, after=0.6, verdict="accepted", reason="a\nb")
    display.step(decided)
    display.step(decided.model_copy(update={"verdict": "rejected"}))
    assert lines == [
        "skillopt + Put the year first. (+31 points, 97 % sure to help)",
        "skillopt + " + " ".join(["word"] * 40) + " (+4 points, more than 99 % sure to help)",
        "skillopt - Put the year first. (+0 points, 31 % sure to help)",
        "skillopt + Put the year first. (+31 points, 97 % sure to help)",
        "skillopt step 2: 1 edit accepted, val pass rate 40.0 -> 60.0 %",
        "skillopt step 2: 1 edit rejected, val pass rate 40.0 -> 60.0 %; a b",
    ]


def test_a_log_gets_lines_while_nothing_but_the_optimizer_works(
    told: tuple[live.Display, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The optimizer answers only after some of them."""
    monkeypatch.setattr(live, "_EVERY_SECONDS", 0.02)
    display, lines = told
    some = threading.Event()

    class Log(list[str]):
        def append(self, line: str) -> None:
            super().append(line)
            if len(self) == 4:
                some.set()

    log = Log()
    monkeypatch.setattr(display._reporter, "write_line", log.append)
    display.begin(live.SEARCH)
    display.thinking(1)
    assert some.wait(PATIENCE)
    display.thinking(-1)
    assert set(log[:4]) == {"skillopt search: 1 optimizer call under way"}
    assert lines == []


def test_progress_tells_rates_total_spending_and_time_as_far_as_they_fit() -> None:
    progress = live.Progress(live.SEARCH, expected=240, most=900)
    for passed in (True, False, True, True):
        progress.count(passed=passed, error=False)
    progress.thinking = 2
    progress.count(passed=False, error=True)
    assert progress.line(4.0, "12 calls") == (
        "skillopt search: 75 % of 4 passed, 4 of about 240 rollouts, 12 calls, "
        "3 min 56 s left, 1 error, 2 optimizer calls under way"
    )
    progress.rates = 0.58, 0.744
    assert progress.line(4.0, "12 calls, $0.12 of $1.00", 79) == (
        "skillopt search: 58 -> 74 % pass, 4 of about 240 rollouts, 1 error"
    )
    progress.errors = 0
    progress.rates = (0.58, 0.58)
    assert progress.line(4.0, "12 of 500 calls", 79) == (
        "skillopt search: 75 % of 4 passed, 4 of about 240 rollouts, 12 of 500 calls"
    )
    progress.done = 120
    assert progress.line(9.0, "12 calls", 79) == (
        "skillopt search: 75 % of 4 passed, 120 of about 240 rollouts, 12 calls"
    )
    assert live.Progress("evaluation").line(0) == "skillopt evaluation: begun"


def test_a_forecast_follows_the_training_and_is_never_passed() -> None:
    """A verdict that has taken what was expected of it doubles its samples."""
    progress = live.Progress(expected=300, most=330)
    told = []
    for done in range(1, 331):
        if done == 100:
            progress.expect(51)
        if done == 151:
            progress.begin("verdict")
        progress.count(passed=True, error=False)
        told.append(progress.expected)
    assert [told[done - 1] for done in (98, 100, 150, 151, 152, 153, 155, 159, 300, 330)] == [
        300, 150, 150, 152, 152, 156, 156, 164, 330, 330,
    ]  # fmt: skip
    assert all(number <= expected <= 330 for number, expected in enumerate(told, 1))
