"""``--skillopt-init``: what the new skill is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.modes.skills import read_documents
from pytest_skillopt.settings import Settings
from pytest_skillopt.skill.document import SkillError
from pytest_skillopt.tasks.task import SkillTask

if TYPE_CHECKING:
    from pathlib import Path

SKILL = "skills/greet/SKILL.md"


def _task(split: str) -> SkillTask:
    name = f"test_greet.py::test_{split}"
    return SkillTask(name, name, SKILL, name, split=split, doc=f"Seen in {split}.\n\nMore.")


def test_only_what_the_optimizer_may_see_goes_into_the_skill(tmp_path: Path) -> None:
    tasks = [_task(split) for split in ("val", "train", "test")]
    made = read_documents(tmp_path, tasks, Settings(), init=True)[SKILL]
    assert "Seen in train." in made.text
    assert "Seen in val" not in made.text
    assert "Seen in test" not in made.text


def test_tasks_that_are_train_and_val_both_are_seen(tmp_path: Path) -> None:
    made = read_documents(tmp_path, [_task("both")], Settings(), init=True)[SKILL]
    assert "- Seen in both." in made.text


def test_a_missing_skill_names_the_way_out_once(tmp_path: Path) -> None:
    with pytest.raises(SkillError) as caught:
        read_documents(tmp_path, [_task("train")], Settings())
    assert str(caught.value).count("--skillopt-init") == 1


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    skill, outside = tmp_path / "project" / SKILL, tmp_path / "outside.md"
    skill.parent.mkdir(parents=True)
    skill.symlink_to(outside)
    with pytest.raises(SkillError, match=r"a link to .*outside\.md, which does not exist"):
        read_documents(tmp_path / "project", [_task("train")], Settings(), init=True)
    assert not outside.exists()


@pytest.mark.parametrize(
    ("folder", "name"), [("greet", "greet"), ("My notes_2", "my-notes-2"), ("---", "skill")]
)
def test_any_folder_gives_a_name(tmp_path: Path, folder: str, name: str) -> None:
    skill = f"{folder}/SKILL.md"
    task = SkillTask("t", "t", skill, "t", split="train")
    made = read_documents(tmp_path, [task], Settings(), init=True)[skill]
    assert made.name == name
