from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from html.parser import HTMLParser

import made_results
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_results import with_skill
from tables import each_row

from pytest_skillopt.report import figures
from pytest_skillopt.report import page as html
from pytest_skillopt.rollouts.rollout import Message
from pytest_skillopt.run.result import Arm, EditRow, Result, RolloutSample, StepRow, TaskRow

MakeResult = Callable[..., Result]


class Page(HTMLParser):
    """Elements, attributes and text of a page, as a browser would see them."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data

    def values(self, name: str) -> list[str]:
        return [value for _, key, value in self.attributes if key == name]


def plain(source: str) -> str:
    return " ".join(Page(source).text.split())


def test_page_answers_then_shows_the_evidence_in_order(make_result: MakeResult) -> None:
    text = plain(html.render_html(make_result(simulated=True)))
    order = [
        "Accepted, but look closer before merging", "A simulated model took part", "44.7 to 60.7",
        "What changes", "Write amounts with a point and two decimals.",
        "Amounts came back as '1.204,50'.",
        "tests/test_invoices.py::test_field[0-supplier-nordwind]", "23 tasks without a difference",
        "6 steps", "Edits not kept", "the target was not found",
        "What it cost", "How to do it again", "'invoice and not slow'",
    ]  # fmt: skip
    places = [text.index(part) for part in order]
    assert places == sorted(places)


def test_page_needs_nothing_from_elsewhere_and_runs_nothing(make_result: MakeResult) -> None:
    page = Page(html.render_html(make_result(hostile=True)))
    assert not {"script", "iframe", "object", "embed", "form", "base", "img"} & set(page.tags)
    assert not [name for _, name, _ in page.attributes if name.startswith("on") or name == "style"]
    assert page.values("src") == []
    assert all(value.startswith(("#", "data:,")) for value in page.values("href"))


def test_policy_allows_the_own_style_and_nothing_else(make_result: MakeResult) -> None:
    source = html.render_html(make_result())
    policy = next(v for v in Page(source).values("content") if v.startswith("default-src 'none'"))
    style = re.search(r"<style>(.*?)</style>", source, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy


def test_ids_are_unique_and_links_lead_somewhere(make_result: MakeResult) -> None:
    page = Page(html.render_html(make_result(skills=3)))
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    named = [value[1:] for value in page.values("href") if value.startswith("#")]
    named += " ".join(page.values("aria-labelledby")).split()
    assert set(named) <= set(ids)


STATUSES = ("accepted", "rejected", "unmeasured", "unchanged", "measured", "interrupted")


@each_row("tasks", [0, 1, 7])
@each_row("mode", ["train", "evaluate", "check", "compare", "aa"])
def test_every_mode_and_status_renders(make_result: MakeResult, mode: str, tasks: int) -> None:
    for status in STATUSES:
        result = make_result(mode=mode, status=status, tasks=tasks, steps=tasks)
        assert Page(html.render_html(result)).tags.count("h1") == 1, status


def test_every_task_is_a_row_with_both_transcripts(make_result: MakeResult) -> None:
    result = make_result(tasks=40)
    source = html.render_html(result)
    text = plain(source)
    for task in result.skills[0].tasks:
        assert task.id in text
    assert source.count('class="transcript"') == 80
    assert "Before: " in text
    only = plain(html.render_html(make_result(mode="evaluate", status="measured")))
    assert "A rollout: " in only
    assert "Passed: " not in only


def test_400_tasks_with_long_transcripts_stay_light(make_result: MakeResult) -> None:
    result = make_result(tasks=400, steps=60, hostile=True)
    talk = [Message(role="assistant", content="<&>" * 5000)] * 40
    sample = RolloutSample(outcome="failed", message="m" * 9000, transcript=talk)
    rows = [
        row.model_copy(update={"before": row.before.model_copy(update={"sample": sample})})
        for row in result.skills[0].tasks
    ]
    source = html.render_html(with_skill(result, tasks=rows))
    assert len(source.encode()) < 3_000_000
    assert "28 turns left out" in source
    assert "this page has no room left for it" in source


def test_curve_has_a_text_alternative_and_marks_by_shape(make_result: MakeResult) -> None:
    source = html.render_html(make_result())
    assert "step 1, accepted: 52.0 -> 63.0 %; step 2, rejected: 63.0 -> 59.0 %" in plain(source)
    curve = source.split('<svg class="curve"')[1].split("</svg>")[0]
    assert curve.count('<circle class="accepted"') == 2
    assert curve.count('<path class="rejected"') == 4


def test_curve_of_steps_without_any_measurement_is_left_out(make_result: MakeResult) -> None:
    result = make_result()
    source = html.render_html(with_skill(result, steps=[StepRow(step=1, reason="no edits")]))
    assert '<svg class="curve"' not in source
    assert "no edits" in plain(source)


@pytest.fixture(scope="module")
def plain_page() -> Page:
    return Page(html.render_html(with_text("plain")))


@settings(max_examples=6)
@given(evil=st.text(max_size=60) | st.sampled_from(["<script>", "\"'><svg onload=x>", "]]>-->"]))
def test_any_text_stays_text(plain_page: Page, evil: str) -> None:
    page = Page(html.render_html(with_text(evil or "x")))
    # The place at which a long id may be broken depends on its text.
    assert elements(page) == elements(plain_page)
    assert [a[:2] for a in page.attributes] == [a[:2] for a in plain_page.attributes]


def elements(page: Page) -> list[str]:
    return [tag for tag in page.tags if tag not in ("wbr", "bdi")]


def with_text(text: str) -> Result:
    """A result with ``text`` wherever a model or a test could have put it."""
    result = made_results.build(tasks=3)
    skill = result.skills[0]
    tasks = [row.model_copy(update={"id": f"t::{i}{text}"}) for i, row in enumerate(skill.tasks)]
    skill = skill.model_copy(
        update={
            "name": text,
            "path": text,
            "reason": text,
            "tasks": tasks,
            "patch": "+" + text.replace("\n", " "),
            "steps": [step.model_copy(update={"reason": f"r{text}"}) for step in skill.steps],
            "edits": [EditRow(op=text, target=f"t{text}", content=f"c{text}", reason=f"r{text}")],
        }
    )
    return result.model_copy(
        update={"skills": [skill], "models": {"target": text}, "command": ["pytest", text]}
    )


@each_row("gated", [True, False])
def test_the_table_of_steps_has_no_column_that_no_step_fills(
    make_result: MakeResult, gated: bool
) -> None:
    step = StepRow(step=1, train=0.4, edits=1, reason="6 tried, 5 help")
    if gated:
        step = step.model_copy(update={"before": 0.4, "after": 0.5, "verdict": "accepted"})
    result = make_result()
    page = html.render_html(with_skill(result, steps=[step]))
    page = page[page.index("<summary>1 step</summary>") :].split("</table>")[0]
    heads = re.findall(r"<th[^>]*>(\w+)<", page)
    between = ["val", "edits", "verdict"] if gated else []
    assert heads == ["step", "train", *between, "reason"]
    assert page.count("<td") == len(heads)


@each_row(
    ("shown", "whole", "said"),
    [
        ((1, 1), (3, 5), ""),
        ((1, 1), (1, 1), ""),
        ((4, 4), (4, 4), ""),
        ((1, 1), (5, 5), "always passed (a.py::test_x)"),
        ((0, 2), (0, 6), "never passed (a.py::test_x)"),
        ((0, 2), (1, 6), ""),
        ((5, 5), (0, 0), "always passed (a.py::test_x)"),
    ],
)
def test_a_task_tells_nothing_only_by_all_of_at_least_five_samples(
    make_result: MakeResult, shown: tuple[int, int], whole: tuple[int, int], said: str
) -> None:
    """The fresh samples that a report shows are a part of those that the run took."""
    row = TaskRow(
        id="a.py::test_x",
        split="val",
        before=Arm(),
        after=Arm(passed=shown[0], n=shown[1]),
        passed=whole[0],
        samples=whole[1],
    )
    skill = make_result(tasks=4).skills[0].model_copy(update={"tasks": [row]})
    listed = figures.uninformative_listed(skill)
    assert listed == (f"Tasks that told nothing: {said}." if said else "")


@each_row(
    ("before", "after", "is_named"),
    [((9, 10), (1, 10), False), ((1, 10), (9, 10), False), ((3, 6), (4, 10), True)],
)
def test_a_task_that_a_change_breaks_tells_something(
    make_result: MakeResult, before: tuple[int, int], after: tuple[int, int], is_named: bool
) -> None:
    """It passes half of the time without any skill."""
    arms = [Arm(passed=passed, n=n) for passed, n in (before, after)]
    row = TaskRow(
        id="a.py::x", split="val", before=arms[0], after=arms[1], none=Arm(passed=5, n=10)
    )
    skill = make_result(tasks=4).skills[0].model_copy(update={"tasks": [row]})
    said = "passed as often without the skill (a.py::x)"
    assert (said in figures.uninformative_listed(skill)) == is_named
