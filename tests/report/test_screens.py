"""Lines and report of a training in seven situations, each for 8 and 60 tasks.

Texts and results are in ``tests/data/screens``; ``tests/_support/screens.py`` writes the texts
anew.
"""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

import screens
from tables import each_row

from pytest_skillopt.report.markdown import render_summary
from pytest_skillopt.report.page import render_html
from pytest_skillopt.run.result import NeedRow

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_skillopt.run.result import Result

ALL = [(name, size) for name in screens.SITUATIONS for size in screens.SIZES]


def words(name: str, size: int) -> str:
    return " ".join(screens.path(name, size).read_text("utf-8").split())


@each_row(("name", "size"), ALL)
def test_a_training_is_told_as_it_was(name: str, size: int) -> None:
    assert screens.screen(*screens.kept(name, size)) == screens.path(name, size).read_text("utf-8")


@each_row(("name", "size"), ALL)
def test_a_line_of_a_report_has_at_most_80_columns_and_none_is_cut(name: str, size: int) -> None:
    report = screens.path(name, size).read_text("utf-8").partition("\n\n")[2]
    assert max(map(len, report.splitlines())) <= 80
    assert "..." not in report


@each_row(
    "given",
    [
        ["--skillopt-max-rollouts=9"],
        ["-o", "skillopt_max_rollouts=9"],
        ["-oskillopt_max_rollouts=9"],
    ],
)
def test_the_next_attempt_takes_the_place_of_what_was_given(given: list[str]) -> None:
    """However it was written: an option wins over -o, and one -o over an earlier one."""
    printed, result = screens.kept("refused", 60)
    (cap,) = re.findall(r"skillopt_max_rollouts=(\d+)$", words("refused", 60))
    command = ["pytest", "--skillopt-train", *given, "-n4"]
    told = screens.screen(printed, result.model_copy(update={"command": command}))
    assert told.endswith(f"pytest --skillopt-train -n4 -o skillopt_max_rollouts={cap}\n")


@each_row("layout", [render_summary, render_html])
def test_every_layout_tells_a_refusal_in_the_same_facts(layout: Callable[[Result], str]) -> None:
    _, result = screens.kept("refused", 8)
    shown = html.unescape(re.sub("<[^>]*>", "", layout(result)))
    for said in (
        "Why not: The suite's mean moved",
        "Why the search ended: skillopt",
        "What to do: these 8 tasks are too few",
        "What the skill still needs, as the search believes",
        "100 more rollouts would find another edit, worth",
    ):
        assert shown.count(said) == 1, said
        assert said in words("refused", 8)


def test_a_comparison_that_had_enough_rollouts_asks_for_another_seed() -> None:
    printed, result = screens.kept("refused", 60)
    (skill,) = result.skills
    need = NeedRow(pairs=20, option="skillopt_seed=1")
    few = skill.model_copy(update={"need": need})
    told = screens.screen(printed, result.model_copy(update={"skills": [few]}))
    assert "and was not refused for their number; try another seed." in " ".join(told.split())
    assert told.endswith("-o skillopt_seed=1\n")


def test_an_edit_that_helps_but_breaks_a_task_is_not_told_to_be_of_no_use() -> None:
    """No number of rollouts would help, so that none is told."""
    printed, result = screens.kept("refused", 60)
    (skill,) = result.skills
    told = screens.screen(
        printed, result.model_copy(update={"skills": [skill.model_copy(update={"need": None})]})
    )
    assert "likelier to help than not" not in " ".join(told.split())
