from __future__ import annotations

import os
from itertools import combinations
from statistics import fmean
from typing import Any

import pytest
from run_files import latest_result

from pytest_skillopt.run.openrun import joined_reasons
from pytest_skillopt.run.result import SkillResult


def verdict(path: str, reason: str) -> SkillResult:
    return SkillResult(path=path, name="n", before="0", after="1", status="rejected", reason=reason)


def test_a_reason_says_which_of_several_skills_it_is_about() -> None:
    worse = verdict("a/SKILL.md", "worse on test_x")
    same = verdict("b/SKILL.md", "b/SKILL.md is the same as at HEAD")
    assert joined_reasons([worse]) == "worse on test_x"
    assert joined_reasons([worse, same]) == (
        "a/SKILL.md: worse on test_x; b/SKILL.md is the same as at HEAD"
    )


COUNTING = """
import pytest

@pytest.mark.skill_task
@pytest.mark.parametrize("most", [9, 3, 2, 0])
def test_it(rollout, skill, most):
    assert rollout.index < most - ("less" in skill.text)
"""


def _measured(pytester: pytest.Pytester, *arguments: str) -> tuple[dict[str, Any], str]:
    pytester.makepyfile(COUNTING)
    pytester.makeini("[pytest]\naddopts = -p no:xdist -p no:cacheprovider\nskillopt_rollouts = 4\n")
    (pytester.path / "SKILL.md").write_text("---\nname: s\ndescription: S.\n---\nless\n")
    shown = pytester.runpytest_inprocess(*arguments).stdout.str()
    (run,) = (pytester.path / ".skillopt" / "runs").iterdir()
    (skill,) = latest_result(pytester.path)["skills"]
    for text in ((run / "report.html").read_text(), (run / "summary.md").read_text()):
        assert "rollouts of a task pass (pass^k)" in text.replace("\\^", "^").replace(
            "^\u200b", "^"
        )
    return skill, " ".join(shown.split())


def _all_pass(arm: dict[str, int], k: int) -> float:
    """Take every subset of k samples, as the estimator of pass^k stands for."""
    outcomes = [i < arm["passed"] for i in range(arm["n"])]
    return fmean(map(all, combinations(outcomes, k)))


def test_an_evaluation_says_how_often_all_rollouts_of_a_task_pass(
    pytester: pytest.Pytester,
) -> None:
    skill, shown = _measured(pytester, "--skillopt")
    rate = skill["suite"]["before"]
    assert (rate["rate"], rate["k"], rate["all_k"]) == (0.4375, 4, 0.25)
    assert "All 4 of 4 rollouts of a task pass (pass^k): 25.0 %." in shown


def test_a_comparison_estimates_pass_hat_k_without_bias_with_one_k(
    pytester: pytest.Pytester,
) -> None:
    # With more samples of a task the subsets of k are too many to count.
    skill, shown = _measured(
        pytester, "--skillopt-compare", "none", "SKILL.md", "--skillopt-max-rollouts=48"
    )
    assert skill["status"] != "unmeasured", skill["reason"]
    k = min(row[arm]["n"] for row in skill["tasks"] for arm in ("before", "after"))
    assert k > 1
    said = []
    for arm in ("before", "after"):
        rate = skill["suite"][arm]
        assert rate["k"] == k
        expected = fmean(_all_pass(row[arm], k) for row in skill["tasks"])
        assert rate["all_k"] == pytest.approx(expected)
        said.append(f"{100 * expected:.1f}")
    assert said[0] != said[1]
    assert f"of a task pass (pass^k): {said[0]} -> {said[1]} %." in shown


@pytest.mark.parametrize(
    "mode",
    [("--skillopt-compare", "../first.md", "../second.md"), ("--skillopt-try", "../first.md")],
)
def test_files_outside_of_the_project_do_not_hide_its_settings(
    pytester: pytest.Pytester, mode: tuple[str, ...]
) -> None:
    project = pytester.mkdir("project")
    (project / "pytest.ini").write_text("[pytest]\nskillopt_rollouts = 1\n")
    (project / "test_it.py").write_text(COUNTING)
    (project / "SKILL.md").write_text("---\nname: s\ndescription: S.\n---\nless\n")
    for name in ("first.md", "second.md"):
        (pytester.path / name).write_text(f"---\nname: s\ndescription: S.\n---\n{name}\n")
    pytester.chdir()
    os.chdir(project)
    arguments = ("-p", "no:xdist", "--skillopt-max-rollouts=2", *mode)
    done = pytester.runpytest_inprocess(*arguments)
    assert done.ret == 4
    root = pytester.path
    wanted = project / "pytest.ini"
    assert f"pytest takes {root} for its root directory, without" in done.stderr.str()
    assert f"add -c {wanted}" in done.stderr.str()
    assert not (root / ".skillopt").exists()
    assert pytester.runpytest_inprocess(*arguments, "-c", str(wanted)).ret != 4
