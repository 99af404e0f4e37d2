"""A project in git with a bare remote, and a proposal for it."""

from __future__ import annotations

import hashlib
import json
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_skillopt.git import Clone
from pytest_skillopt.plugins.propose.git import Repository, find_remote
from pytest_skillopt.plugins.propose.proposal import write_proposal
from pytest_skillopt.run.directory import Home
from pytest_skillopt.run.result import Arm, EditRow, Result, SkillResult, TaskRow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

BEFORE = b"""---
name: invoices
description: Extracts data from invoices.
---
# Invoices

Read the invoice.

<!-- skillopt:keep -->
Never invent a number.
<!-- /skillopt:keep -->

Answer in JSON.
"""
AFTER = BEFORE.replace(b"Read the invoice.\n", b"Read the invoice twice.\nWrite dates as ISO.\n")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


BRANCH = f"skillopt/invoices-{sha256(b'skills/SKILL.md')[:8]}"
"""Branch of the requests for the skill of ``Project``."""


def run_git(directory: Path, *args: str) -> str:
    done = subprocess.run(["git", *args], cwd=directory, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def leave(root: Path, result: Result, versions: Mapping[str, bytes]) -> bool:
    """Leave a proposal as a training would whose run holds these texts."""
    run = root / ".skillopt" / "runs" / result.run
    (run / "skills").mkdir(parents=True, exist_ok=True)
    for name, text in versions.items():
        (run / "skills" / f"{name}.md").write_bytes(text)
    write_proposal(Home(root / ".skillopt"), run, result)
    return (root / ".skillopt" / "proposal").exists()


def bare(root: Path) -> Repository:
    """The bare repository in which a proposal of a project is built."""
    clone = Clone(root)
    return Repository(clone, find_remote(clone, "origin"), {})


@dataclass
class Project:
    """A clone with its bare remote ``origin``; the skill lies in ``skills/SKILL.md``."""

    root: Path
    remote: Path

    @property
    def proposal(self) -> Path:
        return self.root / ".skillopt" / "proposal"

    @property
    def skill(self) -> Path:
        return self.root / "skills" / "SKILL.md"

    def git(self, *args: str) -> str:
        return run_git(self.root, *args)

    def commit(self, message: str, *paths: str) -> str:
        self.git("add", "--", *paths)
        self.git("commit", "--quiet", "-m", message)
        return self.git("rev-parse", "HEAD")

    def configure(self, setting: str) -> str:
        """Commit a further line of the settings of pytest."""
        with (self.root / "pyproject.toml").open("a") as file:
            file.write(f"{setting}\n")
        return self.commit("Configure", "pyproject.toml")

    def push(self) -> None:
        self.git("push", "--quiet", "origin", "main")

    def remote_git(self, *args: str) -> str:
        return run_git(self.remote, *args)

    def hook(self, name: str, script: str) -> Path:
        """Have the remote run a script of the shell at each push."""
        hook = self.remote / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\n{script}")
        hook.chmod(0o755)
        return hook

    def branches(self) -> dict[str, str]:
        """Branches of the remote with their tips."""
        lines = self.remote_git("for-each-ref", "--format=%(refname:short) %(objectname)").split()
        return dict(zip(lines[::2], lines[1::2], strict=True))

    def someone(self, name: str = "someone") -> Project:
        """A second clone of the remote, of another person."""
        clone = self.root.parent / name
        if not clone.exists():
            run_git(self.root.parent, "clone", "--quiet", str(self.remote), str(clone))
        return Project(clone, self.remote)

    def propose(
        self,
        after: bytes = AFTER,
        *,
        before: bytes | None = None,
        counts: Sequence[tuple[int, int]] = ((0, 3), (1, 3), (3, 3)),
        path: str = "skills/SKILL.md",
        reason: str = "Passes more tasks.",
    ) -> Path:
        """Write what a training would leave. ``counts``: passed of 3 before and after, by task."""
        before = (self.root / path).read_bytes() if before is None else before
        rows = [
            TaskRow(
                id=f"test_invoice.py::test_{number}",
                split="train" if number % 2 else "val",
                before=Arm(passed=was, n=3),
                after=Arm(passed=now, n=3),
            )
            for number, (was, now) in enumerate(counts)
        ]
        skill = SkillResult(
            path=path,
            name="invoices",
            before=sha256(before),
            after=sha256(after),
            status="accepted",
            reason="better",
            edits=[EditRow(op="append", content="Take care.", reason=reason, status="accepted")],
            tasks=rows,
        )
        result = Result(
            mode="train",
            run="20260101-000000",
            started="2026-01-01T00:00:00Z",
            seconds=1.0,
            status="accepted",
            reason="better",
            command=["pytest", "--skillopt-train"],
            skills=[skill],
        )
        assert leave(self.root, result, {sha256(before): before, sha256(after): after})
        return self.proposal

    def tamper(self, **changes: Any) -> None:
        """Change fields of the proposed skill in the result."""
        file = self.proposal / "result.json"
        result = json.loads(file.read_bytes())
        result["skills"][0] |= changes
        file.write_text(json.dumps(result))
