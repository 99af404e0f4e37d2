"""No secret reaches the optimizer, and none that it writes itself is kept."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_skillopt.edits.combine import Patch
from pytest_skillopt.edits.reflect import reflect
from pytest_skillopt.edits.update import update
from pytest_skillopt.run.journal import Journal, JournaledModel
from pytest_skillopt.run.result import EditRow

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

KEY = "sk-proj-" + "a1B2c3D4" * 4


def test_whatever_a_prompt_is_made_of_it_holds_no_secret(toy: ModuleType) -> None:
    model = toy.ToyOptimizer()
    record = toy.make_record(
        f"test_it[{KEY}]", "--", doc=f"Calls with {KEY}.", contract=f"Sends {KEY}."
    )
    context = toy.make_context(model, preferences=f"Use {KEY}.", contracts=(f"Sends {KEY}.",))
    reflect([record], context)
    _, _, prompt = model.asked[0]
    assert KEY not in prompt
    assert prompt.count("[redacted]") >= 5


def test_a_row_of_the_report_holds_no_secret(toy: ModuleType) -> None:
    row = EditRow.of(toy.append(f"- Use {KEY}.", reason=f"It saw {KEY}."), "refused", f"no {KEY}")
    assert KEY not in json.dumps([row.content, row.reason, row.why])


def test_a_reply_is_journaled_as_it_is_used(toy: ModuleType, tmp_path: Path) -> None:
    reply = json.dumps({"reasoning": f"saw {KEY}", "edits": []})
    path = tmp_path / "journal.jsonl"

    def ask(model: Any) -> str:
        with Journal(path) as journal:
            form: dict[str, Any] = {"json_schema": {"name": "Edits"}}
            journaled = JournaledModel(model, journal)
            return journaled.complete([], sample="a", response_format=form).text

    first = ask(toy.ToyOptimizer(script=lambda form, messages: reply))
    assert json.loads(first)["reasoning"] == "saw [redacted]"
    assert KEY not in path.read_text()
    again = toy.ToyOptimizer()
    assert ask(again) == first
    assert again.asked == []


def test_the_mark_of_a_secret_does_not_get_into_the_skill(toy: ModuleType) -> None:
    (refusal,) = update(Patch((toy.append("- Use [redacted]."),)), toy.make_context()).refused
    assert "(secret)" in refusal.why
