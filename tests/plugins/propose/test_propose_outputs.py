"""Outputs and summary of a job in GitHub Actions."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from patience import PATIENCE, wait_until
from sessions import clean_environment
from tables import each_row

from pytest_skillopt.cli import main
from pytest_skillopt.plugins.propose.commands import write_outputs
from pytest_skillopt.plugins.propose.schedule import training_command
from pytest_skillopt.run.result import Comparison, Rate, Result, SkillResult

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from refusals import Refusal


def result(*, accepted: bool = True) -> Result:
    before = Rate(rate=0.5, low=0.4, high=0.6, tasks=10, samples=50)
    after = Rate(rate=0.8, low=0.7, high=0.9, tasks=10, samples=50)
    skill = SkillResult(
        path="SKILL.md",
        name="invoices",
        before="0" * 64,
        after="1" * 64,
        status="accepted" if accepted else "rejected",
        reason="fixes two tasks",
        suite=Comparison(before=before, after=after),
    )
    return Result(
        mode="train",
        run="20260101-000000-aaaa",
        started="2026-01-01T00:00:00Z",
        seconds=1.0,
        status=skill.status,
        reason="fixes two tasks",
        command=["pytest", "--skillopt-train"],
        skills=[skill],
    )


def parse(text: str) -> dict[str, str]:
    """Read ``$GITHUB_OUTPUT`` as the runner does."""
    found: dict[str, str] = {}
    lines = iter(text.split("\n"))
    for line in lines:
        name, mark, end = line.partition("<<")
        if mark:
            value: list[str] = []
            for part in lines:
                if part == end:
                    break
                value.append(part)
            found[name] = "\n".join(value)
    return found


@pytest.mark.parametrize("accepted", [True, False])
def test_job_tells_the_ci_how_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accepted: bool
) -> None:
    """With a stand-in for pytest that leaves a run."""
    (tmp_path / "result.json").write_text(result(accepted=accepted).dump())
    run = tmp_path / ".skillopt" / "runs" / "20260101-000000-aaaa"
    (tmp_path / "pytest.py").write_text(
        f"import pathlib, shutil\nrun = pathlib.Path({str(run)!r})\nrun.mkdir(parents=True)\n"
        f"shutil.copy({str(tmp_path / 'result.json')!r}, run)\n"
        "(run / 'summary.md').write_text('The skill invoices')\n"
        "(run / 'journal.jsonl').touch()\n"
    )
    (tmp_path / ".skillopt").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))

    assert main(["job", "--max-calls=1"]) == 0

    assert parse((tmp_path / "output").read_text()) == {
        "accepted": "true" if accepted else "false",
        "pass-rate-before": "0.5000",
        "pass-rate-after": "0.8000",
    }
    assert "invoices" in (tmp_path / "summary").read_text()


@each_row(
    ("arguments", "message"),
    [
        ([], "a job needs a spending cap, at least one of --max-calls, --max-cost, --max-time"),
        (["--max-calls", "0"], "'0' is not a number above 0"),
        (["--max-calls=-3"], "'-3' is not a number above 0"),
        (["--max-cost", "nan"], "'nan' is not a number above 0"),
        (["--max-cost", "inf"], "'inf' is not a number above 0"),
        (["--max-time", "1", "--args", "-k 'x"], "No closing quotation"),
    ],
)
def test_job_wants_a_cap(arguments: list[str], message: str, refusal: Refusal) -> None:
    assert message in refusal("job", *arguments)


def test_command_of_a_job() -> None:
    given = {"max_calls": "500", "max_cost": "", "max_time": "", "args": "-n 2 -k 'a or b'"}
    command = training_command(argparse.Namespace(**given))
    assert command[1:] == [
        "-m", "pytest", "--skillopt-train", "-n", "2", "-k", "a or b", "--skillopt-max-calls=500",
    ]  # fmt: skip


def test_job_that_fails_before_a_run_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    assert main(["job", "--max-calls=1", "--args=--no-such-option"]) == 4
    assert parse((tmp_path / "output").read_text())["accepted"] == "false"


@pytest.mark.skipif(os.name == "nt", reason="a process of Windows has no SIGTERM to handle")
@pytest.mark.parametrize(("sign", "send"), [("SIGINT", os.killpg), ("SIGTERM", os.kill)])
def test_a_job_that_is_ended_ends_its_training(
    tmp_path: Path, sign: str, send: Callable[[int, int], None]
) -> None:
    """With a stand-in for pytest; Ctrl-C is sent to both."""
    (tmp_path / "pytest.py").write_text(
        "import pathlib, signal, sys\nsigns = {signal.SIGINT, signal.SIGTERM}\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, signs)\npathlib.Path('begun').touch()\n"
        "print(signal.sigwait(signs).name)\nsys.exit(2)\n"
    )
    command = [sys.executable, "-P", "-m", "pytest_skillopt", "job", "--max-calls=1"]
    environ = clean_environment(GITHUB_OUTPUT=str(tmp_path / "output"))
    pipe = subprocess.PIPE
    job = subprocess.Popen(
        command, cwd=tmp_path, env=environ, stdout=pipe, stderr=pipe, start_new_session=True
    )
    wait_until((tmp_path / "begun").exists)
    send(job.pid, getattr(signal, sign))
    assert job.communicate(timeout=PATIENCE) == (f"{sign}\n".encode(), b"")
    assert job.returncode == 2
    assert parse((tmp_path / "output").read_text())["accepted"] == "false"


def test_value_cannot_set_another_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"url": "x\naccepted=true\naccepted<<EOF\ntrue\nEOF"}
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    write_outputs(values)
    assert parse((tmp_path / "output").read_text()) == values


def test_nothing_is_written_outside_of_actions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_OUTPUT", raising=False)
    monkeypatch.chdir(tmp_path)
    there = set(tmp_path.rglob("*"))
    write_outputs({"a": "b"})
    assert set(tmp_path.rglob("*")) == there
