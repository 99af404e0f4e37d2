from __future__ import annotations

from pytest_skillopt.modes.measure import joined_reasons
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
