"""The HTML report as a browser lays it out, at the widths and in the themes it is made for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import made_results
import pytest

from pytest_skillopt.report.page import render_html
from pytest_skillopt.run.result import Result

if TYPE_CHECKING:
    from pathlib import Path

MakeResult = Callable[..., Result]
WIDTHS = (1280, 390)
"""Pixels of a desktop's and of a telephone's screen, on which each page is laid out in turn."""

# Boxes of one row that lie over each other, and boxes that stick out of the page.
OVERLAPS = """(() => {
  const found = [];
  const rows = 'tr, .pair, .facts, .facts > div, .hero, main';
  for (const row of document.querySelectorAll(rows)) {
    const boxes = [...row.children]
      .map(e => [e, e.getBoundingClientRect()]).filter(([, b]) => b.width && b.height);
    for (let i = 0; i < boxes.length; i++) for (let j = i + 1; j < boxes.length; j++) {
      const [a, b] = [boxes[i][1], boxes[j][1]];
      const x = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (x > 1 && y > 1) found.push(row.className + ': ' + boxes[i][0].textContent.slice(0, 40)
        + ' | ' + boxes[j][0].textContent.slice(0, 40));
    }
  }
  return found.slice(0, 5);
})()"""
SPILLS = """(() => [...document.querySelectorAll('main *:not(svg *)')].filter(e => {
    const box = e.getBoundingClientRect();
    const scrolls = getComputedStyle(e).overflowX === 'auto' || !e.clientWidth;
    return box.right > innerWidth + 1 || box.left < -1
      || (!scrolls && e.scrollWidth > e.clientWidth + 1);
  }).map(e => e.tagName + '.' + e.className + ': ' + e.textContent.slice(0, 60)).slice(0, 5))()"""
CONTRAST = """(() => {
  const level = rgb => {
    const [r, g, b] = rgb.match(/[0-9.]+/g).slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = e => {
    for (; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (colour !== 'rgba(0, 0, 0, 0)') return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  return [...document.querySelectorAll('main *:not(svg *)')].filter(e =>
    [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) && e.offsetParent
  ).map(e => {
    const [a, b] = [level(getComputedStyle(e).color), level(behind(e))].sort((x, y) => y - x);
    return [(a + 0.05) / (b + 0.05), e.tagName + '.' + e.className + ' ' + e.textContent.trim()];
  }).filter(([ratio]) => ratio < 4.5).map(([ratio, who]) => ratio.toFixed(2) + who.slice(0, 50));
})()"""

CASES: dict[str, dict[str, Any]] = {
    "no-task": {"tasks": 0, "steps": 0, "status": "unchanged"},
    "60-tasks": {"tasks": 60, "steps": 60},
    "hostile": {"tasks": 20, "hostile": True},
    "three-skills": {"tasks": 8, "skills": 3, "simulated": True},
    "evaluation": {"mode": "evaluate", "status": "measured", "tasks": 20},
    "check": {"mode": "check", "status": "rejected", "tasks": 20},
}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a training."""
    file = tmp_path_factory.mktemp("report") / "report.html"
    file.write_text(render_html(made_results.build(simulated=True)), encoding="utf-8")
    return file


@pytest.mark.parametrize("case", CASES)
def test_nothing_overflows_or_overlaps_and_nothing_is_fetched(
    browser: Any, make_result: MakeResult, tmp_path: Path, case: str
) -> None:
    file = tmp_path / "report.html"
    file.write_text(render_html(make_result(**CASES[case])), encoding="utf-8")
    browser.open(file, width=WIDTHS[0])
    browser.evaluate("for (const e of document.querySelectorAll('details')) e.open = true")
    for width in WIDTHS:
        browser.show(width=width)
        assert browser.evaluate("innerWidth") == width
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        assert browser.evaluate(SPILLS) == []
        assert browser.evaluate(OVERLAPS) == []
    assert browser.evaluate("document.title").startswith(
        ("Accepted", "Nothing", "Pass rate", "Do not")
    )
    assert browser.complaints() == []


EVIL = "<script>document.title='owned'</script><svg onload=document.title='owned'>\u202e"


def test_the_path_of_a_skill_breaks_between_its_parts(browser: Any, report: Path) -> None:
    browser.open(report, width=320)
    assert browser.evaluate("document.querySelector('h2 bdi').textContent") == "skills/"
    lines = "[...document.querySelectorAll('h2 bdi')].map(e => e.getClientRects().length)"
    assert browser.evaluate(lines) == [1, 1, 1]


def test_text_is_legible_in_both_themes(browser: Any, report: Path) -> None:
    browser.open(report, width=1280)
    browser.evaluate("for (const e of document.querySelectorAll('details')) e.open = true")
    for dark in (False, True):
        browser.show(width=1280, dark=dark)
        assert browser.evaluate(CONTRAST) == []
        ground = browser.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, ground[4:-1].split(","))) < 200) is dark


def test_the_first_screen_holds_the_answer(browser: Any, report: Path) -> None:
    """The cautions stand on it, and on a desktop the pass rates too."""
    browser.open(report, width=WIDTHS[0], height=844)
    for width, last in zip(WIDTHS, ("table", ".cautions"), strict=True):
        browser.show(width=width, height=844)
        bottom = f"document.querySelector('{last}').getBoundingClientRect().bottom"
        assert browser.evaluate(bottom) <= 844


def test_print_is_light_whatever_the_screen(browser: Any, report: Path) -> None:
    browser.open(report, width=794, dark=True)
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.call("Emulation.setEmulatedMedia", media="print", features=dark)
    ground = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    browser.call("Emulation.setEmulatedMedia", media="", features=[])
    assert ground == "rgb(255, 255, 255)"


def test_the_policy_stops_a_script_that_got_in(
    browser: Any, make_result: MakeResult, tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    page = render_html(make_result()).replace("</main>", "<script>window.ran = 1</script></main>")
    file.write_text(page, encoding="utf-8")
    browser.open(file, width=1280)
    assert browser.evaluate("window.ran") is None
    assert any("Content Security Policy" in complaint for complaint in browser.complaints())


# Text before and after each break of a line within a node id.
BREAKS = """(() => [...document.querySelectorAll('td code, li code')].filter(
  code => code.textContent.includes('::')).flatMap(code => {
  const walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT), found = [];
  let text = '', last = null;
  for (let node = walker.nextNode(); node; node = walker.nextNode())
    for (let i = 0; i < node.length; i++) {
      const range = document.createRange();
      range.setStart(node, i); range.setEnd(node, i + 1);
      const box = range.getBoundingClientRect();
      if (last && box.top > last.bottom - 2) found.push([text, node.data.slice(i), code.innerText]);
      text += node.data[i];
      last = box;
    }
  return found;
}))()"""


def test_a_node_id_breaks_only_between_its_parts(
    browser: Any, make_result: MakeResult, tmp_path: Path
) -> None:
    """Only a part that is wider than the line breaks within."""
    rows = make_result(tasks=12)
    names = [
        "tests/some-of-the-units/test_long-winded_module.py::TestEverything::test_one_of_many_names"
        "[a-name with-several_words]",
        "tests/test_short.py::test_short",
        f"tests/test_wide.py::test_wide[{'wide' * 40}]",
    ]
    skill = rows.skills[0]
    tasks = [
        row.model_copy(update={"id": f"{n}/{names[n % 3]}"}) for n, row in enumerate(skill.tasks)
    ]
    skills = [skill.model_copy(update={"tasks": tasks})]
    file = tmp_path / "report.html"
    file.write_text(render_html(rows.model_copy(update={"skills": skills})), encoding="utf-8")
    browser.open(file, width=WIDTHS[0])
    browser.evaluate("for (const e of document.querySelectorAll('details')) e.open = true")
    for width in WIDTHS:
        browser.show(width=width)
        breaks = browser.evaluate(BREAKS)
        assert len(breaks) > 10
        assert browser.evaluate(SPILLS) == []
        for before, after, whole in breaks:
            assert "\n" not in whole
            inside = "wide" * 3 in before + after
            assert inside or before.endswith(("/", "::")) or after.startswith("["), (before, after)
