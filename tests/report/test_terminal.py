from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from made_results import with_skill
from tables import each_row

from pytest_skillopt.report import terminal
from pytest_skillopt.report.markdown import render_summary
from pytest_skillopt.report.page import render_html
from pytest_skillopt.report.terminal import paragraph
from pytest_skillopt.run.result import (
    Arm,
    Comparison,
    EditRow,
    GainRow,
    NeedRow,
    ProspectRow,
    Rate,
    Result,
    StepRow,
    TaskRow,
)
from pytest_skillopt.words import one_line, p_value_of_search

MakeResult = Callable[..., Result]


def rendered(result: Result, width: int = 80, **options: Any) -> list[str]:
    return [line.text for line in terminal.lines(result, width, **options)]


def joined(result: Result, width: int = 80, **options: Any) -> str:
    """The report as running text, however it was wrapped."""
    return " ".join(" ".join(rendered(result, width, **options)).split())


@each_row(("e_value", "said"), [(1.9, "above 0.5"), (4, "at most 0.25"), (3e7, "at most 0.0001")])
def test_what_a_search_has_won_is_told_as_a_p_value(e_value: float, said: str) -> None:
    assert p_value_of_search(e_value) == f"the p-value of the search's own samples was {said}"


@each_row(
    ("before", "after", "said"),
    [
        (0.5, 0.6, ""),
        (1.0, 1.0, ""),
        (0.0, 0.0, "no edit has seen, the pass rate stayed at 0.0 %."),
        (1.0, 0.9, "no edit has seen, the pass rate fell from 100.0 % to 90.0 %."),
    ],
)
def test_a_test_split_that_did_not_rise_is_a_caution(
    make_result: MakeResult, before: float, after: float, said: str
) -> None:
    rates = [Rate(rate=rate, low=0, high=1, tasks=10, samples=50) for rate in (before, after)]
    result = make_result()
    report = joined(with_skill(result, test=Comparison(before=rates[0], after=rates[1]), tasks=[]))
    assert report.startswith("Accepted, but look closer" if said else "Accepted, ready to merge.")
    assert said in report
    assert ("On the test split" in report) == bool(said)


@each_row("status", ["accepted", "rejected"])
def test_a_gain_is_that_of_the_rates_as_they_are_written(
    make_result: MakeResult, status: str
) -> None:
    """Rounded each by itself they contradict: 48 % and 89 %, but 42 points."""
    rows: dict[str, Any] = {"low": -0.002, "high": 0.6, "tasks": 8}
    gain = GainRow(before=0.476, after=0.894, fresh=8, pairs=30, is_model=True, **rows)
    rates = [Rate(rate=rate, samples=50, **rows) for rate in (0.47646, 0.89454)]
    fresh = Comparison(before=rates[0], after=rates[1])
    need = NeedRow(pairs=40, option="skillopt_max_rollouts=300")
    result = with_skill(make_result(status=status), gain=gain, suite=fresh, need=need)
    for report in (joined(result), render_summary(result), render_html(result)):
        assert "+41 points (95 % interval +0 to +60)" in report
        assert "48 %" in report
        assert "+42" not in report
        assert "+41.8" not in report
        assert "+42.0" not in report
        assert ("a gain of 41 points" in report) == (status == "rejected")


CERTAIN = EditRow(op="append", content="Be sure.", status="open", chance=0.9996, points=0.1)


def test_an_estimated_probability_is_never_told_as_certain(make_result: MakeResult) -> None:
    edits = [CERTAIN, CERTAIN.model_copy(update={"content": "Be shy.", "chance": 0.0})]
    ahead = ProspectRow(rollouts=100, chance=0.999, gain=0.04)
    tasks = [TaskRow(id="t.py::test_it", split="train", before=Arm(), hoped=0.002)]
    result = with_skill(make_result(), edits=edits, prospect=ahead, tasks=tasks)
    for report in (joined(result, verbose=True), render_summary(result), render_html(result)):
        for said in (
            "more than 99 % sure to help",
            "less than 1 % sure to help",
            "with a chance of more than 99 %",
            "passes less than 1 % of the time",
        ):
            assert said in report.replace("&nbsp;", " "), said
        assert "100 % sure" not in report


def test_a_gate_that_was_off_in_the_search_is_a_caution(make_result: MakeResult) -> None:
    result = make_result()
    steps = [StepRow(step=1, verdict="accepted", gate="off", reason="not validated")]
    assert "caution: The gate was off" in joined(with_skill(result, steps=steps))
    assert "caution: The gate was off" not in joined(result)


@each_row(
    ("mode", "first"),
    [
        ("evaluate", "Pass rate 40.7 %."),
        ("compare", "Difference of +17.3 points."),
        ("aa", "Noise of 1.9 points."),
        ("check", "No regression found."),
    ],
)
def test_the_first_line_is_what_it_was_run_for(
    make_result: MakeResult, mode: str, first: str
) -> None:
    status = "accepted" if mode == "check" else "measured"
    assert rendered(make_result(mode=mode, status=status, simulated=False))[0] == first


def test_a_mode_of_an_add_on_that_is_gone_is_shown_as_a_comparison(make_result: MakeResult) -> None:
    gone = make_result(mode="compare").model_copy(update={"mode": "gone"})
    report = joined(gone)
    assert "before" in report
    assert "The suite's pass rate rose from" in report


def test_evaluation_lists_the_tasks_that_did_not_always_pass(
    make_result: MakeResult,
) -> None:
    result = make_result(mode="evaluate", status="measured", tasks=10)
    rows = [line for line in rendered(result) if "::test_field" in line]
    shown = {task.id for task in result.skills[0].tasks if task.before.passed < task.before.n}
    assert {row.split("  ")[-1].strip() for row in rows} == shown
    assert any(re.match(r" +2 of 5 +tests/", row) for row in rows)


def test_verbose_lists_every_task_edit_and_stage(make_result: MakeResult) -> None:
    result = make_result()
    quiet = joined(result)
    verbose = joined(result, verbose=True)
    assert all(task.id in verbose for task in result.skills[0].tasks)
    assert not all(task.id in quiet for task in result.skills[0].tasks)
    refused = 'step 3, refused: insert_after "Use euros." at "## Totals": the target was not found'
    assert refused in verbose
    assert "1 55 % 52.0 -> 63.0 % 2 accepted 3 tasks fixed" in verbose
    assert "55 %" not in quiet, "the steps were told as they came"
    assert "optimizer reflect 24 0 90,000 in, 18,000 out $0.32" in verbose
    assert verbose.endswith("To look further: pytest-skillopt watch 20260102-030405-ab12")


def test_a_run_that_can_go_on_ends_with_that_command(make_result: MakeResult) -> None:
    result = make_result(status="interrupted", resume="pytest --skillopt-resume=20260102")
    assert rendered(result, live=True)[-1] == "pytest --skillopt-resume=20260102"
    capped = joined(result.model_copy(update={"status": "unchanged"}), live=True)
    assert "To continue where it stopped, under a higher cap: pytest" in capped
    faulty = joined(result.model_copy(update={"status": "unmeasured"}), live=True)
    assert "To continue where it stopped, if no test has changed: pytest" in faulty
    later = "\n".join(rendered(result))
    assert "--skillopt-resume" not in later, "by then it may be refused"


def test_cost_says_what_it_leaves_out(make_result: MakeResult) -> None:
    result = make_result()
    target, optimizer = result.usage
    partly = result.model_copy(
        update={"usage": [target, optimizer.model_copy(update={"cost": None})]}
    )
    assert "cost $1.61, without the optimizer (no price)" in joined(partly)
    for render in (render_html, render_summary):
        assert "without the optimizer" in render(partly)
    unknown = [row.model_copy(update={"cost": None}) for row in result.usage]
    assert "cost not known" in joined(result.model_copy(update={"usage": unknown}))


def test_cautions_stand_at_the_top(make_result: MakeResult) -> None:
    result = make_result(simulated=True)
    low = Rate(rate=0.4, low=0.3, high=0.5, tasks=10, samples=50)
    high = low.model_copy(update={"rate": 0.5})
    top = joined(
        with_skill(
            result,
            shared_train_val=True,
            written=False,
            test=Comparison(before=high, after=low),
            verdict={"validated": False},
        )
    ).split("skills/invoices/SKILL.md (")[0]
    assert top.startswith("Accepted, but look closer before merging.")
    for said in ("simulated model", "Too few tasks", "fell from 50.0 % to 40.0 %", "gate was off",
                 "was not written"):  # fmt: skip
        assert said in top


@each_row("width", [50, 60, 80, 100, 200])
def test_prose_and_steps_keep_within_the_width(make_result: MakeResult, width: int) -> None:
    result = make_result(hostile=True, tasks=8)
    result = result.model_copy(update={"run": "r", "models": {}})
    result = with_skill(result, patch="", tasks=[])
    lines = rendered(result, width)
    figures = re.compile(r"^  (pass rate|suite|val|test|calls|tokens|cost|time|step) |^ +\d+ ")
    assert (
        max(len(line) for line in lines if not figures.search(line) and "::" not in line) <= width
    )


def test_hostile_text_reaches_no_terminal(make_result: MakeResult) -> None:
    for line in rendered(make_result(hostile=True, tasks=30), verbose=True):
        assert not [c for c in line if unicodedata.category(c) in ("Cc", "Cf", "Cs")], ascii(line)


def test_diff_is_cut_and_says_so(make_result: MakeResult) -> None:
    result = make_result()
    result = with_skill(result, patch="+line\n" * 500)
    assert "... 420 more lines of the diff" in rendered(result)
    assert rendered(result, verbose=True).count("+line") == 500
    tasks = [row.model_copy(update={"change": "same"}) for row in result.skills[0].tasks]
    lines = rendered(with_skill(result, tasks=tasks))
    place = next(n for n, line in enumerate(lines) if "beyond chance" in line)
    assert lines[place - 2 : place] == ["", "Tasks"]


def test_the_head_of_several_skills_has_the_answer_of_each(make_result: MakeResult) -> None:
    result = make_result(skills=2)
    rejected = make_result(status="rejected").skills[0]
    second = rejected.model_copy(update={"path": "skills/s1/SKILL.md"})
    report = joined(result.model_copy(update={"skills": [result.skills[0], second]}))
    said = "ccepted, but look closer before merging"
    assert report.startswith(
        f"A{said}. skills/invoices/SKILL.md: a{said}; "
        "skills/s1/SKILL.md: nothing to merge. skills/invoices/SKILL.md (invoice-extraction)"
    )
    assert report.count("on fresh samples of") == 1
    measured = joined(make_result(mode="evaluate", status="measured", skills=2))
    assert measured.startswith("Measured. skills/invoices/SKILL.md: pass rate ")


def test_several_skills_keep_their_paths_and_cautions(make_result: MakeResult) -> None:
    result = make_result(skills=2, simulated=True)
    low = Rate(rate=0.4, low=0.3, high=0.5, tasks=10, samples=50)
    fell = Comparison(before=low.model_copy(update={"rate": 0.5}), after=low)
    skills = [result.skills[0], result.skills[1].model_copy(update={"test": fell})]
    report = joined(result.model_copy(update={"skills": skills}))
    said = "accepted, but look closer before merging"
    top = f"skills/invoices/SKILL.md: {said}; skills/s1/SKILL.md: {said}. caution: A simulated"
    assert top in report
    assert "fell from 50.0 % to 40.0 %" in report.split("skills/s1/SKILL.md (")[1]
    assert report.count("simulated model") == 1


def test_an_evaluation_says_its_figure_once(make_result: MakeResult) -> None:
    result = make_result(mode="evaluate", status="measured")
    skill = result.skills[0].model_copy(update={"reason": "skills/x.md: pass rate 70.0% over 1"})
    top = joined(result.model_copy(update={"skills": [skill]})).split("skills/invoices")[0]
    assert top.count("pass rate") == 1
    failed = skill.model_copy(update={"status": "unmeasured", "reason": "skills/x.md: no sample"})
    assert " skills/x.md: no sample. " in joined(result.model_copy(update={"skills": [failed]}))


def test_a_file_without_a_name_is_called_by_its_path(make_result: MakeResult) -> None:
    result = make_result()
    assert "AGENTS.md, version" in joined(with_skill(result, name="", path="AGENTS.md"))


def test_what_was_not_to_be_written_is_no_caution(make_result: MakeResult) -> None:
    result = make_result()
    settings = {**result.settings, "write": False}
    kept = with_skill(result, written=False, unwritten="skillopt_write is no")
    report = joined(kept.model_copy(update={"settings": settings}))
    assert "was not written; the edit is kept as a patch" not in report
    assert "NOT written: skillopt_write is no." in report


@settings(max_examples=20)
@given(st.lists(st.text(max_size=20) | st.text("ab-#", max_size=60)), st.integers(40, 60))
def test_wrapping_loses_nothing_and_keeps_the_width(words: list[str], width: int) -> None:
    line = one_line(" ".join(words)).replace("::", ";")  # which may exceed the width
    wrapped = [part.text for part in paragraph(line, width, indent="  ", hang="  ")]
    assert "".join("".join(wrapped).split()) == "".join(line.split())
    # A space is put into what a CI would carry out.
    assert all(len(part) <= width + 1 + part.count("# #") for part in wrapped)


def test_a_task_that_was_never_measured_has_not_passed(make_result: MakeResult) -> None:
    result = make_result(mode="evaluate", status="unmeasured", tasks=2)
    skill = result.skills[0]
    rows = [row.model_copy(update={"before": Arm(), "flaky": False}) for row in skill.tasks]
    result = result.model_copy(update={"skills": [skill.model_copy(update={"tasks": rows})]})
    assert "always passed" not in joined(result)
    assert all(row.id in joined(result) for row in rows)


def test_a_broken_task_of_the_test_split_is_said_to_be_one(make_result: MakeResult) -> None:
    skill = make_result().skills[0]
    row = skill.tasks[0].model_copy(update={"split": "test", "change": "broken"})
    skill = skill.model_copy(update={"tasks": [row]})
    said = joined(make_result().model_copy(update={"skills": [skill]}))
    assert "none broken" in said
    assert "caution: 1 task broken, 1 of the test split: " in said
    tasks = [row, *(row.model_copy(update={"id": f"t::{n}", "split": "val"}) for n in range(2))]
    skill = skill.model_copy(update={"tasks": tasks})
    said = joined(make_result().model_copy(update={"skills": [skill]}))
    assert "2 broken" in said
    assert "caution: 3 tasks broken, 1 of the test split: " in said


def test_the_sentence_counts_the_tasks_of_the_suite(make_result: MakeResult) -> None:
    def said(*changes: str) -> str:
        row = make_result().skills[0].tasks[0].model_copy(update={"split": "train"})
        rows = [row.model_copy(update={"change": change}) for change in changes]
        rows.append(row.model_copy(update={"split": "test", "change": "fixed"}))
        return joined(with_skill(make_result(), tasks=rows))

    assert "30 tasks. 2 fixed, none broken." in said("fixed", "fixed")
    assert "30 tasks. None fixed, 1 undecided, 1 broken." in said("undecided", "broken")
    assert "30 tasks. None fixed, 2 likely, none broken." in said("likely", "likely")


@each_row("mode", ["train", "evaluate", "check", "compare", "aa"])
@each_row("tasks", [0, 1, 9, 40])
def test_own_words_are_ascii_and_no_two_blank_lines_follow_each_other(
    make_result: MakeResult, mode: str, tasks: int
) -> None:
    lines = rendered(make_result(mode=mode, status="measured", tasks=tasks), verbose=True)
    assert ("", "") not in itertools.pairwise(lines)
    assert all(line.isascii() for line in lines)
    assert lines[-1].startswith("pytest-skillopt watch")


@each_row("width", [40, 41, 47, 53, 60, 80])
def test_no_line_starts_a_command_of_a_ci_however_it_is_wrapped(
    make_result: MakeResult, width: int
) -> None:
    words = "why it is so ::set-output name=x::y and ##[error] more ##vso[task.x] " * 3
    result = make_result()
    edit = EditRow(op="append", target=words, content=words, reason=words, tasks=[words], why=words)
    result = with_skill(
        result, edits=[edit], patch=f"--- a\n+++ b\n@@ -1 +1 @@\n ::stop\n+##[x]{words}\n"
    ).model_copy(update={"notes": [words]})
    lines = rendered(result, width, verbose=True)
    assert not [line for line in lines if line.lstrip().startswith("::") or "##[" in line]
    assert not [line for line in lines if "##vso[" in line]
    assert any(": :stop" in line for line in lines)


def test_a_node_id_is_never_broken() -> None:
    node = f"tests/{'deep/' * 12}test_it.py::test_greeting[Ada-in-a-long-case]"
    wrapped = [part.text for part in paragraph(f"broken: {node}, twice", 40, indent="  ")]
    assert wrapped == ["  broken:", f"  {node},", "  twice"]
