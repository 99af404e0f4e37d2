"""Commands that are gone say what to do now; for settings and options see test_settings.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tables import each_row

from pytest_skillopt import cli

if TYPE_CHECKING:
    import pytest


def test_a_command_that_is_gone_says_what_to_do_now(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["skill", "install", "--for=claude"]) == cli.USAGE_ERROR
    assert "skill is gone: name docs/getting-started.md" in capsys.readouterr().err


@each_row(
    ("words", "said"),
    [
        (["diff"], "pytest-skillopt show --patch"),
        (["runs", "--dir=x"], "pytest-skillopt show --list"),
        (["mine", "log.jsonl", "skill"], "pytest-skillopt init SKILL --from FILE"),
        (["unschedule"], "crontab -e, and delete the line of the project"),
    ],
)
def test_a_command_that_is_part_of_another_names_it(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert cli.main(words) == cli.USAGE_ERROR
    assert f"{words[0]} is gone: {said}\n" in capsys.readouterr().err


def test_the_name_of_a_run_is_not_taken_for_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["show", "skill"]) == cli.USAGE_ERROR
    assert "is gone" not in capsys.readouterr().err
