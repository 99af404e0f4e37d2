"""``pytest-skillopt init``: drafts from transcripts and from the skill itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from chat_server import asked_in, system_of
from patience import wait_until
from sessions import call
from tables import each_row

from pytest_skillopt.errors import UserError
from pytest_skillopt.plugins.mine.sessions import clean, distinct, read_requests

if TYPE_CHECKING:
    from pathlib import Path

    from chat_server import Answer, Body, ChatServer

KEY = "sk-proj-abcdefghij0123456789ABCDEFGHIJ"
ASKED = "Write the release notes for version 2.1 of the parser"


def codex(*texts: str) -> str:
    """A session log as Codex keeps it."""
    rows: list[dict[str, Any]] = [
        {"type": "session_meta", "payload": {"id": "x", "cwd": "/home/ada/work"}},
        {
            "type": "response_item",
            "payload": {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "<environment_context>\n<cwd>/home"}],
            },
        },
    ]
    for text in texts:
        content = [{"type": "input_text", "text": text}]
        message = {"type": "message", "role": "user", "content": content}
        rows.append({"type": "response_item", "payload": message})
        answer = {"type": "message", "role": "assistant", "content": [{"text": "Sure, done."}]}
        rows.append({"type": "response_item", "payload": answer})
    return "\n".join(map(json.dumps, rows))


CLAUDE = "\n".join(
    map(
        json.dumps,
        [
            {"type": "user", "message": {"role": "user", "content": ASKED}},
            *(
                {"type": "user", key: "yes", "message": {"role": "user", "content": ASKED + key}}
                for key in ("isMeta", "isSidechain", "isSynthetic", "parent_tool_use_id")
            ),
            {
                "type": "user",
                "message": {"role": "user", "content": "Base directory for this skill: /a/b/c"},
            },
            {
                "type": "user",
                "message": {
                    "role": "user",
                    "content": [{"type": "tool_result", "content": "a file of many words, long"}],
                },
            },
            {"type": "assistant", "message": {"role": "assistant", "content": "Here they are"}},
            {"type": "user", "message": {"role": "user", "content": "<command-name>/clear</x>"}},
        ],
    )
)
OPENCODE = json.dumps(
    {"messages": [{"info": {"role": "user"}, "parts": [{"type": "text", "text": ASKED}]}]}
)
COPILOT = json.dumps({"type": "user.message", "data": {"content": ASKED}})
CURSOR = json.dumps(
    {
        "role": "user",
        "message": {
            "content": [
                {
                    "type": "text",
                    "text": f"<rules>Be brief</rules>\n<user_query>\n{ASKED}\n</user_query>",
                }
            ]
        },
    }
)
VSCODE = "\n".join(
    map(
        json.dumps,
        [
            {"kind": 0, "v": {"version": 3, "sessionId": "x", "requests": [], "inputState": {}}},
            {
                "kind": 2,
                "k": ["requests"],
                "v": [
                    {
                        "requestId": "request-1",
                        "agent": {"extensionId": {"value": "GitHub.copilot-chat"}},
                        "message": {"text": ASKED, "parts": [{"kind": "text", "text": ASKED}]},
                        "response": [],
                    }
                ],
            },
            {
                "kind": 2,
                "k": ["requests", 0, "response"],
                "v": [{"value": "Here is a long answer"}],
            },
            {
                "kind": 1,
                "k": ["requests", 0, "result"],
                "v": {
                    "metadata": {"renderedUserMessage": [{"text": "what the tool has made of it"}]}
                },
            },
            {
                "kind": 2,
                "k": ["requests"],
                "v": [
                    {
                        "requestId": "request-2",
                        "message": {"text": "The terminal command has ended", "parts": []},
                        "response": [],
                        "isSystemInitiated": True,
                    }
                ],
            },
        ],
    )
)
ATIF = json.dumps(
    {
        "schema_version": "ATIF-v1.7",
        "session_id": "x",
        "agent": {"name": "devin", "version": "1"},
        "steps": [
            {"step_id": 1, "source": "system", "message": "You are a careful agent."},
            {"step_id": 2, "source": "user", "message": [{"type": "text", "text": ASKED}]},
            {"step_id": 3, "source": "agent", "message": "Here is a long answer."},
        ],
        "subagent_trajectories": [
            {"steps": [{"step_id": 1, "source": "user", "message": "Find all files of the parser"}]}
        ],
    }
)
GENERIC = json.dumps([{"role": "user", "content": ASKED}, {"role": "assistant", "content": "x"}])


@each_row(
    "content",
    [
        codex(ASKED),
        CLAUDE,
        OPENCODE,
        COPILOT,
        CURSOR,
        VSCODE,
        ATIF,
        GENERIC,
        codex(ASKED) + '\n{"type": "resp',
    ],
)
def test_what_a_person_asked_is_found_in_each_form(tmp_path: Path, content: str) -> None:
    (tmp_path / "session.jsonl").write_text(content)
    assert read_requests(tmp_path) == (1, (ASKED,))


def test_secrets_and_people_are_taken_out() -> None:
    text = f"Mail ada@corp.example from /home/ada/x, call +49 30 1234567, key {KEY}, host 10.1.2.3"
    assert clean(text) == (
        "Mail someone@example.com from /home/someone/x, call 555-0100, key [redacted], "
        "host 192.0.2.1"
    )


def test_duplicates_are_one() -> None:
    texts = ["Write the notes for 2.1", "write the notes for 2.1!", "Sort the list by name"]
    assert list(distinct(texts)) == [texts[0], texts[2]]


@each_row("content", [None, "", "no JSON", '{"role": "assistant", "content": "x"}'])
def test_a_place_without_requests_says_so(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "session.jsonl"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UserError, match=r"there is no|no turn of a user .* sessions of Claude"):
        read_requests(file)


@pytest.fixture
def project(pytester: pytest.Pytester, chat_server: ChatServer, api_key: str) -> pytest.Pytester:
    """A model that drafts a test for the first request, answers, and grades."""
    (pytester.path / "notes").mkdir()
    (pytester.path / "notes" / "SKILL.md").write_text("---\nname: notes\n---\nWrite notes.\n")
    pytester.makeini(f"[pytest]\nskillopt_model = openai:m\nskillopt_base_url={chat_server.url}\n")

    def reply(body: Body) -> str:
        system = system_of(body)
        if "draft tests" in system:
            asked = "Request 1" in asked_in(body)
            draft = {"name": "Release notes", "statements": ["Names 2.1", 'Says "done"']}
            own = {**draft, "number": 0, "prompt": "Write notes for 3.0, mail bob@corp.example"}
            drafted = [{**draft, "number": 1, "prompt": ""} if asked else own]
            queries = {"should_trigger": ["Note 3.1"], "near_misses": ["Sing a note", "Draw 3.1"]}
            return json.dumps({"drafts": drafted, **queries})
        if "numbered statements" in system:
            grades = [{"number": n, "evidence": "", "holds": True} for n in (1, 2)]
            return json.dumps({"grades": grades})
        return "2.1 is done"

    chat_server.reply = reply
    return pytester


def test_a_session_log_becomes_a_suite_that_runs(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    log = project.path / "rollout.jsonl"
    log.write_text(codex(f"{ASKED}. My key is {KEY}", "yes, go on", "Sort the list of our people"))
    result = call("init", "notes", "--from", str(log), "--yes")
    assert result.ret == 0, result.stderr.str()
    result.stdout.fnmatch_lines(
        ["read 1 file of *, 2 different requests; 1 call of openai:m, * tokens in*"]
    )
    file = project.path / "tests" / "test_notes_mined.py"
    text = file.read_text()
    assert "# review" in text
    assert KEY not in text + json.dumps(chat_server.bodies)
    assert ASKED in text
    assert "Sort the list" not in text
    project.runpytest_inprocess(str(file), "-p", "no:xdist").assert_outcomes(passed=1)
    before = chat_server.calls
    again = call("init", "notes", "--from", str(log), "--yes")
    assert (again.ret, file.read_text()) == (1, text)
    assert "exists and was not changed: choose another --output" in again.stderr.str()
    (project.path / "tests" / "test_notes.py").touch()
    drafted = call("init", "notes", "--yes")
    assert (drafted.ret, chat_server.calls) == (1, before)
    assert "test_notes.py exists and was not changed" in drafted.stderr.str()


def test_nothing_is_sent_before_it_was_agreed_to(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    log = project.path / "rollout.jsonl"
    log.write_text(codex(ASKED))
    result = call("init", "notes", "--from", str(log))
    assert result.ret == 1
    assert "add --yes" in result.stderr.str()
    result.stdout.fnmatch_lines(["read 1 file of *"])
    assert chat_server.calls == 0


def test_drafts_that_were_paid_for_are_kept_when_a_later_call_brings_none(
    project: pytest.Pytester, chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_skillopt.plugins.mine.drafts.BATCH", 1)
    log = project.path / "rollout.jsonl"
    ini = project.path / "tox.ini"
    log.write_text(codex(ASKED, "Sort our people", "Draw a large map", "Sing a song of old"))
    settings = f"{ini.read_text()}\n"
    draft = chat_server.reply
    caps = "skillopt_max_calls = 2\nskillopt_max_cost = 1\n"
    ini.write_text(settings + caps)
    command = ("init", "notes", "--from", str(log), "--yes")
    assert "skillopt_max_cost: no price is known for m" in call(*command).stderr.str()
    assert chat_server.calls == 0
    ini.write_text(f"{settings}{caps}skillopt_prices = m=1/1\n")

    def reply(body: Body) -> str | Answer:
        if "Sort our people" in asked_in(body):
            return chat_server.answer.error(400, "overloaded")
        return draft(body)

    chat_server.reply = reply
    result = call(*command)
    assert result.ret == 0, result.stderr.str()
    result.stdout.fnmatch_lines_random(
        [
            "call * brought no drafts: openai:m: HTTP 400: overloaded",
            "call * brought no drafts: skillopt_max_calls: the cap of 2 model calls is reached *",
            "2 drafts in *",
        ]
    )


@each_row("source", [(), ("--from", "rollout.jsonl")])
def test_what_was_paid_for_is_not_paid_for_again(
    project: pytest.Pytester, chat_server: ChatServer, source: tuple[str, ...]
) -> None:
    """Nor after a kill while the last call is under way, nor when the file was deleted."""
    calls = len(source) or 1
    words = [f"{ASKED} as item{n}" for n in range(21)]  # two calls
    (project.path / "rollout.jsonl").write_text(codex(*words))
    command = ("init", "notes", *source, "--yes", "--output", "drafts.py")
    first = chat_server.calls
    chat_server.hold(after=first + calls - 1)
    killed = subprocess.Popen([sys.executable, "-m", "pytest_skillopt", *command])
    wait_until(lambda: chat_server.calls - first == calls)
    killed.kill()
    killed.wait()
    chat_server.release()
    file = project.path / "drafts.py"
    assert not file.exists()
    assert call(*command).ret == 0
    drafted = file.read_text()
    paid = chat_server.calls
    assert paid - first == calls + 1
    file.unlink()
    assert call(*command).ret == 0
    assert (file.read_text(), chat_server.calls) == (drafted, paid)
    file.unlink()


def test_a_starter_suite_runs(project: pytest.Pytester) -> None:
    """Drafted from files; what has the name of a reference but is none is passed over."""
    references = project.path / "notes" / "references"
    (references / "folder.md").mkdir(parents=True)
    os.mkfifo(references / "pipe.md")
    result = call("init", "notes", "--yes", "--tests", "3")
    assert result.ret == 0, result.stderr.str()
    result.stdout.fnmatch_lines(["1 draft in *test_notes.py; review each*"])
    project.runpytest_inprocess("-q", "tests/test_notes.py").assert_outcomes(passed=1)
    text = (project.path / "tests" / "test_notes.py").read_text()
    assert "bob@corp.example" not in text


def test_an_agent_gets_near_misses_too(project: pytest.Pytester, chat_server: ChatServer) -> None:
    """Requests of the skills beside it come first; the drafts are complete tasks of a training."""
    (project.path / "broken").mkdir()
    (project.path / "broken" / "SKILL.md").write_text("---\n: [\n---\n")
    (project.path / "pipe").mkdir()
    os.mkfifo(project.path / "pipe" / "SKILL.md")
    (project.path / "songs").mkdir()
    songs = "---\nname: songs\ndescription: Sings a note.\n---\nSing.\n"
    (project.path / "songs" / "SKILL.md").write_text(songs)
    settings = (project.path / "tox.ini").read_text()
    (project.path / "tox.ini").write_text(f"{settings}\nskillopt_harness = codex\n")
    assert call("init", "notes", "--yes").ret == 0
    (asked,) = [b for b in chat_server.bodies if "draft tests" in system_of(b)]
    assert "Sings a note." in asked_in(asked)
    assert "near misses" in asked_in(asked)
    file = project.path / "tests" / "test_notes.py"
    assert file.read_text().count("# review") == 1 + 3
    plan = ("--skillopt-train=description", "--collect-only", "-p", "no:xdist")
    result = project.runpytest_inprocess(str(file), *plan)
    result.stdout.fnmatch_lines(["*notes/SKILL.md: 4 tasks*"])
    assert "no trigger task" not in result.stdout.str()


def test_without_a_model_it_says_what_to_set(project: pytest.Pytester) -> None:
    project.makeini("[pytest]\n")
    result = call("init", "notes", "--yes")
    assert result.ret == 1
    result.stderr.fnmatch_lines(["*error: no optimizer model is configured. Set *"])
    result.stderr.no_fnmatch_line("*Traceback*")


def test_large_sessions_are_read_in_time_that_grows_with_their_size(tmp_path: Path) -> None:
    """A pasted wall of letters, and 2,000 different requests: either took forever."""
    requests = [f"please look at case{n} in part{n} of file{n}, {ASKED}" for n in range(2_000)]
    turns = [
        {"role": "user", "content": text}
        for text in ("a" * 200_000, "<user_query>" * 20_000, *requests)
    ]
    path = tmp_path / "large.json"
    path.write_text(json.dumps(turns))
    assert read_requests(path) == (1, tuple(requests))
    assert clean("a" * 200_000 + " ada@work.org") == "a" * 200_000 + " someone@example.com"
