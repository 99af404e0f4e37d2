from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tables import each_row

from pytest_skillopt.run.result import SCHEMA, Result

MakeResult = Callable[..., Result]

DOCS = Path(__file__).parents[2] / "docs"


def test_published_schema_is_the_one_of_the_code() -> None:
    published = json.loads((DOCS / "result.schema.json").read_text(encoding="utf-8"))
    assert published == Result.model_json_schema(by_alias=True), (
        "write the new schema with: python -c 'import json; "
        "from pytest_skillopt.run.result import Result; "
        "print(json.dumps(Result.model_json_schema(by_alias=True), indent=1))' "
        "> docs/result.schema.json"
    )


def test_the_schema_says_what_the_fields_mean() -> None:
    schema = Result.model_json_schema(by_alias=True)
    step = schema["$defs"]["StepRow"]["properties"]
    assert step["before"]["description"].startswith("Val pass rate")
    assert all(d.get("description") for d in schema["$defs"].values())
    assert f"`{SCHEMA}`" in (DOCS / "reports.md").read_text(encoding="utf-8")


@each_row("mode", ["train", "evaluate", "check", "compare", "aa"])
def test_a_result_survives_being_written_and_read(make_result: MakeResult, mode: str) -> None:
    result = make_result(mode=mode, hostile=True)
    assert Result.load(result.dump()) == result
    assert json.loads(result.dump())["schema"] == SCHEMA


def test_a_field_of_another_version_is_left_out(make_result: MakeResult) -> None:
    result = make_result()
    data = json.loads(result.dump())
    data["surprise"] = 1
    for task in data["skills"][0]["tasks"]:
        task["marks"] = ["slow"]
    assert Result.load(json.dumps(data)) == result
    del data["run"]
    with pytest.raises(ValueError, match="run: Field required"):
        Result.load(json.dumps(data))


@each_row("number", ["NaN", "1e400", f"1{'0' * 320}"])
def test_a_number_that_no_measurement_is_makes_no_result(
    make_result: MakeResult, number: str
) -> None:
    text = make_result().dump()
    for name in ("seconds", "passed", "rate"):
        wrong, times = re.subn(rf'("{name}": )[-0-9.e]+', rf"\g<1>{number}", text)
        assert times, name
        with pytest.raises(ValueError, match=f"{number[:20]} is not a measurement"):
            Result.load(wrong)
