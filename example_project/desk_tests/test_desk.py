"""Conversations of the support desk: a model plays the customer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skill_task(skill="skills/support-desk/SKILL.md")
PLAN = "Tell a fact only if you are asked for it. Agree if you are asked whether you are sure."


def refund(order: str) -> str:
    """Pay the price of an order back."""
    return f"order {order} is refunded"


def cancel(order: str) -> str:
    """Cancel an order that was not sent yet."""
    return f"order {order} is cancelled"


def change_address(order: str, postcode: str) -> str:
    """Send an order to another address."""
    return f"order {order} goes to {postcode}"


def hand_over(reason: str) -> str:
    """Have a person call the customer."""
    return "a colleague will call within the hour"


@pytest.fixture
def desk(skill_agent: Any, skill_user: Any) -> Callable[..., Any]:
    """Write to the desk as a customer who knows some facts."""
    tools = [refund, cancel, change_address, hand_over]

    def write(opening: str, **knows: str) -> Any:
        facts = {name.replace("_", " "): value for name, value in knows.items()}
        return skill_user(skill_agent, opening, knows=facts, plan=PLAN, tools=tools)

    return write


@pytest.mark.parametrize(
    ("opening", "order"),
    [
        ("I want my money back.", "A-17"),
        ("Please refund my kettle, it leaks.", "B-204"),
        ("The shoes do not fit, can I have a refund?", "C-9"),
    ],
    ids=["plain", "kettle", "shoes"],
)
def test_refund(desk: Callable[..., Any], opening: str, order: str) -> None:
    """Finds out which order is meant before it is paid back."""
    talk = desk(opening, order_number=order)
    assert talk.asked_for("order number"), "the desk should ask for the order number"
    assert talk.tool("refund").args == {"order": order}


@pytest.mark.parametrize(
    ("opening", "order"),
    [
        ("Please cancel my order.", "D-31"),
        ("I bought the lamp twice, cancel one.", "E-8"),
        ("Can I still cancel? I found it cheaper.", "F-115"),
    ],
    ids=["plain", "twice", "cheaper"],
)
def test_cancel(desk: Callable[..., Any], opening: str, order: str) -> None:
    """Makes sure, since a cancelled order cannot be brought back."""
    talk = desk(opening, order_number=order)
    assert talk.asked_for("order number"), "the desk should ask for the order number"
    assert talk.tool("cancel").args == {"order": order}
    questions = [m["content"] for m in talk.messages if m["role"] == "assistant"]
    sure = [said for said in questions if order in said and "?" in said]
    assert sure, "the desk should ask whether the customer is sure before it cancels"


@pytest.mark.parametrize(
    ("opening", "order", "postcode"),
    [
        ("I have moved, please send it to my new address.", "G-2", "10115"),
        ("My address is wrong on the order.", "H-77", "20095"),
        ("Send it to my office address.", "J-40", "80331"),
    ],
    ids=["moved", "wrong", "office"],
)
def test_address(desk: Callable[..., Any], opening: str, order: str, postcode: str) -> None:
    """Asks for all that the parcel service wants to know."""
    talk = desk(opening, order_number=order, postcode=postcode)
    assert talk.asked_for("order number"), "the desk should ask for the order number"
    assert talk.asked_for("postcode"), "the desk should ask for the postcode"
    assert talk.tool("change_address").args == {"order": order, "postcode": postcode}


@pytest.mark.parametrize(
    "opening",
    [
        "This is the third time that I complain!",
        "I want to complain about the driver.",
        "Is this where complaints go? Nobody ever answers.",
    ],
    ids=["third-time", "driver", "nobody"],
)
def test_complaint(desk: Callable[..., Any], opening: str) -> None:
    """Leaves those who are angry to a person."""
    talk = desk(opening, order_number="K-1")
    assert talk.tool("hand_over").result, "a complaint should be handed over"
    assert not talk.asked_for("order number"), "a complaint should be handed over at once"
