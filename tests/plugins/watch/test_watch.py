"""``pytest-skillopt watch``: one run, on loopback, for whoever has the address."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
import zlib
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
import warm_sessions
from fault_project import play
from journals import START, write_journal
from patience import PATIENCE, wait_until

from pytest_skillopt.plugins.watch.server import Watch
from pytest_skillopt.rollouts.rollout import Rollout
from pytest_skillopt.run.directory import JOURNAL
from pytest_skillopt.run.journal import Journal, entries_of
from pytest_skillopt.run.result import EditRow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chat_server import ChatServer


class Page:
    """Pages and data that a browser asks for."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname == "127.0.0.1"
        self.host = parts.netloc
        self.base = parts.path

    def ask(
        self, path: str, method: str = "GET", *, base: str | None = None, **headers: str
    ) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(self.host, timeout=PATIENCE)
        place = (self.base if base is None else base) + path
        connection.request(method, place, headers=headers)
        return connection.getresponse()

    def events(self, since: int = 0) -> Iterator[dict[str, Any]]:
        answer = self.ask(f"events?since={since}")
        assert answer.getheader("Content-Type") == "text/event-stream"
        while line := answer.readline():
            if line.startswith(b"data: "):
                yield json.loads(line[6:])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / ".skillopt" / "runs" / "20260102-030405-ab12"


@pytest.fixture
def page(run: Path) -> Iterator[Page]:
    write_journal(run).close()
    server = Watch(run)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield Page(server.url)
    server.shutdown()
    server.server_close()


def test_the_state_is_told_and_then_what_is_new(page: Page, run: Path) -> None:
    events = page.events()
    state = next(events)
    assert (state["run"], state["mode"], state["state"]) == (run.name, "train", "not running")
    assert (state["done"], state["total"], state["errors"]) == (12, 24, 1)
    assert [split for _, split in state["tasks"]] == ["train", "val", "test"]
    assert len(state["samples"]) == 13
    assert {edit["status"] for edit in state["edits"]} == {"waiting", "given up"}
    assert [step["step"] for step in state["steps"]] == [1, 2]
    assert state["spent"]["target"]["calls"] == 12
    assert state["faults"] == [["tests/test_it.py::test_it[2-plain]: HTTP 500: plain", 1]]
    write_journal(run).close()  # appends as much again
    state = next(state for state in events if state["done"] == 24)
    assert len(state["samples"]) <= 13, "none of those that were told"


def test_a_sample_opens_its_transcript(page: Page) -> None:
    task, score, version, place = next(page.events())["samples"][0]
    told = json.loads(page.ask(f"transcript?at={place}").read())
    assert told["request"]["task"] == "tests/test_it.py::test_it[0-plain]"
    turns = [(turn["role"], turn["content"]) for turn in told["transcript"]]
    assert turns == [("user", "plain"), ("assistant", "reply 0: plain")]
    assert (told["outcome"] == "passed") == (score == 1)
    assert (task, version, told["request"]["version"]) == (0, 0, START)
    assert page.ask(f"transcript?at={place + 1}").status == 404


def test_a_sample_without_fields_that_have_a_default_opens(page: Page, run: Path) -> None:
    rollout = next(entries_of(run / JOURNAL, "rollout")).data
    key = Rollout.from_json(rollout).request.key
    for name in ("score", "message", "worker", "duration"):
        del rollout[name]
    with Journal(run / JOURNAL) as journal:
        journal.write("rollout", rollout | {"outcome": "failed"}, key=key)
    *_, (_, score, _, place) = next(page.events())["samples"]
    assert score is None
    assert json.loads(page.ask(f"transcript?at={place}").read())["outcome"] == "failed"


def test_nobody_gets_in_without_the_address(page: Page) -> None:
    for base in ("/", "/wrong/", page.base[:-2] + "/"):
        assert page.ask("", base=base).status == 404
        assert page.ask("events", base=base).status == 404
    assert page.ask("", Host="evil.example").status == 404, "a name that resolves to us"
    assert page.ask("../result.json").status == 404
    assert page.ask("", "POST").status == 501, "nothing can be changed from here"


def test_the_page_runs_its_own_script_alone(page: Page) -> None:
    answer = page.ask("")
    policy = answer.getheader("Content-Security-Policy") or ""
    assert re.search(r"default-src 'none'.* script-src 'sha256-[^']+';", policy)
    assert "unsafe" not in policy
    text = answer.read().decode()
    assert "/*js*/" not in text
    assert not re.search(r"(src|href)=\"https?:", text)


def test_a_result_that_cannot_be_read_is_named(run: Path) -> None:
    write_journal(run).close()
    (run / "result.json").write_text("{}")
    server = Watch(run)
    try:
        told = server.look(0)
    finally:
        server.server_close()
    assert told["said"]["answer"] == "Its result cannot be read"
    assert "run: Field required" in told["said"]["sentence"]
    assert "read it with the version of pytest-skillopt" in told["said"]["sentence"]


@pytest.mark.parametrize("at", ["1700000000", "0001-01-01T00:00:00"])
def test_a_record_without_a_time_is_passed_over(page: Page, run: Path, at: str) -> None:
    step = {"skill": "SKILL.md", "step": 3, "train": 0.9}
    text = json.dumps({"n": 99, "at": at, "kind": "step", "data": step}).encode()[:-1]
    with (run / JOURNAL).open("ab") as file:
        file.write(text + b',"crc":"%08x"}\n' % zlib.crc32(text))
    assert [step["step"] for step in next(page.events())["steps"]] == [1, 2]


def test_a_torn_last_line_is_taken_when_it_is_whole(run: Path) -> None:
    write_journal(run).close()
    journal = run / "journal.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-40])
    server = Watch(run)
    try:
        assert [step["step"] for step in server.look(0)["steps"]] == [1]
        journal.write_bytes(whole)
        assert [step["step"] for step in server.look(0)["steps"]] == [1, 2]
    finally:
        server.server_close()


def test_a_call_without_a_reply_is_paid_for(run: Path) -> None:
    journal = write_journal(run)
    server = Watch(run)
    try:
        assert "optimizer" not in server.look(0)["spent"]
        lost = {"stage": "reflect", "fault": "HTTP 500", "usage": {"calls": 2}}
        journal.write("unanswered", lost, key="k")
        assert server.look(0)["spent"]["optimizer"]["calls"] == 2
    finally:
        journal.close()
        server.server_close()


def test_a_run_that_is_continued_shows_each_step_once(run: Path) -> None:
    write_journal(run).close()
    server = Watch(run)
    try:
        first = server.look(0)
        write_journal(run).close()
        again = server.look(0)
    finally:
        server.server_close()
    assert [step["step"] for step in again["steps"]] == [1, 2]
    assert again["edits"] == first["edits"]


@pytest.mark.parametrize("fate", ["waiting", "accepted"])
def test_an_edit_that_won_is_not_refused_because_it_is_proposed_again(run: Path, fate: str) -> None:
    journal = write_journal(run)
    edit = EditRow(op="append", content="- once", step=1).model_dump()
    edit["skill"] = "SKILL.md"
    for status in (fate, "refused"):
        journal.write("edit", {**edit, "status": status, "why": "it is there already"})
    server = Watch(run)
    try:
        assert server.look(0)["edits"][-1]["status"] == fate
        journal.write("edit", {**edit, "status": "rejected"})
        assert server.look(0)["edits"][-1]["status"] == "rejected", "a later decision counts"
    finally:
        journal.close()
        server.server_close()


def test_a_training_is_followed_to_its_end(
    pytester: pytest.Pytester,
    chat_server: ChatServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A shell without job control has a command in the background ignore SIGINT, as here."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    chat_server.reply = play
    chat_server.hold(after=20)  # it goes on until it is stopped
    (pytester.path / "SKILL.md").write_text("---\nname: g\ndescription: G.\n---\nSay hello.\n")
    pytester.makepyfile(
        test_greeting="""
        import pytest

        @pytest.mark.skill_task
        @pytest.mark.parametrize("name", "Ada Ben Cleo Dan Eve Finn Gus Hal Ida Jo".split())
        def test_greeting(skill_agent, name):
            assert skill_agent(f"Greet {name}.").endswith("!"), "no exclamation mark"
        """
    )
    pytester.makeconftest("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)")
    training = warm_sessions.start(
        "--skillopt-train", "--skillopt-target=openai:worker", "-n1",
        "--skillopt-optimizer=openai:thinker", f"-oskillopt_base_url={chat_server.url}",
        cwd=pytester.path,
    )  # fmt: skip
    runs = pytester.path / ".skillopt" / "runs"
    wait_until(lambda: list(runs.glob("*/journal.jsonl")) or training.poll() is not None)
    command = [sys.executable, "-m", "pytest_skillopt", "watch", "--no-open"]
    watcher = subprocess.Popen(command, cwd=pytester.path, stdout=subprocess.PIPE, text=True)
    try:
        assert watcher.stdout is not None
        page = Page(watcher.stdout.readline().split(": ", 1)[1].strip())
        state = next(state for state in page.events() if state["done"] >= 2)
        assert state["state"] == "running"
        training.send_signal(signal.SIGTERM)
        assert training.wait(PATIENCE) == 2
        state = next(state for state in page.events() if state["said"])
        assert state["said"]["answer"] == "Stopped early"
    finally:
        training.kill()
        sys.stdout.write(training.communicate()[0])
        watcher.kill()
        watcher.communicate()
