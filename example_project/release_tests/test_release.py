"""Releases by GitHub's command line, which is not really run: the tests answer its calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.plugins.commands import Exit

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skill_task(skill="skills/release/SKILL.md")
each_version = pytest.mark.parametrize("version", ["1.2.0", "2.0.1", "10.4.0"])


@pytest.fixture
def release(skill_agent: Any, skill_commands: Any) -> Callable[..., Any]:
    """Have a version released, and give the calls; a test may say how GitHub answers."""
    answers = {
        "pr list": "",
        "run list": "completed\tsuccess\tmain\n",
        "release create": "https://example.com/released\n",
        "release delete": "",
    }

    def run(version: str, **others: Any) -> Any:
        others = {name.replace("_", " "): answer for name, answer in others.items()}
        gh = skill_commands("gh", answers | others)
        skill_agent(f"Release version {version}.", tools=[skill_commands.run])
        return gh

    return run


@each_version
def test_release(release: Callable[..., Any], version: str) -> None:
    """Releases what is ready."""
    gh = release(version)
    assert gh.called("release", "create", f"v{version}")


@each_version
def test_blocker(release: Callable[..., Any], version: str) -> None:
    """Releases nothing while a pull request blocks it."""
    gh = release(version, pr_list="#7\tKeep umlauts\tblocker\n")
    assert gh.called("pr", "list"), "it should look for open pull requests that block"
    assert gh.never("release", "create"), "a pull request blocks the release"


@each_version
def test_failed_checks(release: Callable[..., Any], version: str) -> None:
    """Releases nothing whose checks have failed."""
    gh = release(version, run_list="completed\tfailure\tmain\n")
    assert gh.called("run", "list"), "it should look at the checks of main"
    assert gh.never("release", "create"), "the checks have failed"


@each_version
def test_release_that_exists(release: Callable[..., Any], version: str) -> None:
    """Leaves a release that exists as it is."""
    gh = release(version, release_create=Exit(1, "a release with the same tag already exists\n"))
    assert gh.called("release", "create")
    assert gh.never("release", "delete"), "a release that exists should stay"
