from __future__ import annotations

from typing import TYPE_CHECKING

from tables import each_row

from pytest_skillopt.rollouts.rollout import InfraError, Message, Rollout, RolloutRequest
from pytest_skillopt.rollouts.runner import cleaned

if TYPE_CHECKING:
    import pytest

REQUEST = RolloutRequest("t", "s", "SKILL.md", "v", "m", "train", 0)


@each_row(
    ("text", "expected"),
    [
        ("<Reply object at 0x7fba86b84fd0>", "<Reply object at 0x...>"),
        ("colour 0xff00 stays", "colour 0xff00 stays"),
        ("/tmp/pytest-of-ann/pytest-12/test_a0/x", "/tmp/pytest-of-ann/pytest-N/test_a0/x"),
        ("/tmp/pytest-of-ann/pytest-3/popen-gw1/test_a0", "/tmp/pytest-of-ann/pytest-N/test_a0"),
        ("plain", "plain"),
    ],
)
def test_what_differs_in_every_process_is_taken_out(text: str, expected: str) -> None:
    rollout = cleaned(
        Rollout(
            REQUEST,
            "failed",
            message=text,
            feedback=text,
            output=text,
            transcript=(Message("tool", text),),
        )
    )
    shown = (rollout.message, rollout.feedback, rollout.output, rollout.transcript[0].content)
    assert shown == (expected,) * 4


def test_secrets_are_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "tok-0123456789")
    error = InfraError("provider", "tok-0123456789 was refused")
    rollout = cleaned(Rollout(REQUEST, "error", output="tok-0123456789", error=error))
    assert "0123456789" not in str(rollout.to_json())
