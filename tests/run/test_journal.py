from __future__ import annotations

import json
import math
import os
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import each_row

from pytest_skillopt.model.types import Completion, Usage
from pytest_skillopt.rollouts.rollout import InfraError, Message, Rollout, RolloutRequest
from pytest_skillopt.run.journal import Journal, JournalError, JournalLedger, entries_of

if TYPE_CHECKING:
    from pathlib import Path

REQUEST = RolloutRequest("t", "s", "SKILL.md", "v", "m", "train", 0)


def test_entries_are_read_back(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.jsonl") as journal:
        journal.write("note", {"seed": 1})
        journal.write("told", {"text": "\ud800 \u00e9 \u2028"}, key="k")
    with Journal(tmp_path / "journal.jsonl") as again:
        assert [e.kind for e in again.entries] == ["note", "told"]
        assert again.read("told", "k") == {"text": "\ud800 \u00e9 \u2028"}
        assert again.read("told", "other") is None
        assert again.corrupt == []


def test_each_line_is_json_with_number_time_and_kind(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.jsonl") as journal:
        journal.write("note", {"a": [1, None]})
    line = json.loads((tmp_path / "journal.jsonl").read_text())
    assert line["n"] == 1
    assert line["kind"] == "note"
    assert line["data"] == {"a": [1, None]}


@given(cut=st.integers(1, 10_000))
def test_a_file_cut_anywhere_loses_only_the_torn_line(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("j") / "journal.jsonl"
    with Journal(path) as journal:
        for i in range(20):
            journal.write("told", {"i": i}, key=str(i))
    whole = path.read_bytes()
    cut = cut % len(whole)
    os.truncate(path, cut)
    kept = whole[:cut].count(b"\n")
    with Journal(path) as again:
        again.write("told", {"i": "new"}, key="new")
    with Journal(path) as last:
        assert len(last.entries) == kept + 1
        assert last.corrupt == []
        assert last.read("told", "new") == {"i": "new"}
        assert [last.read("told", str(i)) for i in range(kept)] == [{"i": i} for i in range(kept)]


def test_a_corrupt_line_is_reported_by_its_number_and_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        for i in range(5):
            journal.write("told", {"value": f"answer {i}"}, key=str(i))
    path.write_bytes(path.read_bytes().replace(b"answer 2", b"answer 7"))
    with path.open("ab") as file:
        for record in (b'"kind":"rollout","data":[]', b'"kind":"reply","key":[1],"data":{}'):
            text = b"{" + record
            file.write(text + b',"crc":"%08x"}\n' % zlib.crc32(text))
    with Journal(path) as again:
        assert again.corrupt == [3, 6, 7]
        assert again.read("told", "2") is None
        assert again.read("told", "3") == {"value": "answer 3"}


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    full = os.open("/dev/full", os.O_RDWR)
    with Journal(tmp_path / "journal.jsonl") as journal:
        journal.write("note", {"a": 1})
        os.dup2(full, journal._file.fileno())
        os.close(full)
        with pytest.raises(JournalError, match=r"journal\.jsonl: No space left"):
            journal.write("note", {"a": 2})
    with Journal(tmp_path / "journal.jsonl") as again:
        assert len(again.entries) == 1


def test_the_ledger_keeps_measurements_and_not_errors(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.jsonl") as journal:
        ledger = JournalLedger(journal)
        ledger.put(Rollout(REQUEST, "error", error=InfraError("worker", "died")))
        assert REQUEST.key not in ledger
        rollout = Rollout(
            REQUEST, "failed", score=0.0, transcript=(Message("user", "hello\x00"),), worker="gw0"
        )
        ledger.put(rollout)
    with Journal(tmp_path / "journal.jsonl") as journal:
        again = JournalLedger(journal)
        assert REQUEST.key in again
        assert again.get(REQUEST.key) == rollout


ROLLOUT = Rollout(REQUEST, "passed", 1.0, usage=Usage(calls=1, cost=0.1)).to_json()
REPLY = {"stage": "reflect", "sample": "", **Completion("hello").to_json(), "tool_calls": []}
UNANSWERED = {"stage": "reflect", "fault": "HTTP 500", "usage": {"calls": 2}}
ROUND = {"skill": "s", "round": 1, "samples": [["t", "v", [0], [0.5, 0.4]]]}
FINAL: dict[str, Any] = {"skill": "s", "candidate": "v", "budget": None, "lift": {}, "prior": 1.0}
FINAL |= {"rates": {"t": 0.5}, "agreement": None}


@each_row(
    ("kind", "right", "wrong"),
    [
        ("rollout", ROLLOUT, {"score": "1"}),
        ("rollout", ROLLOUT, {"score": math.nan}),
        ("rollout", ROLLOUT, {"score": 1.5}),
        ("rollout", ROLLOUT, {"outcome": "won"}),
        ("rollout", ROLLOUT, {"outcome": "error"}),
        ("rollout", ROLLOUT, {"unheard_of": 1}),
        ("rollout", ROLLOUT, {"transcript": None}),
        ("rollout", ROLLOUT, {"request": {**ROLLOUT["request"], "task": "another"}}),
        ("rollout", ROLLOUT, {"request": [ROLLOUT["request"]]}),
        ("rollout", ROLLOUT, {"usage": {"calls": -1}}),
        ("rollout", ROLLOUT, {"usage": {"input_tokens": 10**320}}),
        ("rollout", ROLLOUT, {"reported": {"cost": 10**320}}),
        (
            "lost",
            ROLLOUT | {"outcome": "error", "error": {"kind": "cap", "message": ""}},
            {"error": {}},
        ),
        ("reply", REPLY, {"text": None}),
        ("reply", REPLY, {"usage": {"coins": 1}}),
        ("reply", REPLY, {"usage": {"cost": 10**320}}),
        ("reply", REPLY, {"tool_calls": [{"id": 1}]}),
        ("unanswered", UNANSWERED, {"usage": [2]}),
        ("unanswered", UNANSWERED, {"usage": {"cost": -1.0}}),
        ("run", {"mode": "train", "models": {"target": "m"}}, {"models": ["m"]}),
        ("width", {"rollouts": 4}, {"rollouts": 0}),
        ("width", {"rollouts": 4}, {"rollouts": True}),
        ("idle", {"passed": [["t", "s"]]}, {"passed": [["t"]]}),
        ("round", ROUND, {"samples": [["t", "v", ["0"], None]]}),
        ("round", ROUND, {"samples": [["t", "v", [-1], None]]}),
        ("round", ROUND, {"round": None}),
        ("final", FINAL, {"prior": "1"}),
        ("final", FINAL, {"budget": -1}),
        ("final", FINAL, {"rates": {"t": 2.0}}),
        ("writing", {"skill": "s", "version": "v"}, {"version": None}),
        ("rates", {"skill": "s", "start": 0.1, "now": 0.2}, {"now": math.inf}),
        ("expected", {"more": 1}, {"more": "1"}),
    ],
)
def test_a_record_with_wrong_fields_counts_as_damaged(
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    right: dict[str, Any],
    wrong: dict[str, Any],
) -> None:
    path = tmp_path_factory.mktemp("j") / "journal.jsonl"
    key = REQUEST.key if kind in ("rollout", "lost", "reply", "unanswered") else ""
    missing = dict(right)
    del missing[next(iter(wrong.keys() & right.keys()), next(iter(right)))]
    optional = kind == "run" or wrong.keys() == {"score"}
    with Journal(path) as journal:
        journal.write(kind, right, key=key)
        journal.write(kind, right | wrong, key=key)
        journal.write(kind, right, key="" if key else "k")
        if not optional:
            journal.write(kind, missing, key=key)
    with Journal(path) as again:
        assert again.corrupt == ([2, 3] if optional else [2, 3, 4])
    assert [entry.data for entry in entries_of(path, kind)] == [right]
