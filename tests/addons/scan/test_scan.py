from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from patience import is_alive, wait_until

from pytest_skillopt.addons.scan.scanner import check_command, scan, scan_candidate
from pytest_skillopt.skill.document import Document, SkillError


def python(code: str) -> str:
    return f"{sys.executable} -c '{code}' {{skill}}"


def test_a_scanner_that_does_not_end_is_ended_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = tmp_path / "pid"
    pids.touch()
    code = (
        "import subprocess, sys, time, pathlib; "
        'p = subprocess.Popen(["sleep", "1000"]); print("begun", flush=True); '
        'pathlib.Path("pid").write_text(str(p.pid)); time.sleep(1000)'
    )
    wait = subprocess.Popen.wait

    def wait_once_it_has_begun(process: Any, timeout: float | None = None) -> Any:
        if timeout:
            wait_until(pids.read_text)
        return wait(process, timeout and 0.01)

    monkeypatch.setattr(subprocess.Popen, "wait", wait_once_it_has_begun)
    said = scan(python(code), tmp_path, tmp_path, timeout=5.0)
    assert (said.status == 0, said.status) == (False, None)
    assert said.output == "begun\n[ended after 5 s]"
    assert "did not finish" in said.why
    wait_until(lambda: not is_alive(int(pids.read_text())))


def test_a_scanner_gets_no_secrets_and_its_output_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = 'import os; print(sorted(os.environ)); print("k" + "-123456789"); print("x" * 99999)'
    for name, value in {"MY_TOKEN": "k-123456789", "LC_ALL": "C", "EDITOR": "vi"}.items():
        monkeypatch.setenv(name, value)
    said = scan(python(code), tmp_path, tmp_path)
    assert said.status == 0
    assert "TOKEN" not in said.output.split("\n")[0]
    assert "EDITOR" not in said.output
    assert "[redacted MY_TOKEN]" in said.output
    assert len(said.output) < 10_000


def test_the_folder_is_a_copy_with_the_candidate(tmp_path: Path) -> None:
    folder = tmp_path / "skills" / "invoices"
    (folder / "references").mkdir(parents=True)
    (folder / "SKILL.md").write_bytes(b"old\n")
    (folder / "references" / "fields.md").write_bytes(b"fields\n")
    code = (
        "import pathlib, sys; f = pathlib.Path(sys.argv[1]); "
        'print(f.name, (f / "SKILL.md").read_text(), (f / "references/fields.md").read_text())'
    )
    said = scan_candidate(python(code), tmp_path, "skills/invoices/SKILL.md", Document(b"new\n"))
    assert said.output.split() == ["invoices", "new", "fields"]
    assert (folder / "SKILL.md").read_bytes() == b"old\n"


def test_a_program_of_the_project_is_found_there(tmp_path: Path) -> None:
    program = tmp_path / "tools" / "scan"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 4\n")
    with pytest.raises(SkillError, match="no program 'tools/scan'"):
        check_command("tools/scan {skill}", tmp_path)
    program.chmod(0o755)
    assert scan("tools/scan {skill}", tmp_path, tmp_path).status == 4


def test_the_scanner_that_the_page_names_accepts_and_refuses(tmp_path: Path) -> None:
    pytest.importorskip("skills_ref")
    page = Path(__file__).parents[3] / "docs" / "lint.md"
    (program, rest) = re.findall(r'skillopt_scan = "(\S+) (.*?)"', page.read_text("utf-8"))[0]
    assert program in {e.name for e in metadata.distribution("skills-ref").entry_points}
    skill = tmp_path / "skills" / "letters" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    command = f"{Path(sys.executable).with_name(program)} {rest}"
    for head, why in (("name: letters", ""), ("name: other", "must match skill name")):
        text = f"---\n{head}\ndescription: Writes letters.\n---\n# Letters\n".encode()
        skill.write_bytes(text)
        said = scan_candidate(command, tmp_path, "skills/letters/SKILL.md", Document(text))
        assert (said.status == 0) == (not why)
        assert why in said.output
