from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import made_results
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_results import with_skill
from markdown_it import MarkdownIt
from tables import each_row

from pytest_skillopt.report import markup
from pytest_skillopt.report.markdown import render_summary
from pytest_skillopt.run.result import EditRow, Result, UsageRow
from pytest_skillopt.settings import Settings
from pytest_skillopt.untrusted import printable
from pytest_skillopt.words import one_line

if TYPE_CHECKING:
    from markdown_it.token import Token

MakeResult = Callable[..., Result]

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])

HOSTILE = [
    "@octocat and @org/team, mail a@example.com",
    "fixes #1, closes GH-2, resolves octo/repo#3, octo/repo@0123456789abcdef",
    "closes https://github.com/o/r/issues/4 and www.example.com and ftp://example.com",
    "deadbeefdeadbeefdeadbeefdeadbeefdeadbeef :tada: :²: $x^2$ !5 %6 ~7 [vulnerability:8]",
    "![i](http://e.com/p.png) [l](javascript:alert(1)) <http://e.com> [r]: http://e.com",
    "<img src=x onerror=alert(1)> &lt;b&gt; <!-- --> </details> </summary> <script>",
    "``` ```` `x` ``` ~~~ \\` \\\\",
    "# head\n\n- item\n1. one\n> quote\n***\n| a | b |\n|---|---|\n/close\n```\n/merge\n```",
    "/close", "- x", "+ x", "1. x", "1) x", "===", "---", "    indented", "* x", "_a_ **b** ~~c~~",
    "`", "``", "a`", "`a", "\\", "|", "\\|", "a\\", "\u200b@x", "@\u2060x",
]  # fmt: skip

texts = (
    st.sampled_from(HOSTILE) | st.text(max_size=80) | st.text(alphabet="`~\n @#1a/<>&\\|[]-*_!:.")
)


def tokens(source: str) -> list[Token]:
    flat = []
    for token in PARSER.parse(source):
        flat.append(token)
        flat += token.children or []
    return flat


def rendered_text(source: str) -> str:
    """The text that a forge searches for references: outside of code."""
    return "\n".join(token.content for token in tokens(source) if token.type == "text")


def effects(text: str) -> list[str]:
    """Whatever GitHub or GitLab would act on in rendered text."""
    found = re.findall(r"@\w|[#!]\w|\bGH-\d|://|www\.\w|:[\w+-]+:|[%~$&]\w", text, re.IGNORECASE)
    return found + re.findall(r"(?<![0-9a-f])[0-9a-f]{7,}", text)


@given(texts)
def test_prose_has_no_effect_and_no_markup(text: str) -> None:
    for start in ("", "- ", "> - ", "**x**: "):
        source = start + markup.prose(text, 10_000)
        kinds = {token.type for token in tokens(source)} - {"inline", "text", "text_special"}
        plain = {token.type for token in tokens(start + "x")} - {"inline", "text"}
        assert kinds <= plain | {"paragraph_open", "paragraph_close"}, source
        assert effects(rendered_text(source)) == []
        assert not re.search(r"^/", source, re.MULTILINE)


@given(st.text(max_size=80))
def test_prose_reads_as_it_was_written(text: str) -> None:
    source = f"x {markup.prose(text)}"
    found = [token.content for token in tokens(source) if token.type.startswith("text")]
    assert "".join(found).replace("\u200b", "") == f"x {one_line(text)}".strip()


@given(texts)
def test_code_is_one_span(text: str) -> None:
    source = f"x {markup.code(text, 10_000)} y"
    spans = [token for token in tokens(source) if token.type == "code_inline"]
    line = one_line(text)
    assert [span.content for span in spans] == ([line] if line else [])


@given(texts)
def test_fence_holds_whatever_is_in_it(text: str) -> None:
    blocks = PARSER.parse(f"a\n\n{markup.fenced(text, 'diff')}\n\nb")
    kinds = ["paragraph_open", "inline", "paragraph_close"]
    assert [block.type for block in blocks] == [*kinds, "fence", *kinds]
    assert blocks[3].content.strip("\n") == printable(text).strip("\n")


@pytest.fixture(scope="module", params=["train", "evaluate"])
def harmless(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A mode, and its report of harmless text."""
    return request.param, render_summary(with_text(request.param, "harmless"))


@settings(max_examples=15)
@given(text=texts)
def test_a_report_full_of_hostile_text_is_inert(harmless: tuple[str, str], text: str) -> None:
    mode, same = harmless
    source = render_summary(with_text(mode, text))
    assert effects(rendered_text(source)) == []
    assert headings(source) == headings(same)
    assert html(source) == html(same)
    assert not {"link_open", "image", "html_inline", "blockquote"} & {
        t.type for t in tokens(source)
    }
    assert not re.search(r"^/", source, re.MULTILINE)


def headings(source: str) -> list[str]:
    return [token.tag for token in tokens(source) if token.type == "heading_open"]


def html(source: str) -> list[str]:
    return [t.content.split("<summary>")[0] for t in tokens(source) if t.type == "html_block"]


def with_text(mode: str, text: str, status: str = "accepted") -> Result:
    """A result with ``text`` wherever a model or a test could have put it."""
    result = made_results.build(mode=mode, tasks=4)
    skill = result.skills[0]
    rows = [
        row.model_copy(update={"id": f"t::{i}{text}", "change": "fixed"})
        for i, row in enumerate(skill.tasks)
    ]
    lines = "".join(f"+{part}\n" for part in text.split("\n"))
    made = EditRow(op="append", reason=text or "x", tasks=[f"t::{text}"], status="accepted")
    edit = EditRow(op="append", content=f"c{text}", why=f"w{text}", status="refused")
    steps = [step.model_copy(update={"reason": f"r{text}"}) for step in skill.steps]
    skill = skill.model_copy(
        update={"name": f"n{text}", "path": f"p{text}", "reason": text or "x", "tasks": rows,
                "patch": f"@@ -1 +1 @@\n{lines}", "steps": steps, "edits": [edit, made],
                "status": status}
    )  # fmt: skip
    return result.model_copy(
        update={"skills": [skill], "notes": [f"n{text}"], "models": {"target": f"m{text}"},
                "command": ["pytest", text], "run": f"r{text}"}
    )  # fmt: skip


def test_body_holds_verdict_diff_reasons_rates_cost_and_command(make_result: MakeResult) -> None:
    body = render_summary(make_result(simulated=True))
    assert body.startswith(
        "## Accepted, but look closer before merging\n\nThe suite's pass rate rose from 52.7 %"
    )
    for part in (
        "> - A simulated model took part",
        "```diff\n--- a/skills/invoices/SKILL.md\n",
        "- `Write amounts with a point and two decimals.`: Amounts came back as '1.204,50'. "
        "Called for by `tests/test_invoices.py::test_",
        "| suite | 52.7 % (44.7 to 60.7) | 70.0 % (62.7 to 77.3) | \\+17.3 | 30 tasks |",
        "| 5 of 5 | 0 of 5 | broken | `tests/test_invoices.py::test_field[002-supplier-85]` |",
        "<details><summary>23 tasks without a difference beyond chance",
        "| 1 | 55 % | 52\\.0 -&gt; 63.0 % | 2 | accepted | 3 tasks fixed, none broken |",
        "- step 3, refused: insert\\_after `Use euros.` at `## Totals`: the target was not found",
        "- cost: \\$\u200b1.93",
        "```sh\npytest --skillopt-train -n 2 -k 'invoice and not slow'\n```",
        "`report.html` of run `20260102-030405-ab12`",
    ):
        assert part in body, part


@each_row("limit", [2_000, 5_000, 20_000, 60_000])
@each_row("hostile", [False, True])
def test_body_keeps_within_the_limit_and_points_to_the_rest(
    make_result: MakeResult, limit: int, hostile: bool
) -> None:
    result = make_result(tasks=400, steps=200, hostile=hostile)
    body = render_summary(result, limit)
    assert len(body.encode()) <= limit
    assert body.startswith("## Accepted, but look closer before merging")
    assert "_Shortened to fit._ Transcripts and all figures:" in body or limit == 60_000
    ours = [token.content for token in PARSER.parse(body) if token.type == "html_block"]
    assert sum("<details>" in part for part in ours) == sum("</details>" in part for part in ours)


def test_a_huge_diff_is_cut(make_result: MakeResult) -> None:
    result = make_result()
    body = render_summary(with_skill(result, patch="@@ @@\n" + "+line\n" * 20_000))
    shown = body.count("+line")
    assert 5_000 < shown < 20_000
    assert (
        f"{20_000 - shown:,} more lines of the change do not fit: read them in the patch." in body
    )


@each_row("tasks", [0, 1, 40])
@each_row("mode", ["train", "evaluate", "check", "compare", "aa"])
def test_every_mode_has_a_summary(make_result: MakeResult, mode: str, tasks: int) -> None:
    for status in ("accepted", "unmeasured", "interrupted"):
        summary = render_summary(make_result(mode=mode, status=status, tasks=tasks))
        assert headings(summary)[0] == "h2", status
        assert "What it cost" in summary, status


def test_usage_tells_what_was_paid_and_what_the_cache_answered(make_result: MakeResult) -> None:
    rows = [
        UsageRow(role="target", stage="tape", calls=2, cached=1, input_tokens=900, output_tokens=7),
        UsageRow(role="target", stage="final", cached=1200),
        UsageRow(role="optimizer", stage="reflect", calls=1, cost=0.5),
    ]
    body = render_summary(make_result().model_copy(update={"usage": rows}))
    assert "| target | tape | 2 | 1 | 900 in, 7 out | - |" in body.replace("\\", "")
    assert "| target | final | 0 | 1,200 | 0 in, 0 out | - |" in body.replace("\\", "")
    assert "| optimizer | reflect | 1 | 0 | 0 in, 0 out | $0.50 |" in re.sub(
        r"[\\\u200b]", "", body
    )


def test_a_step_without_a_verdict_says_what_happened(make_result: MakeResult) -> None:
    result = make_result(steps=1)
    step = (
        result.skills[0]
        .steps[0]
        .model_copy(
            update={"verdict": "none", "before": None, "after": None, "reason": "2 edits proposed"}
        )
    )
    body = render_summary(with_skill(result, steps=[step]))
    assert "| 1 | 55 % | 2 edits proposed |\n" in body


def test_settings_read_as_they_are_written(make_result: MakeResult) -> None:
    given = {"write": False, "rollouts": 4, "skill": "", "gate": "strict", "mine": True}
    body = render_summary(make_result().model_copy(update={"settings": given}))
    listed = ["- `write`: `no`", "- `rollouts`: `4`", "- `gate`: `strict`", "- `mine`: `yes`"]
    assert "\n".join(listed) in body


def test_a_request_lists_no_setting_that_has_its_default(make_result: MakeResult) -> None:
    given = {**Settings().to_json(), "patience": 7}
    result = make_result().model_copy(update={"settings": given})
    body = render_summary(result)
    listed = body[body.index("settings that are not the default") :]
    names = set(re.findall(r"^- `(\w+)`: ", listed, re.MULTILINE))
    assert names - {*result.models, *result.versions} == {"patience"}
