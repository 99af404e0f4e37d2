from __future__ import annotations

import pytest
from tables import each_row

from pytest_skillopt.skill.edits import Edit, apply
from pytest_skillopt.skill.lint import Linter, allowed, refused
from pytest_skillopt.skill.text import SkillError
from pytest_skillopt.skill.version import Version

SKILL = "---\nname: read-invoices\n---\n\n# Invoices\n\nAnswer with one JSON object.\n"
KEPT = SKILL + "\n<!-- skillopt:keep -->\nNever guess.\n<!-- /skillopt:keep -->\n"


@each_row(
    "text",
    [
        "Use sk\u002dproj\u002dabcdefghij1234567890KLMNOP as the key.",
        "The token is ghp\u005fa1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8.",
        "Take [redacted OPENAI_API_KEY] for it.",
    ],
)
def test_a_secret_is_refused_and_not_shown(text: str) -> None:
    before = Version.from_text(SKILL)
    (found,) = refused(Linter().check(before, apply(before, Edit("append", content=text))))
    assert found.rule == "secret"
    assert "KLMNOP" not in found.excerpt
    assert "N4o5P6" not in found.excerpt


BROKEN = {
    "frontmatter": (SKILL, SKILL.replace("name: ", "license: none\nname: ")),
    "protected": (KEPT, KEPT.replace("guess", "ask")),
    "file-type": ("a\nb\n", "a\r\nb\r\n"),
    "fences": (SKILL, SKILL + "\n```sh\nls\n"),
    "size": (SKILL, SKILL + "word " * 100),
}


@each_row("rule", BROKEN)
def test_a_change_that_damages_the_document_is_refused(rule: str) -> None:
    before, after = map(Version.from_text, BROKEN[rule])
    assert {finding.rule for finding in refused(Linter(max_tokens=100).check(before, after))} == {
        rule
    }


def test_an_unknown_rule_is_an_error_that_lists_the_rules() -> None:
    assert allowed("") == frozenset()
    with pytest.raises(SkillError, match=r"netwrk is not a rule; the rules are .*secret, "):
        allowed("size, netwrk")


def test_the_size_is_bounded_but_may_stay() -> None:
    large = Version.from_text("a" * 400)
    smaller = Version.from_text("a" * 399)
    assert Linter(max_tokens=10).check(large, smaller) == []
