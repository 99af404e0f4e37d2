"""A training whose optimizer is whoever answers the files."""

from __future__ import annotations

import contextlib
import os
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest
from greetings import HELLO, proposal
from patience import wait_until
from run_files import latest_result

from pytest_skillopt.cli import main
from pytest_skillopt.model.limits import Meter
from pytest_skillopt.model.purse import Purse
from pytest_skillopt.model.types import CapReached, ModelConfigError
from pytest_skillopt.plugins.mine.handoff import Handoff, waiting
from pytest_skillopt.run.directory import Home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_skillopt.plugins.mine.handoff._PAUSE", 0.02)


RULE = "End with an exclamation mark."
TESTS = """
import pytest

@pytest.mark.skill_task
@pytest.mark.parametrize("name", "Ada Ben Cleo Dan Eve Finn Gus Hal Ida Jo Kim Lea".split())
def test_greeting(skill, name):
    assert "exclamation" in skill.text
"""


@contextmanager
def answering(folder: Path, answer: Callable[[Path], None]) -> Iterator[None]:
    """Whatever prompt waits is answered."""
    over = Event()

    def look() -> None:
        while not over.wait(0.02):
            for prompt in waiting(folder):
                answer(prompt)

    thread = Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_training_is_answered_by_hand(pytester: pytest.Pytester) -> None:
    (pytester.path / "SKILL.md").write_text(HELLO)
    pytester.makepyfile(test_greeting=TESTS)
    pytester.makeini("[pytest]\nskillopt_optimizer = handoff\nskillopt_final_rollouts = 3\n")
    folder = pytester.path / ".skillopt" / "handoff"
    answered: list[Path] = []
    (pytester.path / "answer").write_text(proposal(RULE))

    def answer(prompt: Path) -> None:
        answered.append(prompt)
        assert main(["handoff", prompt.stem, "--answer", "answer"]) == 0

    with answering(folder, answer):
        done = pytester.runpytest_inprocess("-p", "no:xdist", "--skillopt-train")
    assert done.ret == 0
    said = done.stdout.str()
    assert "skillopt: prompts wait in" in said
    assert RULE in (pytester.path / "SKILL.md").read_text()
    assert waiting(folder) == []
    assert calls_of(pytester.path) == {"optimizer": (len(answered), 0)}
    assert f"calls   {len(answered)}" in said
    assert "cost    not known (no price for the model" in said


def calls_of(project: Path) -> dict[str, tuple[int, int]]:
    """Requests of each role in the latest run: those answered in it, and those before."""
    rows = latest_result(project)["usage"]
    roles = sorted({row["role"] for row in rows})
    mine = {role: [row for row in rows if row["role"] == role] for role in roles}
    return {
        role: (sum(row["calls"] for row in own), sum(row["cached"] for row in own))
        for role, own in mine.items()
    }


ASKING = """
import pytest

@pytest.mark.skill_task
@pytest.mark.parametrize("name", ["Ada", "Ben"])
def test_greeting(skill_agent, name):
    assert skill_agent(f"Greet {name}.") == f"Hello, {name}!"
"""


@pytest.mark.parametrize("workers", [("-p", "no:xdist"), ("-n1",)])
def test_a_small_suite_is_answered_by_hand(
    pytester: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    """Whoever answers is the target, too: each rollout waits for its own answer."""
    (pytester.path / "SKILL.md").write_text(HELLO)
    pytester.makepyfile(test_greeting=ASKING)
    pytester.makeini("[pytest]\nskillopt_target = handoff\n")
    folder = pytester.path / ".skillopt" / "handoff"
    answered: list[str] = []

    def answer(prompt: Path) -> None:
        text = prompt.read_text(encoding="utf-8")
        name = "Ada" if "Greet Ada." in text else "Ben"
        wrong = name == "Ben" and "Ben" not in answered
        answered.append(name if "Say hello." in text else text)
        said = "Go away." if wrong else f"Hello, {name}!"
        prompt.with_name(f"{prompt.stem}.answer.md").write_text(said)

    command = ("--skillopt", "--skillopt-rollouts=2", *workers)
    with answering(folder, answer):
        said = pytester.runpytest_inprocess(*command).stdout.str()
    assert sorted(answered) == ["Ada", "Ada", "Ben", "Ben"], said
    assert "Pass rate 75.0 %." in said
    assert calls_of(pytester.path) == {"target": (4, 0)}
    again = pytester.runpytest_inprocess(*command)  # from the answers that are there
    assert "Pass rate 75.0 %." in again.stdout.str()
    assert calls_of(pytester.path) == {"target": (0, 4)}


@pytest.mark.parametrize("workers", [("-p", "no:xdist"), ("-n1",)])
def test_no_answer_is_waited_for_when_the_time_is_over(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: tuple[str, ...]
) -> None:
    (pytester.path / "SKILL.md").write_text(HELLO)
    pytester.makepyfile(test_greeting=ASKING)
    pytester.makeini("[pytest]\nskillopt_target = handoff\n")
    folder = pytester.path / ".skillopt" / "handoff"

    def check_time(purse: Purse) -> None:
        if waiting(folder):
            raise CapReached("the time is over")

    monkeypatch.setattr(Purse, "check_time", check_time)
    done = pytester.runpytest_inprocess("--skillopt", *workers)
    assert done.ret == 1
    assert (
        "no rollouts before a cap ended it: the time is over"
        in latest_result(pytester.path)["reason"]
    )


def test_prompts_are_listed_printed_and_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / ".skillopt" / "handoff"
    folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert main(["handoff"]) == 0
    assert capsys.readouterr().out == "no prompt is waiting for an answer\n"
    (folder / "abc.md").write_text("# reflect\n\n::set-output name=a::b\n")
    assert main(["handoff"]) == 0
    assert "waiting in" in (out := capsys.readouterr().out)
    assert "  abc  reflect\n" in out
    assert main(["handoff", "abc"]) == 0
    assert "\n::" not in capsys.readouterr().out
    (folder / "def.md").write_bytes(b"# \xff")
    (folder / "folder.md").mkdir()
    os.mkfifo(folder / "pipe.md")
    (folder / "gone.md").symlink_to("nowhere")
    assert main(["handoff"]) == main(["handoff", "def"]) == 0
    assert [path.stem for path in waiting(folder)] == ["abc", "def"]
    (tmp_path / "reply").write_text("the reply")
    assert main(["handoff", "abc", "--answer", "reply"]) == 0
    assert (folder / "abc.answer.md").read_text() == "the reply"


def test_an_answer_that_is_not_a_file_ends_the_run(pytester: pytest.Pytester) -> None:
    """A pipe would be waited for beyond every cap; a fault of the model is no failure of a task."""
    (pytester.path / "SKILL.md").write_text(HELLO)
    pytester.makepyfile(test_greeting=ASKING)
    pytester.makeini("[pytest]\nskillopt_target = handoff\n")
    folder = pytester.path / ".skillopt" / "handoff"

    def answer(prompt: Path) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkfifo(prompt.with_suffix(".answer.md"))

    with answering(folder, answer):
        assert pytester.runpytest_inprocess("--skillopt").ret == 1
    result = latest_result(pytester.path)
    assert "the answer cannot be read: " in result["reason"]
    assert result["status"] == "unmeasured"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["xyz"], "there is no prompt 'xyz'"),
        (["../abc"], "there is no prompt"),
        (["abc", "--answer", "gone"], "gone: No such file"),
        (["abc", "--answer", "empty"], "the answer is empty"),
    ],
)
def test_what_cannot_be_taken(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    folder = tmp_path / ".skillopt" / "handoff"
    folder.mkdir(parents=True)
    (folder / "abc.md").write_text("# reflect\n")
    (tmp_path / "empty").write_text("\n")
    monkeypatch.chdir(tmp_path)
    assert main(["handoff", *arguments]) in (1, 4)
    assert said in capsys.readouterr().err
    assert not (folder / "abc.answer.md").exists()


def test_an_answer_that_is_there_is_taken_again(tmp_path: Path) -> None:
    """As a resumed run finds it."""
    told: list[str] = []
    home = Home(tmp_path / ".skillopt")
    folder = home.path / "handoff"
    model = Handoff("optimizer", home, told.append, meter := Meter())
    messages = [{"role": "user", "content": "Propose; the key is sk-proj-abcdefghij0123456789ABCD"}]
    with pytest.raises(ModelConfigError, match="cannot be an agent with tools"):
        model.complete(messages, sample="s", tools=[{}])
    replies: list[str] = []
    asking = Thread(target=lambda: replies.append(model.complete(messages, sample="s").text))
    asking.start()
    wait_until(lambda: waiting(folder))
    (prompt,) = waiting(folder)
    assert "sk-proj" not in prompt.read_text()
    assert (home.path / ".gitignore").read_text() == "*\n"
    (folder / f"{prompt.stem}.answer.md").write_text("yes")
    asking.join()
    assert replies == ["yes"]
    assert model.complete(messages, sample="s").text == "yes"
    assert len(told) == 1
    assert (meter.spent.calls, meter.spent.cached) == (1, 1)
