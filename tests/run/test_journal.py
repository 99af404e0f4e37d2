from __future__ import annotations

import json
import os
import zlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_skillopt.rollouts.rollout import InfraError, Message, Rollout, RolloutRequest
from pytest_skillopt.run.journal import Journal, JournalError, JournalLedger

if TYPE_CHECKING:
    from pathlib import Path

REQUEST = RolloutRequest("t", "s", "SKILL.md", "v", "m", "train", 0)


def test_entries_are_read_back(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.jsonl") as journal:
        journal.write("run", {"seed": 1})
        journal.write("reply", {"text": "\ud800 \u00e9 \u2028"}, key="k")
    with Journal(tmp_path / "journal.jsonl") as again:
        assert [e.kind for e in again.entries] == ["run", "reply"]
        assert again.read("reply", "k") == {"text": "\ud800 \u00e9 \u2028"}
        assert again.read("reply", "other") is None
        assert again.corrupt == []


def test_each_line_is_json_with_number_time_and_kind(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.jsonl") as journal:
        journal.write("run", {"a": [1, None]})
    line = json.loads((tmp_path / "journal.jsonl").read_text())
    assert line["n"] == 1
    assert line["kind"] == "run"
    assert line["data"] == {"a": [1, None]}


@given(cut=st.integers(1, 10_000))
def test_a_file_cut_anywhere_loses_only_the_torn_line(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("j") / "journal.jsonl"
    with Journal(path) as journal:
        for i in range(20):
            journal.write("reply", {"i": i}, key=str(i))
    whole = path.read_bytes()
    cut = cut % len(whole)
    os.truncate(path, cut)
    kept = whole[:cut].count(b"\n")
    with Journal(path) as again:
        again.write("reply", {"i": "new"}, key="new")
    with Journal(path) as last:
        assert len(last.entries) == kept + 1
        assert last.corrupt == []
        assert last.read("reply", "new") == {"i": "new"}
        assert [last.read("reply", str(i)) for i in range(kept)] == [{"i": i} for i in range(kept)]


def test_a_corrupt_line_is_reported_by_its_number_and_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        for i in range(5):
            journal.write("reply", {"value": f"answer {i}"}, key=str(i))
    path.write_bytes(path.read_bytes().replace(b"answer 2", b"answer 7"))
    with path.open("ab") as file:
        for record in (b'"kind":"rollout","data":[]', b'"kind":"reply","key":[1],"data":{}'):
            text = b"{" + record
            file.write(text + b',"crc":"%08x"}\n' % zlib.crc32(text))
    with Journal(path) as again:
        assert again.corrupt == [3, 6, 7]
        assert again.read("reply", "2") is None
        assert again.read("reply", "3") == {"value": "answer 3"}


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    full = os.open("/dev/full", os.O_RDWR)
    with Journal(tmp_path / "journal.jsonl") as journal:
        journal.write("run", {"a": 1})
        os.dup2(full, journal._file.fileno())
        os.close(full)
        with pytest.raises(JournalError, match=r"journal\.jsonl: No space left"):
            journal.write("run", {"a": 2})
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
