"""Sessions that run rollouts of a small suite through a real executor, each in a process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import warm_sessions
from patience import PATIENCE

from pytest_skillopt.rollouts.rollout import Rollout

if TYPE_CHECKING:
    from collections.abc import Callable

    Drive = Callable[..., "Driven"]

_SUPPORT = Path(__file__).parent.parent / "_support"


@dataclass(frozen=True)
class Driven:
    """A session that has ended: its folder, output and rollouts."""

    path: Path
    output: str
    rollouts: list[Rollout]

    def of(self, test: str) -> list[Rollout]:
        """The rollouts of one test function (or ``Class::method``), in order."""
        return [r for r in self.rollouts if r.request.task.partition("::")[2] == test]

    def one(self, test: str) -> Rollout:
        (rollout,) = self.of(test)
        return rollout


@pytest.fixture
def drive(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Drive:
    """``drive(tests, *args, job=..., jobs=...)`` runs a job over the tests.

    ``job`` is ``module:function``; ``jobs`` the source of a module ``jobs``; ``expect`` the exit
    status.
    """
    monkeypatch.setenv("PYTHONPATH", str(_SUPPORT), prepend=":")
    # These tests may run in a worker themselves; the session that they start is a controller.
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)

    def run(
        tests: str,
        *args: str,
        job: str = "rollout_driver:once",
        jobs: str = "",
        conftest: str = "",
        expect: int = 0,
    ) -> Driven:
        pytester.makepyfile(test_suite=tests)
        if conftest:
            pytester.makeconftest(conftest)
        if jobs:
            pytester.makepyfile(jobs=jobs)
        pytester.mkdir("skills").joinpath("demo").mkdir()
        (pytester.path / "skills/demo/SKILL.md").write_text("---\nname: demo\n---\non disk\n")
        driver = ("-p", "rollout_driver", f"--drive={job}")
        session = warm_sessions.start(*driver, *args, cwd=pytester.path)
        output, _ = session.communicate(PATIENCE)
        assert session.returncode == expect, output
        kept = pytester.path / "rollouts.json"
        data = json.loads(kept.read_text()) if kept.exists() else []
        return Driven(pytester.path, output, [Rollout.from_json(one) for one in data])

    return run
