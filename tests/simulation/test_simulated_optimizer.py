"""The simulated optimizer reads the prompts of the real stages and answers in their forms."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from simulation.conventions import HARMFUL, USELESS, read
from simulation.server import parse, respond

from pytest_skillopt.addons.published.merging import Ranking
from pytest_skillopt.addons.published.merging import aggregate_edits as aggregate
from pytest_skillopt.edits.calls import Calls, Edits, Prompts
from pytest_skillopt.edits.combine import Patch
from pytest_skillopt.edits.context import Context
from pytest_skillopt.edits.records import Memory, TaskRecord
from pytest_skillopt.edits.reflect import reflect
from pytest_skillopt.edits.vetting import Vetting
from pytest_skillopt.model.structured import response_format
from pytest_skillopt.model.types import Completion
from pytest_skillopt.settings import Settings
from pytest_skillopt.skill.document import Document
from pytest_skillopt.skill.edits import Edit, apply
from pytest_skillopt.suite.rollouts import Message, Rollout, RolloutRequest
from pytest_skillopt.suite.tasks import SkillTask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic import BaseModel

START = Path(__file__).parents[1] / "data" / "example_skill_start.md"


class Offline:
    """The simulated model without the network between."""

    name = "offline"
    fingerprint = "offline"
    simulated = True

    def __init__(self, model: str) -> None:
        self._model = model

    def complete(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        sample: str,
        stage: str = "",
        task: str = "",
        tools: Sequence[dict[str, Any]] = (),
        response_format: dict[str, Any] | None = None,
    ) -> Completion:
        seed = int(hashlib.sha256(sample.encode()).hexdigest()[:8], 16)
        body = {"model": self._model, "messages": list(messages), "seed": seed}
        return Completion(respond(parse({**body, "response_format": response_format}))[0])


def context(model: str = "sim-steady", **settings: Any) -> Context:
    document, made = Document.from_bytes(START.read_bytes()), Settings.make(**settings)
    return Context(
        document=document,
        settings=made,
        calls=Calls(Offline(model), Prompts(), workers=1),
        memory=Memory(),
        vetting=Vetting([], document, made),
    )


def failed(
    message: str,
    *,
    about: str = "",
    feedback: str = "",
    user: str = "",
    task: str = "tests/t.py::t",
) -> TaskRecord:
    request = RolloutRequest(task, "", "SKILL.md", "", "", "train", 0)
    rollout = Rollout(
        request,
        "failed",
        score=0.0,
        message=message,
        feedback=feedback,
        transcript=(Message("user", user), Message("assistant", "{}")),
    )
    return TaskRecord(SkillTask(task, "", "SKILL.md", "", doc=about), (rollout,))


def asked(form: type[BaseModel], material: str, instructions: str = "At most 4 edits.") -> Any:
    messages = [
        {"role": "system", "content": instructions},
        {"role": "user", "content": material},
    ]
    body = {"model": "sim-steady", "messages": messages, "response_format": response_format(form)}
    return form.model_validate_json(respond(parse(body))[0])


def proposed(record: TaskRecord, model: str = "sim-steady", draws: int = 12) -> list[Edit]:
    """Edits of several analyst calls about one failed task."""
    patches = reflect([record], context(model).at(repeat=draws))
    return [edit for patch in patches for edit in patch.edits]


@pytest.mark.parametrize(
    ("message", "more", "name", "value"),
    [
        ("total: expected -126.14, got 126.14", {}, "credit_sign", "negative"),
        ("AssertionError: x\nassert 12.5 == -12.5", {}, "credit_sign", "negative"),
        ("line_count: expected 2, got 3", {}, "lines", "goods"),
        ("assert '' is None", {}, "missing", "null"),
        (
            "issue_date: expected '2025-06-04', got '2025-04-06'",
            {"user": "Date: 04/06/2025"},
            "date_order",
            "day_first",
        ),
        ("supplier: expected 'Hill', got 'Hill Ltd.'", {}, "supplier", "bare"),
        ("po_number: expected '450', got 'PO-4 50'", {}, "order_number", "digits"),
    ],
)
def test_a_rule_is_derived_from_what_was_wanted_and_what_came(
    message: str, more: dict[str, str], name: str, value: str
) -> None:
    edits = proposed(failed(message, **more))
    assert edits
    assert all(read(edit.content)[name] == {value} for edit in edits)


def test_every_proposed_edit_fits_the_document() -> None:
    document = context().document
    edits = proposed(failed("total: expected -1.5, got 1.5"), draws=30)
    assert {edit.op for edit in edits} == {"append", "insert_after"}
    assert all(apply(document, edit) != document for edit in edits)


def test_a_tool_is_named_where_the_failure_names_it() -> None:
    record = failed(
        "assert '2025-02-15' == '2025-02-14'",
        feedback="due_date: expected '2025-02-14', got '2025-02-15'. Use the add_days tool.",
    )
    edits = proposed(record)
    assert edits
    assert all("`add_days`" in edit.content for edit in edits)


def test_a_tool_is_proposed_for_the_field_that_needs_it() -> None:
    sign = failed("total: expected -1.5, got 1.5", task="tests/t.py::sign")
    due = failed(
        "",
        feedback="due_date: expected '2025-02-14', got '2025-02-15'. Use the add_days tool.",
        task="tests/t.py::due",
    )
    patches = reflect([sign, due], context().at(repeat=9, minibatch=2))
    contents = [p.content for patch in patches for p in patch.edits]
    tools = [content for content in contents if "add_days" in content]
    assert tools
    assert all("due date" in content for content in tools)
    assert {frozenset(read(c)["credit_sign"]) for c in contents if c not in tools} == {
        frozenset({"negative"})
    }


def test_a_wrong_rule_in_the_document_is_replaced() -> None:
    wrong = "- Amounts of a credit note are positive.\n"
    document = apply(context().document, Edit("append", content=wrong))
    at = context().at(document=document, repeat=5)
    (edit, *_) = reflect([failed("total: expected -1.5, got 1.5")], at)[0].edits
    assert (edit.op, edit.target) == ("replace", wrong.strip())


def test_what_the_document_says_already_is_not_proposed_again() -> None:
    assert proposed(failed("currency: expected 'EUR', got '€'")) == []


def test_wordings_that_were_tried_are_not_repeated() -> None:
    record = failed("total: expected -1.5, got 1.5")
    at = context().at(repeat=20)
    first = {p.content for patch in reflect([record], at) for p in patch.edits}
    gone = first.pop()
    at.memory.remember(Edit("append", content=gone), "rejected", "no task improved")
    again = {p.content for patch in reflect([record], at) for p in patch.edits}
    assert again == first


def test_a_description_is_used_where_nothing_else_is_shown() -> None:
    record = failed("", about="Our suppliers are European: the day comes before the month.")
    patches = reflect([record], context(feedback="score").at(repeat=12))
    contents = [p.content for patch in patches for p in patch.edits]
    assert contents
    assert all(read(content)["date_order"] == {"day_first"} for content in contents)


def test_useless_harmful_and_leaking_edits_come_by_chance() -> None:
    edits = proposed(failed("total: expected -87.65, got 87.65"), "sim", draws=200)
    contents = [edit.content.removeprefix("- ") for edit in edits]
    assert 0.15 < sum(c in USELESS for c in contents) / 200 < 0.35
    assert 0.06 < sum(c in HARMFUL for c in contents) / 200 < 0.18
    assert 0.01 < sum("-87.65" in c for c in contents) / 200 < 0.06


def test_a_steady_optimizer_proposes_nothing_but_rules() -> None:
    contents = {e.content for e in proposed(failed("total: expected -87.65, got 87.65"))}
    assert all(read(c)["credit_sign"] == {"negative"} for c in contents)


def proposals(*contents: str) -> list[Edit]:
    return [Edit("append", content=content) for content in contents]


def test_a_merge_keeps_one_edit_for_each_rule_and_drops_the_useless_ones_first() -> None:
    many = proposals(
        USELESS[0],
        "- Amounts of a credit note are negative.",
        "- On a credit note write every amount with a minus sign.",
        "- Give the supplier's name without its legal form.",
    )
    merged = aggregate([Patch((p,)) for p in many], context().at(budget=2))
    sign, supplier = (read(p.content) for p in merged.edits)
    assert sign["credit_sign"] == {"negative"}
    assert supplier["supplier"] == {"bare"}


def numbered(*contents: str) -> str:
    return "# Edits\n\n" + "\n\n".join(
        f"## Edit {i}: append\nFrom failure analysts, support 1, asked for by 1 tasks.\n"
        f"Content:\n[data ab12]\n{content}\n[end of data ab12]"
        for i, content in enumerate(contents)
    )


RULE = "Give the supplier's name without its legal form."


def test_a_ranking_puts_concrete_rules_first() -> None:
    answer = asked(Ranking, numbered(USELESS[0], RULE), "Choose the 1 that help most.")
    assert answer.selected_indices == [1]


def test_a_leaking_edit_comes_back_in_general_terms() -> None:
    leaking = "For Hill Ltd. drop the legal form from the supplier."
    material = numbered(leaking) + "\n\n# Terms to do without\n\n- edit 0: hill, suffix"
    (edit,) = asked(Edits, material).edits
    assert read(edit.content)["supplier"] == {"bare"}
    assert "hill" not in edit.content.lower()
    assert "suffix" not in edit.content


def test_a_differing_member_of_an_object_is_found() -> None:
    message = "expected {'total': 1.0, 'vat': 2.0}, got {'total': '1.0', 'vat': 2.0}"
    document = apply(
        context().document, Edit("append", content="- Quote amounts exactly as printed.\n")
    )
    patches = reflect([failed(message)], context().at(document=document, repeat=5))
    contents = [edit.content for patch in patches for edit in patch.edits]
    assert contents
    assert all(read(content)["amounts"] == {"number"} for content in contents)
