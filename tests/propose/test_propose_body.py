"""The text of a request: what is vouched for comes first, the rest is only shown."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from mdit_py_plugins.footnote import footnote_plugin

from pytest_skillopt.propose.body import MAX_BODY, compose, inert, title
from pytest_skillopt.propose.git import Entry
from pytest_skillopt.propose.validate import Checked, PassRates
from pytest_skillopt.skill.document import Document

if TYPE_CHECKING:
    from markdown_it.token import Token

SKILL = Checked(
    name="invoices",
    path="skills/SKILL.md",
    rates=PassRates(Fraction(1, 2), Fraction(3, 4), tasks=20, samples=200),
    entry=Entry("100644", "0" * 40),
    before=Document(b"a"),
    after=Document(b"b"),
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
        ("thanks &commat;octocat", "@octocat"),
        ("thanks \\@octocat", "@octocat"),
        ("closes #12", "#12"),
        ("closes &#35;12", "#12"),
        ("fixes octo/repo#12", "#12"),
        ("fixes GH-12", "GH-12"),
        ("see !12", "!12"),
        ("closes https://github.com/o/r/issues/12", "issues/12"),
        ("see /pull/12", "pull/12"),
        ("\x1b[31mred", "\x1b"),
        ("\u202egnirts", "\u202e"),
        ("x[^1]\n\n[^1]: note\n\n    @octocat\n", "@octocat"),
        ("x[^1]\n\n[^1]: note\n\n    closes #12\n", "#12"),
        ("x[^a]\n\n- [^a]: note\n\n      > closes GH-12\n", "GH-12"),
        ("x[^1]\n\n[^1]:\n```\nx\n```\n@octocat\n", "@octocat"),
        ("x[^1]\n\n[^1]: note\n\n    ```\nx\n\n    @octocat\n", "@octocat"),
        ("<script>\n```\n</script>\n\n```\n@octocat\n```\n", "@octocat"),
    ],
)
def test_nothing_outside_of_code_acts(hostile: str, active: str) -> None:
    calm = inert(hostile)
    assert active not in outside_of_code(calm)
    assert active in outside_of_code(hostile) or "```" in hostile or active == "\x1b"


@pytest.mark.parametrize(
    "line", ["/merge", "  /close", "> /approve", "- /assign @x", "1. /label ~a"]
)
def test_quick_actions_do_not_begin_a_line(line: str) -> None:
    assert not any(part.lstrip(" >-1.").startswith("/") for part in inert(line).split("\n"))


@pytest.mark.parametrize("before", ["", "x[^1]\n\n[^1]: note\n\n    "])
def test_images_are_not_loaded(before: str) -> None:
    hostile = f"{before}![x](https://x.example/p.png)"
    assert "image" in [token.type for token in flat(hostile)]
    assert "image" not in [token.type for token in flat(inert(hostile))]


def test_code_is_shown_as_it_is() -> None:
    block = "```diff\n+ mail @octocat about #12 <b> &#64;\n```"
    assert inert(block) == block


def test_what_never_calms_down_is_shown_as_code() -> None:
    text = "<a\n```\n" * 40 + "@octocat"
    assert "@octocat" not in outside_of_code(inert(text))


def test_gaps_of_the_renderer_stay() -> None:
    assert inert("~\u200blabel") == "~\u200blabel"


def test_folding_stays() -> None:
    text = "<details>\n<summary>More</summary>\n\nText.\n\n</details>"
    assert inert(text) == text


def test_secrets_of_the_environment_are_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    assert "sk-test-0123456789" not in inert("the key is sk-test-0123456789")


@given(st.text(alphabet="@#!/<>`~&; \n-1aGHissue[]()\\\u200b", max_size=120))
def test_twice_is_once(text: str) -> None:
    calm = inert(text)
    assert inert(calm) == calm


@given(st.text(alphabet="`~ \n@ab<>", max_size=80) | st.text("`[^]: \n@a-", max_size=60))
def test_no_mention_survives_any_fences(text: str) -> None:
    assert "@a" not in outside_of_code(inert(text))


def test_what_is_vouched_for_comes_first_and_cannot_be_swallowed() -> None:
    text = compose(SKILL, "```\nnever closed", simulated=True, run_url="https://ci.example/1")
    shown = outside_of_code(text)
    assert "from 50.0 % to 75.0 %: 20 tasks, 200 fresh rollouts" in shown
    assert "A simulated model was measured" in shown
    assert text.index("50.0 %") < text.index("never closed")


def test_rollouts_of_the_search_are_not_called_fresh() -> None:
    text = compose(replace(SKILL, from_search=7), "", simulated=False)
    assert "200 rollouts (fresh, but for those before of 7 tasks, which are of the search)" in text
    assert "fresh rollouts" not in text


@pytest.mark.parametrize("text", ["x" * 100_000, "line\n" * 50_000, "```\n" + "\u00e9\n" * 60_000])
def test_long_text_is_cut_and_says_so(text: str) -> None:
    body = compose(SKILL, text, simulated=False)
    assert len(body.encode()) <= MAX_BODY
    assert "Cut here" in outside_of_code(body)


def test_title_is_one_plain_line() -> None:
    assert title(SKILL) == "Train the skill invoices: pass rate 50.0 % to 75.0 %"
