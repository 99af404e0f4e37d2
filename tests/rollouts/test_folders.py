"""The folders in which the versions of a skill lie while rollouts run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_skillopt.rollouts.folders import SkillVersions

if TYPE_CHECKING:
    import pytest


def test_folders_of_killed_processes_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders of running processes are not removed, whatever their age."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    script = (
        "import os, sys, tempfile; from pytest_skillopt.rollouts.folders import SkillVersions\n"
        f"tempfile.tempdir = {str(tmp_path)!r}\n"
        "versions = SkillVersions(); versions.add_version('s/SKILL.md', 'v', b'x')\n"
        "print(versions.directory('s/SKILL.md', 'v').parents[1], flush=True); sys.stdin.read()"
    )
    roots = []
    processes = []
    for _ in range(2):
        command = [sys.executable, "-c", script]
        pipe = subprocess.PIPE
        processes.append(subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe))
        assert processes[-1].stdout is not None
        roots.append(Path(processes[-1].stdout.readline().strip()))
        os.utime(roots[-1], (1, 1))
    processes[0].kill()
    processes[0].communicate()
    versions = SkillVersions()
    versions.add_version("s/SKILL.md", "v", b"x")
    mine = versions.directory("s/SKILL.md", "v").parents[1]
    assert sorted(tmp_path.iterdir()) == sorted([roots[1], mine])
    processes[1].communicate()
    versions.close()
    assert list(tmp_path.iterdir()) == [roots[1]]


def test_directories_of_versions_do_not_pile_up() -> None:
    versions = SkillVersions()
    versions.add_skill("skills/demo/SKILL.md", {"notes.md": b"n", "SKILL.md": b"old"})
    made = []
    for number in range(40):
        versions.add_version("skills/demo/SKILL.md", str(number), str(number).encode())
        made.append(versions.directory("skills/demo/SKILL.md", str(number)))
        assert made[-1].name == "demo"
        assert (made[-1] / "SKILL.md").read_bytes() == str(number).encode()
        assert (made[-1] / "notes.md").read_bytes() == b"n"
    assert sum(directory.exists() for directory in made) == 16
    again = versions.directory("skills/demo/SKILL.md", "0")
    assert (again / "SKILL.md").read_bytes() == b"0"
    versions.close()
    assert not any(directory.exists() for directory in [*made, again])
