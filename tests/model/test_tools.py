from __future__ import annotations

import enum
import functools  # noqa: TC003 - resolved at run time
import subprocess
import sys
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from tables import each_row

from pytest_skillopt.model.tools import make_tool, make_tools
from pytest_skillopt.model.types import CapReached


class Color(enum.Enum):
    RED = "red"


class Point(BaseModel):
    x: int
    title: str = ""


@dataclass
class Box:
    width: float


def lookup(
    order: str,
    limit: int = 3,
    kind: Literal["open", "closed"] = "open",
    note: str | None = None,
) -> list[str]:
    """Look an order up.

    The number is as printed.
    """
    return [f"{order}/{limit}/{kind}/{note}"]


def never(awaitable: Any) -> Any:
    raise AssertionError("nothing to await")


def call(function: Any, arguments: str) -> str:
    return make_tool(function).call(arguments, never)


def test_a_tool_is_declared_from_signature_hints_and_docstring() -> None:
    assert make_tool(lookup).declaration() == {
        "type": "function",
        "function": {
            "name": "lookup",
            "description": "Look an order up.\n\nThe number is as printed.",
            "parameters": {
                "type": "object",
                "additionalProperties": False,
                "required": ["order"],
                "properties": {
                    "order": {"type": "string"},
                    "limit": {"type": "integer", "default": 3},
                    "kind": {"type": "string", "enum": ["open", "closed"], "default": "open"},
                    "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
                },
            },
        },
    }


def test_names_that_pydantic_keeps_for_itself_are_fine() -> None:
    def copy(model_config: int, schema: int, _private: int, json: int) -> int:
        return model_config + schema + _private + json

    properties = make_tool(copy).declaration()["function"]["parameters"]["properties"]
    assert list(properties) == ["model_config", "schema", "_private", "json"]
    assert call(copy, '{"model_config": 1, "schema": 2, "_private": 3, "json": 4}') == "10"


def test_structured_parameters_reach_the_function_as_objects() -> None:
    def draw(point: Point, box: Box, color: Color, names: list[str]) -> str:
        return f"{point.x} {box.width} {color} {names}"

    arguments = '{"point": {"x": 1}, "box": {"width": 2}, "color": "red", "names": ["a"]}'
    assert call(draw, arguments) == "1 2.0 Color.RED ['a']"
    declared = make_tool(draw).declaration()["function"]["parameters"]
    assert set(declared["$defs"]["Point"]["properties"]) == {"x", "title"}


def test_annotated_parameters_carry_their_description() -> None:
    def find(name: Annotated[str, Field(description="as printed", min_length=2)]) -> str:
        return name

    found = make_tool(find).declaration()["function"]["parameters"]["properties"]["name"]
    assert found["description"] == "as printed"
    assert call(find, '{"name": "x"}').startswith("Error: bad arguments: name:")


def test_methods_and_objects_that_can_be_called_work() -> None:
    class Shop:
        def price(self, item: str, *, count: int = 1) -> str:
            return f"{item} x{count}"

    assert call(Shop().price, '{"item": "nut", "count": 3}') == "nut x3"

    class Increment:
        def __call__(self, a: int) -> int:
            return a + 1

    assert make_tool(Increment()).name == "Increment"
    assert call(Increment(), '{"a": 1}') == "2"


@each_row("arguments", ["", "{}", " \n"])
def test_a_tool_without_parameters_takes_no_arguments(arguments: str) -> None:
    assert call(lambda_free, arguments) == "null"


def lambda_free() -> None:
    return None


@each_row(
    ("arguments", "words"),
    [
        ("{}", "order: Missing required argument"),
        ('{"order": "1", "limit": "many"}', "limit: Input should be a valid integer"),
        ('{"order": "1", "colour": 2}', "colour: Unexpected keyword argument"),
        ('{"order": "1"', "Invalid JSON"),
        ("[1]", "bad arguments"),
    ],
)
def test_bad_arguments_are_told_to_the_model(arguments: str, words: str) -> None:
    result = call(lookup, arguments)
    assert result.startswith("Error: bad arguments: ")
    assert words in result


def test_what_a_tool_raises_is_told_to_the_model() -> None:
    def fail() -> None:
        raise KeyError("no such order")

    assert call(fail, "{}") == "Error: KeyError: 'no such order'"


@each_row("error", [AssertionError("wrong"), CapReached("cap")])
def test_a_failed_assertion_and_a_fault_of_a_model_are_not_the_tools_answer(
    error: Exception,
) -> None:
    def check() -> None:
        raise error

    with pytest.raises(type(error)):
        call(check, "{}")


def test_a_skip_in_a_tool_skips_the_test() -> None:
    def check() -> None:
        pytest.skip("no database")

    with pytest.raises(pytest.skip.Exception):
        call(check, "{}")


@each_row(
    ("value", "text"),
    [
        ("plain ü", "plain ü"),
        (None, "null"),
        ({"a": [1, "ü"]}, '{"a": [1, "ü"]}'),
        (Point(x=1), '{"x":1,"title":""}'),
        (Color, "\"<enum 'Color'>\""),
    ],
)
def test_results_are_told_as_text(value: object, text: str) -> None:
    def give() -> object:
        return value

    assert call(give, "{}") == text


def variadic(*args: int) -> None: ...


def keywords(**named: int) -> None: ...


def positional(a: int, /) -> None: ...


def unknowable(a: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def opaque(a: functools.partial[int]) -> None: ...


@each_row(
    ("function", "words"),
    [
        (variadic, "only named parameters"),
        (keywords, "only named parameters"),
        (positional, "only named parameters"),
        (unknowable, "Missing"),
        (opaque, "partial"),
        (lambda: 1, "plain name"),
        ("text", "plain name"),
    ],
)
def test_what_cannot_be_declared_is_refused_by_name(function: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        make_tool(function)


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two tools are named 'lookup'"):
        make_tools([lookup, lookup])


def test_a_worker_without_tools_needs_no_pydantic() -> None:
    """On another machine, under another Python, it may have been built for another one."""
    program = """
import sys
sys.modules["pydantic"] = None
import pytest_skillopt.model.agent, pytest_skillopt.rollouts.worker_loop
"""
    subprocess.run([sys.executable, "-c", program], check=True)
