"""``pytest-skillopt judge calibrate`` against a server on loopback."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from typing import TYPE_CHECKING

import pytest
from chat_server import asked_in
from sessions import call
from tables import each_row

from pytest_skillopt.plugins.judge.calibrate import agreed, kappa
from pytest_skillopt.rates import interval

if TYPE_CHECKING:
    from chat_server import Answer, Body, ChatServer


@pytest.fixture
def project(pytester: pytest.Pytester, chat_server: ChatServer, api_key: str) -> pytest.Pytester:
    """A judge who likes whatever says ``good``."""
    pytester.makeini(
        f"[pytest]\nskillopt_judge = openai:j\nskillopt_base_url = {chat_server.url}\n"
    )

    def reply(body: Body) -> str:
        score = float("good" in asked_in(body))
        return json.dumps({"reason": "looked", "score": score})

    chat_server.reply = reply
    return pytester


def calibrate(project: pytest.Pytester, content: str) -> pytest.RunResult:
    file = project.path / "labelled.jsonl"
    file.write_text(content)
    return call("judge", "calibrate", file)


def test_agreement_is_printed(project: pytest.Pytester, chat_server: ChatServer) -> None:
    rows = [("good", True), ("good one", 1), ("bad", False), ("a good lie", False)]
    lines = [json.dumps({"answer": a, "rubric": "polite", "label": label}) for a, label in rows]
    result = calibrate(project, "\n".join(lines))
    assert result.ret == 0, result.stderr.str()
    result.stdout.fnmatch_lines(
        [
            "4 calls of openai:j, one for each label",
            "  differs: 'a good lie': looked",
            "agreement 75.0 % (30.1 % to 95.4 %) on 4 labels, kappa 0.50; *",
            "this is too few labels for a reliable figure: have at least 30",
        ]
    )
    assert chat_server.calls == 4
    # Nothing is paid twice, and the agreement is that of the first time.
    more = json.dumps({"answer": "good and new", "rubric": "polite", "label": True})
    again = calibrate(project, "\n".join([*lines, more]))
    again.stdout.fnmatch_lines(["agreement 80.0 % *"])
    assert chat_server.calls == 5


def test_an_answer_without_a_grade_is_named_and_left_out(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    grade = chat_server.reply

    def reply(body: Body) -> str | Answer:
        answer = body["messages"][1]["content"]
        if "late" in answer:
            return chat_server.answer.error(400, "overloaded")
        return "Nice!" if "odd" in answer else grade(body)

    chat_server.reply = reply
    ini = project.path / "tox.ini"
    ini.write_text(f"{ini.read_text()}\nskillopt_max_calls = 4\n")
    answers = ("odd one", "good", "late one", "good too", "good one")
    rows = [{"answer": a, "rubric": "polite", "label": True} for a in answers]
    result = calibrate(project, "\n".join(map(json.dumps, rows)))
    assert result.ret == 0, result.stderr.str()
    result.stdout.fnmatch_lines(
        [
            "  left out: 'odd one': openai:j: unreadable judgement: no JSON object or array; "
            "try another skillopt_judge",
            "  left out: 'late one': openai:j: HTTP 400: overloaded",
            "  left out: 'good one': skillopt_max_calls: the cap of 4 model calls is reached *",
            "agreement 100.0 % * on 2 labels, *",
        ]
    )
    for row, said in zip(rows[:3:2], ("no grade could be read", "HTTP 400"), strict=True):
        result = calibrate(project, json.dumps(row))
        assert result.ret == 1
        assert f"error: openai:j: {said}" in result.stderr.str()


def test_a_stored_reply_that_cannot_be_used_is_told_and_paid_for_again(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    row = json.dumps({"answer": "good", "rubric": "polite", "label": True})
    assert calibrate(project, row).stderr.str() == ""
    stored = project.path / ".skillopt" / "cache" / "cache.db"
    with contextlib.closing(sqlite3.connect(stored)) as database, database:
        database.execute("UPDATE Cache SET value = 'no reply'")
    said = calibrate(project, row).stderr.str()
    assert said.startswith("note: rows of the cache were refused")
    assert chat_server.calls == 2


@each_row(
    ("content", "said"),
    [
        ("", "labelled.jsonl: there is no labelled answer"),
        ("{", "labelled.jsonl:1: an object with the texts"),
        ('\n{"answer": "a", "rubric": "r"}', "labelled.jsonl:2: an object with the texts"),
        ('{"answer": "a", "rubric": "r", "label": 2}', "labelled.jsonl:1: an object with"),
        ("3", "labelled.jsonl:1: an object with"),
    ],
)
def test_a_file_that_is_none_names_the_line(
    project: pytest.Pytester, chat_server: ChatServer, content: str, said: str
) -> None:
    result = calibrate(project, content)
    assert result.ret == 1
    assert said in result.stderr.str()
    assert "Traceback" not in result.stderr.str()
    assert chat_server.calls == 0


def test_a_file_that_cannot_be_read_is_named(project: pytest.Pytester) -> None:
    file = project.path / "labelled.jsonl"
    file.write_bytes(b"\xff")
    result = call("judge", "calibrate", file)
    assert result.ret == 4
    assert "labelled.jsonl: " in result.stderr.str()
    assert "Traceback" not in result.stderr.str()


def test_agreement_in_figures() -> None:
    same = [(True, True), (False, False)]
    other = [(True, False), (False, True)]
    pairs = 40 * same + 10 * other
    assert agreed(pairs) == 0.8
    assert kappa(pairs) == pytest.approx(0.6)
    same_or_not = [(judge == people, 1) for judge, people in pairs]
    assert interval(same_or_not) == pytest.approx((0.711, 0.867), abs=0.001)
    assert kappa(5 * same[:1]) == 0.0
