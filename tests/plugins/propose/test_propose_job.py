"""The whole job as ``action.yml`` runs it: two jobs in two clones, an artifact in between."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from example_copy import answer_at_once, copy_example
from fake_github import TOKEN
from skill_project import run_git, sha256

if TYPE_CHECKING:
    from fake_github import FakeGitHub

REPOSITORY = Path(__file__).parents[3]
SKILL = "skills/invoice-extraction/SKILL.md"
BRANCH = f"skillopt/invoice-extraction-{sha256(SKILL.encode())[:8]}"


class Action:
    """Carries out the steps of ``action.yml`` in a clone, as a runner does."""

    def __init__(self, workspace: Path, artifact: Path, **inputs: str) -> None:
        self._steps = yaml.safe_load((REPOSITORY / "action.yml").read_text())["runs"]["steps"]
        self._workspace = workspace
        self._artifact = artifact
        self._inputs = {"working-directory": ".", **inputs}
        self._output = workspace.parent / f"{workspace.name}.output"

    def run(self, environ: dict[str, str]) -> str:
        """Run the steps of the mode; what they printed."""
        printed = ""
        for step in self._steps:
            mode = re.search(r"inputs\.mode (==|!=) '(\w+)'", step["if"])
            assert mode is not None
            if (self._inputs["mode"] == mode[2]) == (mode[1] == "=="):
                printed += self._step(step, environ)
        return printed

    def outputs(self) -> dict[str, str]:
        text = self._output.read_text()
        return dict(re.findall(r"^([\w-]+)<<(?:end-\w+)\n(.*)\n", text, re.MULTILINE))

    def _step(self, step: dict[str, Any], environ: dict[str, str]) -> str:
        if "run" in step:
            return self._shell(step, environ)
        name = step["uses"].partition("@")[0]
        if name == "actions/upload-artifact":
            home = self._workspace / ".skillopt"
            for pattern in self._filled(step["with"]["path"]).split():
                for path in self._workspace.glob(pattern.removeprefix("./")):
                    target = self._artifact / path.relative_to(home)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    (shutil.copytree if path.is_dir() else shutil.copy)(path, target)
        elif name == "actions/download-artifact":
            target = self._workspace / self._filled(step["with"]["path"])
            shutil.copytree(self._artifact, target, dirs_exist_ok=True)
        else:
            assert name in ("actions/cache/restore", "actions/cache/save")
        return ""

    def _shell(self, step: dict[str, Any], environ: dict[str, str]) -> str:
        assert step["shell"] == "bash"
        own = {name: self._filled(value) for name, value in step.get("env", {}).items()}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self._workspace / self._filled(step["working-directory"]),
            env={**environ, "GITHUB_OUTPUT": str(self._output), **own},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _filled(self, text: str) -> str:
        return re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda m: self._inputs.get(m[1], ""), text)


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    """``example_project`` as the only commit of a bare repository."""
    source = copy_example(tmp_path / "source")
    answer_at_once(source)
    remote = tmp_path / "remote.git"
    run_git(tmp_path, "init", "--quiet", "--bare", str(remote))
    run_git(source, "init", "--quiet")
    run_git(source, "add", "--all")
    run_git(source, "commit", "--quiet", "-m", "Start")
    run_git(source, "push", "--quiet", str(remote), "main")
    return remote


def clone(remote: Path, name: str) -> Path:
    target = remote.parent / name
    run_git(remote.parent, "clone", "--quiet", "--depth=1", "-b", "main", f"file://{remote}", name)
    return target


def test_nightly_job_ends_in_a_branch_whose_only_change_is_the_skill(
    remote: Path, tmp_path: Path, github: FakeGitHub
) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path}
    environ.pop("GITHUB_TOKEN", None)
    artifact = tmp_path / "artifact"
    training = Action(
        clone(remote, "train"),
        artifact,
        mode="train",
        args="-q tests/test_references.py -k 'po_number or absent' --skillopt-rollouts=1 "
        "-oskillopt_final_rollouts=2",
        **{"max-calls": "150"},
    )
    training.run(environ)
    assert training.outputs() == {"accepted": "true"}
    result = json.loads((artifact / "proposal" / "result.json").read_bytes())
    assert result["skills"][0]["tasks"]

    propose = Action(clone(remote, "propose"), artifact, mode="propose", base="main", token=TOKEN)
    assert "pushed to the new branch" in propose.run(environ)
    assert propose.outputs() == {"pull-request-url": "https://github.com/octo/repo/pull/1"}

    assert run_git(remote, "diff", "--name-only", "main", BRANCH) == SKILL
    assert run_git(remote, "rev-list", "--count", f"main..{BRANCH}") == "1"
    (pull,) = github.pulls
    assert pull["draft"]
    assert "The model was simulated." in pull["body"]
