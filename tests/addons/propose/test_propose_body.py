"""The text of a request: what is vouched for, then the report, inert."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
from markdown_it import MarkdownIt
from mdit_py_plugins.footnote import footnote_plugin

from pytest_skillopt.addons.propose.body import MAX_BODY, compose, title
from pytest_skillopt.addons.propose.validate import Checked, PassRates
from pytest_skillopt.run.result import Result, SkillResult
from pytest_skillopt.skill.document import Document

if TYPE_CHECKING:
    from markdown_it.token import Token

SKILL = Checked(
    name="invoices",
    path="skills/SKILL.md",
    rates=PassRates(Fraction(1, 2), Fraction(3, 4), tasks=20, samples=200),
    before=Document(b"a"),
    after=Document(b"b"),
)


def result(
    reason: str = "better", notes: tuple[str, ...] = (), *, simulated: bool = False
) -> Result:
    skill = SkillResult(
        path="skills/SKILL.md",
        name="invoices",
        before="0" * 64,
        after="1" * 64,
        status="accepted",
        reason=reason,
    )
    return Result(
        mode="train",
        run="r",
        started="2026-01-01T00:00:00Z",
        seconds=1.0,
        status="accepted",
        reason=reason,
        command=["pytest"],
        skills=[skill],
        notes=list(notes),
        simulated=simulated,
    )


def outside_of_code(text: str) -> str:
    """The text of a rendering that a forge looks for mentions and references in."""
    return "\n".join(
        t.content for t in flat(text) if t.type in ("text", "html_inline", "html_block")
    )


def flat(text: str) -> list[Token]:
    """Tokens of both renderings: plain CommonMark, and GitHub's with footnotes."""
    forge = MarkdownIt("gfm-like", {"linkify": False}).use(footnote_plugin)
    tokens = [*MarkdownIt("commonmark").parse(text), *forge.parse(text)]
    return [token for top in tokens for token in (top, *(top.children or ()))]


@pytest.mark.parametrize(
    ("hostile", "active"),
    [
        ("thanks @octocat", "@octocat"),
        ("thanks &#64;octocat", "@octocat"),
        ("thanks \\@octocat", "@octocat"),
        ("closes #12", "#12"),
        ("fixes octo/repo#12", "#12"),
        ("fixes GH-12", "GH-12"),
        ("see !12", "!12"),
        ("closes https://github.com/o/r/issues/12", "https://github.com"),
        ("\x1b[31mred", "\x1b"),
        ("\u202egnirts", "\u202e"),
        ("x[^1]\n\n[^1]: note\n\n    @octocat\n", "@octocat"),
        ("x[^1]\n\n[^1]:\n```\nx\n```\n@octocat\n", "@octocat"),
        ("<script>\n```\n</script>\n\n```\n@octocat\n```\n", "@octocat"),
        ("![x](https://x.example/p.png)", "https://x"),
    ],
)
def test_nothing_of_a_forged_result_acts(hostile: str, active: str) -> None:
    text = compose(SKILL, result(hostile, notes=(hostile,)))
    assert active not in outside_of_code(text)
    assert "image" not in [token.type for token in flat(text)]


def test_secrets_of_the_environment_are_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    assert "sk-test-0123456789" not in compose(SKILL, result("the key is sk-test-0123456789"))


def test_what_is_vouched_for_comes_first() -> None:
    text = compose(SKILL, result("```\nnever closed", simulated=True), "https://ci.example/1")
    shown = outside_of_code(text)
    assert "from 50.0 % to 75.0 %: 20 tasks, 200 fresh rollouts" in shown
    assert "The model was simulated." in shown
    assert text.index("50.0 %") < text.index("never closed")


def test_rollouts_of_the_search_are_not_called_fresh() -> None:
    text = compose(replace(SKILL, from_search=7), result())
    said = "200 rollouts (fresh, except the old version's for 7 tasks, which are from the search)"
    assert said in text
    assert "fresh rollouts" not in text


def test_long_text_is_cut_and_says_so() -> None:
    body = compose(SKILL, result(notes=("line " * 100,) * 200))
    assert len(body.encode()) <= MAX_BODY
    assert "more" in outside_of_code(body)


def test_title_is_one_plain_line() -> None:
    assert title(SKILL) == "Train the skill invoices: pass rate 50.0 % to 75.0 %"
