"""The watcher's page in a real browser: it follows, shows any size, and runs nothing of others."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
import screens
from journals import write_journal
from patience import PATIENCE

from pytest_skillopt.plugins.watch.server import Watch
from pytest_skillopt.report.blocks import Table, cell, plain
from pytest_skillopt.report.view import view

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from browser import Browser

HOSTILE = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>\u202e"


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[Path, Watch]]:
    run = tmp_path / "run"
    run.mkdir()
    server = Watch(run)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield run, server
    server.shutdown()
    server.server_close()


def wait_for(browser: Browser, condition: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not browser.evaluate(condition):
        assert time.monotonic() < deadline, condition
        time.sleep(0.1)


def show(browser: Browser, url: str, *, width: int, dark: bool = False) -> None:
    browser.open_url(url, width=width, dark=dark)
    wait_for(browser, "document.querySelectorAll('.cells i').length > 0")


@pytest.mark.parametrize(("tasks", "rollouts"), [(2, 300), (150, 600)])
def test_any_size_fits_the_screen(
    browser: Browser, watched: tuple[Path, Watch], tasks: int, rollouts: int
) -> None:
    run, server = watched
    write_journal(run, tasks=tasks, rollouts=rollouts).close()
    show(browser, server.url, width=1280)
    assert browser.evaluate("document.querySelectorAll('.cells i').length") == rollouts + 1
    assert browser.evaluate("document.querySelectorAll('#tasks > li').length") == tasks
    for width in (1280, 390):
        browser.show(width=width, dark=width < 1000)
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        assert browser.evaluate("document.querySelector('.cells i').offsetWidth") == 10
    assert browser.complaints() == []


def test_it_follows_by_itself_and_opens_a_transcript(
    browser: Browser, watched: tuple[Path, Watch]
) -> None:
    """Before and after the gate was asked, the legend speaks of what is drawn."""
    run, server = watched
    write_journal(run, rollouts=6, gated=False).close()
    show(browser, server.url, width=1280)
    assert _legend(browser) == (False, False, False)
    write_journal(run, rollouts=12).close()
    wait_for(browser, "document.querySelectorAll('.cells i').length === 20")
    assert _legend(browser) == (True, True, True)
    browser.evaluate("document.querySelector('.cells i').click()")
    wait_for(browser, "document.getElementById('panel').open")
    assert "reply 0: plain" in browser.evaluate("document.getElementById('panel').textContent")


def _legend(browser: Browser) -> tuple[bool, bool, bool]:
    """Whether a verdict is drawn, and whether circles and val are spoken of."""
    circles = browser.evaluate("document.querySelectorAll('#plot circle:not(.train)').length")
    said = browser.evaluate("document.getElementById('curve').textContent")
    return circles > 0, "ircle" in said, "val" in said


def test_two_skills_have_steps_edits_and_a_line_each(
    browser: Browser, watched: tuple[Path, Watch]
) -> None:
    """Steps of one number were one, an edit proposed for both skills was one, and one line."""
    run, server = watched
    write_journal(run, other="b/SKILL.md").close()
    show(browser, server.url, width=1280)
    titles = "[...document.querySelectorAll('#steps b')].map(e => e.textContent)"
    both = ["Step 1 of SKILL.md", "Step 2 of SKILL.md", "Step 1 of b/SKILL.md"]
    assert browser.evaluate(titles) == both
    edits = (
        "[...document.querySelectorAll('#steps > li')].map(e => e.querySelectorAll('li').length)"
    )
    assert browser.evaluate(edits) == [2, 0, 1]
    assert browser.evaluate("document.querySelectorAll('#plot polyline').length") == 2
    assert "SKILL.md, b/SKILL.md" in browser.evaluate("document.getElementById('key').textContent")
    assert browser.evaluate("document.querySelectorAll('.cells i.start').length") == 7, "6 and 1"


def test_hostile_text_is_text(browser: Browser, watched: tuple[Path, Watch]) -> None:
    run, server = watched
    write_journal(run, text=HOSTILE).close()
    show(browser, server.url, width=1280)
    browser.evaluate("document.querySelector('.cells i').click()")
    wait_for(browser, "document.getElementById('panel').open")
    assert browser.evaluate("document.querySelectorAll('main img, main script').length") == 0
    assert "onerror" in browser.evaluate("document.getElementById('panel').textContent")
    assert "owned" not in browser.evaluate("document.title")
    assert "\u202e" not in browser.evaluate("document.body.textContent")
    assert browser.complaints() == []


def test_a_finished_training_begins_with_what_its_report_begins_with(
    browser: Browser, watched: tuple[Path, Watch]
) -> None:
    """Answer, reason, advice, the next command and the pass rates."""
    run, server = watched
    write_journal(run).close()
    _, result = screens.kept("refused", 60)
    (run / "result.json").write_text(result.dump())
    show(browser, server.url, width=1280)
    wait_for(browser, "document.querySelectorAll('#measured td').length > 0")
    said = view(result)
    hero = " ".join(browser.evaluate("document.getElementById('hero').innerText").split())
    (table, *_) = said.skills[0].blocks
    assert isinstance(table, Table)
    texts = [said.advice.answer, said.advice.sentence, *said.advice.todo, said.advice.command]
    texts += [" ".join(plain(cell(value)) for value in row) for row in table.rows]
    places = [hero.index(text) for text in texts]
    assert places == sorted(places)
    browser.show(width=390)
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390
