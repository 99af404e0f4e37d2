"""The shape of the workflow files: who may do what, and what bounds it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tables import each_row

from pytest_skillopt import __version__

if TYPE_CHECKING:
    from skill_project import Project

REPOSITORY = Path(__file__).parents[3]
ACTION = REPOSITORY / "action.yml"
WORKFLOW = REPOSITORY / "example_project" / ".github" / "workflows" / "skillopt.yml"
GITLAB = REPOSITORY / "example_project" / ".gitlab-ci.yml"
DRIFT = WORKFLOW.with_name("skillopt-drift.yml")
GITLAB_DRIFT = GITLAB.with_name(".gitlab-ci-drift.yml")
KEPT = ".skillopt/cache"
"""Replies of models."""


@pytest.fixture
def workflow() -> dict[Any, Any]:
    loaded: dict[Any, Any] = yaml.safe_load(WORKFLOW.read_text())
    return loaded


@each_row("file", [ACTION, WORKFLOW, DRIFT])
def test_actions_are_pinned_by_commit_and_name_their_version(file: Path) -> None:
    used = re.findall(r"uses: (.*)", file.read_text(encoding="utf-8"))
    assert used
    for line in used:
        assert re.fullmatch(r"actions/[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)


def test_what_the_templates_install_is_there(tmp_path: Path) -> None:
    """Nothing is on an index: the wheel that the page says to keep is enough for each command."""
    name = f"pytest_skillopt-{__version__}"
    (tmp_path / "vendor").mkdir()
    with zipfile.ZipFile(tmp_path / "vendor" / f"{name}-py3-none-any.whl", "w") as wheel:
        said = f"Metadata-Version: 2.1\nName: pytest-skillopt\nVersion: {__version__}\n"
        wheel.writestr(f"{name}.dist-info/METADATA", said)
        wheel.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
    project = tmp_path / "pyproject.toml"
    project.write_text((REPOSITORY / "example_project" / "pyproject.toml").read_text())
    commands = set()
    for file, jobs in ((WORKFLOW, 3), (GITLAB, 3), (DRIFT, 1), (GITLAB_DRIFT, 1)):
        installed = re.findall(r"python (?:-I )?-m pip install (.*)", file.read_text())
        assert len(installed) == jobs
        for command in installed:
            places = re.findall(r"--find-links=(\S+)", command)
            what = command.split()[-1]
            if what == ".":
                # Without a [project] table, "." installs a package without any dependency.
                assert "vendor/pytest_skillopt-*.whl" in command
                (what,) = tomllib.loads(project.read_text())["project"]["dependencies"]
            elif "*" in what:
                assert len([*tmp_path.glob(what)]) == 1
                continue
            commands.add((*(f"--find-links={place}" for place in places), what))
    for command in commands:
        alone = ["--no-index", "--no-deps", "--dry-run", "--ignore-installed", "--quiet"]
        pip = [sys.executable, "-m", "pip", "install", *alone, *command]
        subprocess.run(pip, cwd=tmp_path, check=True)


def test_the_example_can_be_built_beside_its_skills_and_vendor(tmp_path: Path) -> None:
    """setuptools refuses to guess the package if there are several folders."""
    pytest.importorskip("setuptools")
    example = REPOSITORY / "example_project"
    for folder in ("vendor", "skills", "invoice_desk", "simulation", "agent_tests"):
        (tmp_path / folder).mkdir()
    shutil.copy(example / "pyproject.toml", tmp_path)
    shutil.copy(example / "invoice_desk" / "__init__.py", tmp_path / "invoice_desk")
    build = [sys.executable, "-c", "import setuptools; setuptools.setup()", "--quiet", "egg_info"]
    subprocess.run(build, cwd=tmp_path, check=True)
    assert (tmp_path / "invoice_desk.egg-info" / "top_level.txt").read_text() == "invoice_desk\n"


def test_rights_of_each_job(workflow: dict[Any, Any]) -> None:
    assert workflow["permissions"] == {}
    assert {name: job["permissions"] for name, job in workflow["jobs"].items()} == {
        "train": {"contents": "read"},
        "propose": {"contents": "write", "pull-requests": "write"},
        "check": {"contents": "read"},
    }


def test_no_pull_request_ever_sees_a_secret(workflow: dict[Any, Any]) -> None:
    # YAML 1.1 reads the key `on` as true.
    assert set(workflow[True]) == {"schedule", "workflow_dispatch", "pull_request"}
    for name in ("propose", "check"):
        assert "secrets." not in yaml.safe_dump(workflow["jobs"][name])
    assert workflow["jobs"]["train"]["if"] == "github.event_name != 'pull_request'"


def test_the_check_runs_for_every_file_that_is_trained(workflow: dict[Any, Any]) -> None:
    files = ["**/SKILL.md", "**/references/*.md"]
    assert workflow[True]["pull_request"]["paths"] == files
    assert yaml.safe_load(GITLAB.read_text())["check"]["rules"][0]["changes"] == files


def test_every_job_is_bounded(workflow: dict[Any, Any]) -> None:
    assert all(0 < job["timeout-minutes"] <= 120 for job in workflow["jobs"].values())
    assert workflow["concurrency"]["group"]
    (train,) = [s["run"] for s in workflow["jobs"]["train"]["steps"] if s.get("id") == "train"]
    assert re.search(r"--max-(calls|cost)=\d", train)


def cached(steps: list[dict[str, Any]]) -> list[str]:
    """Paths of the caches of some steps."""
    uses = (s for s in steps if s.get("uses", "").startswith("actions/cache"))
    return [step["with"]["path"].strip() for step in uses]


def test_every_cache_holds_what_later_trainings_need_and_no_run(workflow: dict[Any, Any]) -> None:
    """GitHub keys a cache by its paths too: they must be the same wherever it is restored."""
    jobs = workflow["jobs"]
    assert [path for job in jobs.values() for path in cached(job["steps"])] == [KEPT] * 3
    assert "actions/cache/save" not in yaml.safe_dump(jobs["check"])
    steps = yaml.safe_load(ACTION.read_text())["runs"]["steps"]
    assert cached(steps) == [f"${{{{ inputs.working-directory }}}}/{KEPT}"] * 2
    gitlab = yaml.safe_load(GITLAB.read_text())
    caches = [gitlab[name]["cache"] for name in ("train", "check")]
    assert [cache["paths"] for cache in caches] == [[f"{KEPT}/"]] * 2
    assert [cache["policy"] for cache in caches] == ["pull-push", "pull"]


def test_checkouts_leave_no_credentials(workflow: dict[Any, Any]) -> None:
    for job in workflow["jobs"].values():
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout"):
                assert step["with"]["persist-credentials"] is False


def test_outputs_of_the_jobs(workflow: dict[Any, Any]) -> None:
    outputs = {name for job in workflow["jobs"].values() for name in job.get("outputs", {})}
    assert outputs == set(yaml.safe_load(ACTION.read_text())["outputs"])


def test_jobs_on_gitlab_are_bounded_and_the_one_that_pushes_has_no_cache() -> None:
    jobs = yaml.safe_load(GITLAB.read_text())
    assert "cache" not in jobs["propose"]
    assert all("timeout" in jobs[name] for name in ("train", "propose", "check"))


def test_the_monthly_job_has_no_right_to_write_and_keeps_only_results() -> None:
    drift = yaml.safe_load(DRIFT.read_text())
    assert set(drift[True]) == {"schedule", "workflow_dispatch"}
    assert drift["permissions"] == {}
    (job,) = drift["jobs"].values()
    assert job["permissions"] == {"contents": "read"}
    assert 0 < job["timeout-minutes"] <= 120
    steps = job["steps"]
    (checkout,) = [s for s in steps if s.get("uses", "").startswith("actions/checkout")]
    assert checkout["with"]["persist-credentials"] is False
    assert not any("download-artifact" in step.get("uses", "") for step in steps)
    assert cached(steps) == [".skillopt/runs/*/result.json"] * 2
    (measure,) = [step["run"] for step in steps if step.get("name") == "Measure"]
    assert re.fullmatch(r"pytest --skillopt-drift --skillopt-max-(calls|cost)=\d.* -n 2", measure)
    assert "GITHUB_TOKEN" not in yaml.safe_dump(job)


def test_gitlab_measures_drift_in_a_schedule_of_its_own() -> None:
    jobs, drift = (yaml.safe_load(file.read_text()) for file in (GITLAB, GITLAB_DRIFT))
    for name in ("train", "propose"):
        assert jobs[name]["rules"][0] == {"if": "$SKILLOPT_DRIFT", "when": "never"}
    job = drift["measure-drift"]
    (rule,) = job["rules"]
    assert rule["if"].endswith("&& $SKILLOPT_DRIFT")
    assert "timeout" in job
    assert job["cache"]["paths"] == [".skillopt/runs/*/result.json"]
    assert job["script"][-1].startswith("pytest --skillopt-drift --skillopt-max-calls=")


SPIES = ("filelock", "pip", "pytest", "pytest_skillopt", "json", "sitecustomize", "usercustomize")
"""Modules that a file of this name at the top of a checkout would stand for."""


def pushing() -> dict[str, list[str]]:
    """The commands of the jobs that can push, by job."""
    workflow = yaml.safe_load(WORKFLOW.read_text())
    propose = [step for step in yaml.safe_load(ACTION.read_text())["runs"]["steps"] if "id" in step]
    found = {"action": [step["run"] for step in propose if step["id"] == "propose"]}
    for name, job in workflow["jobs"].items():
        if "write" in job["permissions"].values():
            found[name] = [step["run"] for step in job["steps"] if "run" in step]
    jobs = yaml.safe_load(GITLAB.read_text())
    found["gitlab"] = jobs["propose"]["script"]
    return found


@pytest.mark.parametrize("job", ["action", "propose", "gitlab"])
def test_a_job_that_can_push_imports_nothing_of_the_checkout(
    project: Project, tmp_path: Path, job: str
) -> None:
    commands = pushing()[job]
    assert commands
    ran = tmp_path / "ran"
    for name in SPIES:
        (project.root / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write(__name__)\n")
    (project.root / "conftest.py").write_text(f"open({str(ran)!r}, 'a').write('conftest')\n")
    environ = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": ".",
        "BASE": "main",
        "CI_DEFAULT_BRANCH": "main",
    }
    for command in commands:
        bash = ["bash", "-c", command]
        done = subprocess.run(bash, cwd=project.root, env=environ, capture_output=True, text=True)
        assert not ran.exists(), f"{command}: {ran.read_text()}"
        if "pip" in command:
            assert "pytest_skillopt-*.whl" in done.stderr, "pip ran, and there is no such file"
        else:
            assert "nothing to propose" in done.stdout
