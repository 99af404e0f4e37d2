"""``pytest-skillopt adopt``: what a run accepted becomes the file, and is undone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from skill_project import AFTER, BEFORE, sha256

from pytest_skillopt.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    from skill_project import Project

RUN = "20260101-000000"


@pytest.fixture
def run(project: Project, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run that accepted ``AFTER`` and wrote nothing."""
    found = project.propose().parent / "runs" / RUN
    (found / "journal.jsonl").write_text("")
    (found / "result.json").write_bytes((project.proposal / "result.json").read_bytes())
    (found / "skills" / f"{sha256(BEFORE)}.md").write_bytes(BEFORE)
    monkeypatch.chdir(project.root)
    return found


@pytest.mark.usefixtures("run")
def test_a_run_is_adopted_with_a_receipt_and_undone(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["adopt", RUN]) == 0
    assert project.skill.read_bytes() == AFTER
    receipt = project.root / ".skillopt" / "adopted" / f"{RUN}.json"
    pins = json.loads(receipt.read_text())["skills"]["skills/SKILL.md"]
    assert pins == {"before": sha256(BEFORE), "after": sha256(AFTER)}
    assert f"adopt {RUN} --undo" in capsys.readouterr().out
    assert main(["adopt"]) == 0
    assert "have these versions already" in capsys.readouterr().out
    assert main(["adopt", RUN, "--undo"]) == 0
    assert project.skill.read_bytes() == BEFORE
    assert main(["adopt", RUN, "--undo"]) == 1
    assert "was not adopted" in capsys.readouterr().err


def test_what_was_changed_since_is_refused(
    project: Project, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project.skill.write_bytes(BEFORE + b"By hand.\n")
    assert main(["adopt", RUN]) == 1
    assert "SKILL.md is not the version" in capsys.readouterr().err
    assert project.skill.read_bytes() == BEFORE + b"By hand.\n"
    project.skill.write_bytes(BEFORE)
    assert main(["adopt", RUN]) == 0
    project.skill.write_bytes(AFTER + b"By hand.\n")
    assert main(["adopt", RUN, "--undo"]) == 1
    assert project.skill.read_bytes().endswith(b"By hand.\n")
    project.skill.write_bytes(BEFORE)
    (run / "skills" / f"{sha256(AFTER)}.md").write_bytes(b"Something else.\n")
    assert main(["adopt", RUN]) == 1
    assert "does not have this SHA-256" in capsys.readouterr().err
    assert project.skill.read_bytes() == BEFORE


def test_a_path_outside_of_the_project_is_refused(
    project: Project, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outside = project.root.parent / "SKILL.md"
    outside.write_bytes(BEFORE)
    result = json.loads((run / "result.json").read_bytes())
    result["skills"][0]["path"] = "../SKILL.md"
    (run / "result.json").write_text(json.dumps(result))
    assert main(["adopt", RUN]) == 1
    assert "there is no such file in" in capsys.readouterr().err
    assert outside.read_bytes() == BEFORE
