"""Lines while a mode runs; one is redrawn in place, on a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import warm_sessions
from fault_project import play

from pytest_skillopt.options import mode_named
from pytest_skillopt.report import live
from pytest_skillopt.run.result import StepRow

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
    said = r"skillopt evaluation: \d+ of 20 rollouts, [\d.]+ s, about .* left; 100 % of \d+ passed"
    assert re.search(said, text)
    drawn, erased = text.count("skillopt evaluation: "), text.count("\r\x1b[K")
    assert drawn == erased > 1
    assert "skillopt evaluation: " not in text[text.rindex("\x1b[K") :]


def test_header_names_tasks_splits_models_and_simulation() -> None:
    splits = ["train"] * 20 + ["val"] * 10 + ["test"] * 10
    run = SimpleNamespace(
        mode=mode_named("train"),
        documents={"SKILL.md": None},
        tasks=[SimpleNamespace(split=split) for split in splits],
        roles={"target": "offline:a", "optimizer": "offline:a"},
        simulated=True,
        settings=SimpleNamespace(rollouts=3),
    )
    assert live.header_line(cast("Any", run)) == (
        "skillopt: training SKILL.md on 40 tasks (20 train, 10 val, 10 test), K=3; "
        "target and optimizer offline:a (simulated)"
    )


def test_a_step_is_told_in_plain_sentences() -> None:
    row = StepRow(step=1, tasks=10, passing=4, reason="4 edits tried, 4 help, kept\nfor the gate")
    said = "4 of 10 train tasks pass; 4 edits tried, 4 help, kept for the gate"
    assert live.step_line(row) == f"skillopt step 1: {said}"
    row = StepRow(step=2, edits=1, before=0.4, after=0.6, verdict="accepted", reason="a\nb")
    told = "skillopt step 2: 1 edit {}, val pass rate 40.0 % -> 60.0 %"
    assert live.step_line(row) == told.format("accepted")
    refused = row.model_copy(update={"verdict": "rejected"})
    assert live.step_line(refused) == told.format("rejected") + "; a b"
    assert live.step_line(StepRow(step=3)) == "skillopt step 3: nothing to do"


def test_a_step_like_the_one_before_it_is_not_told_again() -> None:
    told: list[str] = []
    reporter = SimpleNamespace(isatty=False, ensure_newline=list, write_line=told.append)
    plugins = SimpleNamespace(get_plugin=lambda name: reporter)
    config = SimpleNamespace(pluginmanager=plugins, option=SimpleNamespace(verbose=0))
    display = live.Display(cast("Any", config))
    for step, reason in enumerate(("a", "b", "b", "b", "a"), 1):
        display.step(StepRow(step=step, reason=reason))
    assert told == [f"skillopt step {said}" for said in ("1: a", "2: b", "5: a")]


def test_progress_tells_the_total_and_the_time_left() -> None:
    progress = live.Progress(typical=240, most=500)
    progress.begin("step 3")
    for passed in (True, False, True, True):
        progress.count(passed=passed, error=False)
    progress.thinking = 2
    progress.count(passed=False, error=True)
    assert progress.line(4.0, "12 calls") == (
        "skillopt step 3: 4 of about 240 rollouts, 4.0 s, about 3 min 56 s left; "
        "75 % of 4 passed; 2 optimizer calls under way; 1 error; 12 calls"
    )
    assert live.Progress("evaluation").line(0) == "skillopt evaluation: begun"
