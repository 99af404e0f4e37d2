"""The text of a request: what is vouched for, then the report, inert."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from markdown_it import MarkdownIt
from mdit_py_plugins.footnote import footnote_plugin
from tables import each_row

from pytest_skillopt.plugins.propose.body import MAX_BODY, compose, title
from pytest_skillopt.plugins.propose.validate import CheckedSkill
from pytest_skillopt.run.result import Arm, EditRow, SkillResult, TaskRow
from pytest_skillopt.skill.lint import Finding
from pytest_skillopt.skill.text import Text
from pytest_skillopt.skill.version import Version

if TYPE_CHECKING:
    import pytest
    from markdown_it.token import Token

ROWS = (
    TaskRow(id="t::a", split="train", before=Arm(passed=1, n=4), after=Arm(passed=4, n=4)),
    TaskRow(id="t::b", split="val", before=Arm(passed=3, n=4), after=Arm(passed=2, n=4)),
)


def skill(
    said: str = "better", *, path: str = "skills/SKILL.md", after: bytes = b"a\n", **changes: Any
) -> CheckedSkill:
    """A skill that passed the checks; ``said`` stands wherever the training can put a text."""
    edit = EditRow(op="append", content=said, reason=said, tasks=[said], status="accepted")
    told = SkillResult(
        path=path,
        name=said,
        before="0" * 64,
        after="1" * 64,
        status="accepted",
        reason=said,
        patch=said,
        edits=[edit],
    )
    return CheckedSkill(
        "invoices",
        path,
        ROWS,
        Version.from_bytes(b"x\n"),
        Version.from_bytes(after),
        told,
        **changes,
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


@each_row(
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
    rows = (ROWS[0].model_copy(update={"id": hostile}),)
    forged = replace(skill(hostile, after=hostile.encode()), rows=rows)
    text = compose(forged)
    assert active not in outside_of_code(text)
    assert "image" not in [token.type for token in flat(text)]


@each_row("name", ["`@victim`.md", "``@victim``.md", "![x](y).md", "closes #12.md"])
def test_the_name_of_a_file_is_neither_a_mention_nor_markup(name: str) -> None:
    """A new file beside the skill, in the part that is vouched for."""
    after = Version.from_bytes(b"x\n") | {f"references/{name}": Text(b"new\n")}
    for forged in (replace(skill(), after=after), skill(path=f"skills/{name}")):
        text = compose(forged)
        for active in ("@victim", "#12"):
            assert active not in text, "not even in code: GitLab looks there"
        assert "victim" not in outside_of_code(text)
        assert "image" not in [token.type for token in flat(text)]


@each_row("said", ["Closes #12", "fixes ABC-12", "Resolves https://x.example/1", "x [skip ci]"])
def test_words_that_close_an_issue_or_skip_a_ci_act_nowhere(said: str) -> None:
    """GitLab looks for them in the whole text, in code blocks, too; a squashed commit has it."""
    rows = (ROWS[0].model_copy(update={"id": f"t::a[{said}]"}),)
    text = compose(replace(skill(said, after=f"{said}\n".encode()), rows=rows))
    assert said not in text
    assert said in text.replace("\u200b", "").replace("\\", "")


def test_no_text_of_others_starts_a_line() -> None:
    """A squashed commit has the text of its request, whose last lines may be trailers."""
    said = "Co-authored-by: Mallory <m@x.example>"
    rows = (ROWS[0].model_copy(update={"id": said}),)
    text = compose(replace(skill(said, after=f"{said}\n".encode()), rows=rows))
    assert [line for line in text.split("\n") if line.startswith("Co-")] == []


def test_secrets_of_the_environment_are_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    said = "the key is sk-test-0123456789"
    text = compose(skill(said, after=said.encode()))
    assert "sk-test-0123456789" not in text.replace("\u200b", "")


def test_what_is_vouched_for_comes_first() -> None:
    text = compose(skill("```\nnever closed"), simulated=True, run_url="https://ci.example/1")
    shown = outside_of_code(text)
    assert "from 50.0 % to 75.0 %: 2 tasks, 16 rollouts, computed from the counts" in shown
    assert "as the mean over the tasks" in shown
    assert "The model was simulated." in shown
    assert text.index("50.0 %") < text.index("## Not checked") < text.index("never closed")


def test_what_the_training_says_stands_under_its_heading_alone() -> None:
    """A figure, a state of a task or a change that only the result has is not vouched for."""
    text = compose(skill("90.0 % to 99.0 %, fixed"))
    checked, unchecked = text.split("## Not checked: what the training says\n")
    assert "99.0" not in checked
    assert "fixed" not in checked
    assert "90.0 % to 99.0 %, fixed" in unchecked


def test_change_and_counts_are_computed() -> None:
    """One task passes less often, whatever the result calls it."""
    text = compose(skill(after=b"x\nAnswer with a joke.\n"))
    checked = text.split("## Not checked")[0]
    assert "\n x\n+Answer with a joke.\n" in checked
    fewer, more = re.findall(r"<summary>(.*)</summary>\n\n.*\n.*\n(.*)\n", checked)
    assert fewer == ("1 task with fewer passes", "| 3 of 4 | 2 of 4 | `t::b` |")
    assert more == ("1 task with more passes", "| 1 of 4 | 4 of 4 | `t::a` |")


def test_the_arms_stand_side_by_side_with_what_is_unknown() -> None:
    """Without the skill one task was measured, and met an error; of the other nothing is known."""
    known = ROWS[0].model_copy(update={"none": Arm(passed=1, n=4, errors=1)})
    checked = compose(replace(skill(), rows=(known, ROWS[1]))).split("## Not checked")[0]
    assert "|  | pass rate | passed | failed | unknown |" in checked
    checked = checked.replace("\\", "")
    rows = re.findall(r"^\| (without the skill|base|edited) \| (\d.*) \|$", checked, re.MULTILINE)
    assert rows == [
        ("without the skill", "25.0 % | 1 | 3 | 2"),
        ("base", "50.0 % | 4 | 4 | 0"),
        ("edited", "75.0 % | 6 | 2 | 0"),
    ]
    assert "| 1 of 4 | 1 of 4 | 4 of 4 | `t::a` |" in checked


def test_the_rule_of_the_base_branch_is_named() -> None:
    text = compose(replace(skill(), before=Version.from_bytes(b"long\n"), rule="shorten"))
    said = "The rule of the search shorten judged it, as the base branch says: the skill gets "
    assert f"{said}shorter, from 5 to 2 characters" in text


def test_long_text_is_cut_and_says_so() -> None:
    rows = [ROWS[0].model_copy(update={"id": f"t::{'x' * 200}{n}"}) for n in range(500)]
    long = replace(skill("*" * 1_000, after=b"@a" * 1_000 + b"\nline\n" * 20_000), rows=rows)
    names = {f"references/{'x' * 200}{n}.md": Text(b"x\n") for n in range(150)}
    long = replace(long, after=long.after | names)
    warnings = tuple(Finding("added", "warn", "a long line " * 30) for _ in range(200))
    unchecked = long.unchecked.model_copy(update={"edits": long.unchecked.edits * 100})
    body = compose(replace(long, warnings=warnings, unchecked=unchecked))
    assert len(body.encode()) <= MAX_BODY
    shown = outside_of_code(body)
    assert re.search(r"\d+ more lines of the change do not fit: read them in the branch", shown)
    checked, rest = shown.split("Not checked: what the training says", 1)
    assert len(re.findall(r"and \d+ more", checked)) == 3, "files, warnings and tasks"
    assert re.search(r"and \d+ more", rest), "edits"


def test_title_is_one_plain_line() -> None:
    assert title(skill()) == "Train the skill invoices: pass rate 50.0 % to 75.0 %"
