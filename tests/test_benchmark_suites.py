"""The suites in the shape of published benchmarks, on the three tasks of our own beside each."""

from __future__ import annotations

import json
import shutil
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chat_server import Answer, system_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chat_server import Body, ChatServer

SUITES = Path(__file__).parent.parent / "benchmarks" / "suites"
SCRIPT = "import openpyxl\nbook = openpyxl.load_workbook(INPUT_PATH)\nsheet = book.active\n"
SAVE = "\nbook.save(OUTPUT_PATH)"
RIGHT = {
    "searchqa": {"Baltic": "Riga.", "plant": "The roots", "violin": "Four"},
    "docvqa": {"invoice?": "inv-204", "meeting": "12  May", "signed": "A. Berg"},
    "officeqa": {"of 1951,": "1204.5 million dollars", "April": "32.1%", "rise": "$105.5"},
    "livemathematicianbench": {"odd": "even", "closed": "attains its maximum", "prime": "cyclic"},
    "spreadsheetbench": {
        "sum": "sheet['B4'] = 9.7500001",
        "capitals": "sheet['C2'], sheet['C3'] = 'PEN', 'INK'",
        "Double": "sheet['B2'], sheet['B3'] = '5', 14.5",
    },
}


def answer(suite: str, body: Body, right: bool) -> str | Answer:
    """Answer as a model that does each task, or the one that has something wrong in it."""
    user = next(m for m in reversed(body["messages"]) if m["role"] == "user")["content"]
    if suite == "alfworld":
        return f"<action>{next_action(body) if right else 'go nowhere'}</action>"
    if suite == "docvqa":
        question, picture = user
        assert picture["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
        user = question["text"]
    known = next(text for part, text in RIGHT[suite].items() if part in user)
    if suite == "officeqa" and body["messages"][-1]["role"] == "user":
        return Answer.tools(
            ("find", {"text": "19"}), ("read", {"file": "bulletin_1.txt", "first": 2})
        )
    if suite == "livemathematicianbench":
        lines = user.splitlines()
        label = next(
            line[0] for line in lines if line.endswith(f". {known}") is right and line[1:2] == "."
        )
        return f"Compared.\n<answer>({label})</answer>"
    if suite == "spreadsheetbench":
        return f"```python\n{SCRIPT}{known if right else ''}{SAVE}\n```"
    return f"<answer>no</answer> or <answer>{known if right else known[:-3]}</answer>"


def next_action(body: Body) -> Any:
    """Look everywhere for the thing, take it, and carry it to the goal."""
    users = [m["content"] for m in body["messages"] if m["role"] == "user"]
    thing, goal = users[0].split("put ")[1].split(".")[0].split(" in ")
    actions = users[-1].split("Possible actions: ")[1].split("\n")[0].split(", ")
    wished = [a for a in actions if a == f"move {thing} to {goal}" or a.startswith("take ")]
    if wished and "You move" not in users[-1]:
        return wished[0]
    taken = any("You take" in text for text in users)
    asked = [text for m in body["messages"] if m["role"] == "assistant" for text in [m["content"]]]
    places = [a for a in actions if a.startswith("go to ")]
    if taken:
        return f"go to {goal}"
    return next(a for a in places if f"<action>{a}</action>" not in asked)


@pytest.fixture
def run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., pytest.RunResult]:
    """Measure suites in a folder with a server, each task once."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")

    def measure(folder: Path, suites: Sequence[str], url: str, *more: str) -> pytest.RunResult:
        monkeypatch.chdir(folder)
        settings = (f"base_url={url}", "model=openai:worker", "rollouts=1")
        options = [part for setting in settings for part in ("-o", f"skillopt_{setting}")]
        own = ("-p", "no:cacheprovider", "-p", "no:xdist", f"--rootdir={folder}")
        return pytester.runpytest_inprocess(*own, *suites, "--skillopt", *options, *more)

    return measure


@pytest.mark.parametrize("right", [True, False])
def test_right_answers_pass_and_wrong_ones_fail(
    right: bool, chat_server: ChatServer, tmp_path: Path, run: Callable[..., pytest.RunResult]
) -> None:
    """All suites in one session. A game that is lost takes 50 calls: one of them is enough."""
    suites = {path.parent.name for path in SUITES.glob("*/suite.py")}
    try:
        import_module("openpyxl")  # here, as a session forgets what it imports
    except ImportError:
        suites.remove("spreadsheetbench")

    def reply(body: Body) -> str | Answer:
        system = system_of(body)
        return answer(next(s for s in suites if f"name: {s}\n" in system), body, right)

    chat_server.reply = reply
    shutil.copytree(SUITES, tmp_path / "suites")
    chosen = () if right else ("-k", "not alfworld or train")
    done = run(tmp_path / "suites", sorted(suites), chat_server.url, *chosen)
    (file,) = (tmp_path / "suites").glob(".skillopt/runs/*/result.json")
    skills = json.loads(file.read_text())["skills"]
    found = {
        skill["name"]: {
            task["split"]: (task["before"]["passed"], task["before"]["n"])
            for task in skill["tasks"]
        }
        for skill in skills
    }
    wanted = {suite: dict.fromkeys(("train", "val", "test"), (right, 1)) for suite in suites}
    if not right:
        wanted["alfworld"] = {"train": (right, 1)}
    assert found == wanted, done.stdout.str()
    assert "base64" not in json.dumps(skills)
    told = [task["before"]["sample"]["message"] for skill in skills for task in skill["tasks"]]
    assert right or all("expected" in text or "task is not done" in text for text in told)


def test_a_task_without_its_data_is_named(
    tmp_path: Path, run: Callable[..., pytest.RunResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(SUITES / "searchqa" / "sample", tmp_path / "searchqa")
    rows = (tmp_path / "searchqa" / "rows.jsonl").read_text().splitlines()
    (tmp_path / "searchqa" / "rows.jsonl").write_text("\n".join(rows[:2]))
    monkeypatch.setenv("SUITES_DATA", str(tmp_path))
    done = run(SUITES, ["searchqa"], "http://127.0.0.1:9/v1", "--collect-only")
    told = done.stdout.str() + done.stderr.str()
    assert "*.jsonl is ours-3: fetch the data as README.md says" in told
