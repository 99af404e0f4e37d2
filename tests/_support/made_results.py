"""Results as a run would leave them, of any size, mode and outcome."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Literal

import pytest

from pytest_skillopt.rollouts.rollout import Message
from pytest_skillopt.run.result import (
    Arm,
    Comparison,
    EditRow,
    Rate,
    Result,
    RolloutSample,
    SkillResult,
    StepRow,
    TaskRow,
    UsageRow,
)

MakeResult = Callable[..., Result]
Change = Literal["fixed", "likely", "broken", "undecided", "same"]

PATH = "skills/invoices/SKILL.md"
RULES = [
    ("Write amounts with a point and two decimals.", "Amounts came back as '1.204,50'."),
    ("Write dates as YYYY-MM-DD.", "Dates were copied as they stood on the invoice."),
    ("Leave a field out when the invoice does not state it.", "Missing fields were guessed."),
]

HOSTILE = [
    "<script>document.title='owned'</script><img src=x onerror=alert(1)>",
    "</td></table></details></body></html>",
    "W" * 5000,
    "\u202eesrever\u202c \x1b[31mred\x1b[0m \x07 \x9b2J nul\x00 \u2066isolate\u2069",
    "fixes #1, @octocat closes https://example.com/issues/2 www.example.com GH-3",
    "````````````\n```\n~~~~\n# heading\n| a | b |\n<!-- -->\n<details open>",
    "{{ 7 * 7 }} {% raw %} & &amp; \"quoted\" 'single' `tick`",
    "汉字" * 400,
]


def patch(path: str = PATH) -> str:
    lines = [f"--- a/{path}\n+++ b/{path}\n"]
    for i, (rule, _) in enumerate(RULES):
        line = 12 + 20 * i
        lines.append(
            f"@@ -{line},3 +{line},4 @@\n ## Section {i + 1}\n \n"
            f"-Be careful with every field.\n+{rule}\n+Check it once before you answer.\n \n"
        )
    return "".join(lines)


def rate(tasks: list[TaskRow], side: str) -> Rate:
    arms = [arm for task in tasks if (arm := getattr(task, side)) is not None and arm.n]
    if not arms:
        return Rate(rate=0, low=0, high=0, tasks=0, samples=0)
    mean = sum(arm.passed / arm.n for arm in arms) / len(arms)
    samples = sum(arm.n for arm in arms)
    half = 1.96 * (mean * (1 - mean) / samples) ** 0.5
    return Rate(
        rate=mean,
        low=max(mean - half, 0),
        high=min(mean + half, 1),
        tasks=len(arms),
        samples=samples,
    )


def comparison(tasks: list[TaskRow]) -> Comparison | None:
    if not tasks:
        return None
    compared = any(task.after is not None for task in tasks)
    return Comparison(
        before=rate(tasks, "before"), after=rate(tasks, "after") if compared else None
    )


def task_row(rng: random.Random, i: int, *, compared: bool, hostile: bool) -> TaskRow:
    evil = f"[{rng.choice(HOSTILE)}]" if hostile else f"[{i:03d}-supplier-{rng.randrange(99)}]"
    was = rng.choice([0, 0, 1, 2, 3, 5, 5])
    now = rng.choice([was, 5, 5, 5, 4, 0]) if compared else was
    change: Change = "fixed" if now - was >= 4 else "broken" if was - now >= 4 else "same"
    text = rng.choice(HOSTILE) if hostile else f"Invoice no. {i}\nTotal due: EUR 1.204,50"
    before = RolloutSample(
        outcome="failed" if was < 5 else "passed",
        message=rng.choice(HOSTILE) if hostile else "assert '1.204,50' == '1204.50'",
        transcript=[
            Message(role="system", content="You extract data from supplier invoices."),
            Message(role="user", content=f"Extract the total as JSON.\n\n{text}"),
            Message(role="assistant", content='```json\n{"total": "1.204,50"}\n```'),
        ],
    )
    after = RolloutSample(
        outcome="passed" if now else "failed",
        transcript=[
            *before.transcript[:2],
            Message(role="assistant", content='{"total": "1204.50"}'),
        ],
    )
    return TaskRow(
        id=f"tests/test_invoices.py::test_field{evil}",
        split=("train", "train", "val", "test")[i % 4],
        must_pass=i % 17 == 3,
        before=Arm(passed=was, n=5, score=was / 5, sample=before),
        after=Arm(passed=now, n=5, score=now / 5, sample=after) if compared else None,
        change=change,
        flaky=0 < was < 5,
        calls=10,
        tokens=4200 + i,
        cost=0.0021,
    )


def step_rows(n: int, reason: str | None = None) -> list[StepRow]:
    rows = []
    current = 0.52
    for i in range(1, n + 1):
        accepted = i % 3 == 1
        after = min(current + (0.11 if accepted else -0.04), 0.97)
        rows.append(
            StepRow(
                step=i,
                epoch=1 + i // 4,
                candidate=f"{i:064x}",
                edits=1 + i % 3,
                train=min(0.5 + i * 0.05, 1.0),
                before=current,
                after=after,
                verdict="accepted" if accepted else "rejected",
                reason=reason
                or ("3 tasks fixed, none broken" if accepted else "no task improved beyond chance"),
                gate="sequential",
            )
        )
        current = after if accepted else current
    return rows


def edit_rows(hostile: bool) -> list[EditRow]:
    rows = [
        EditRow(op="replace", target="Be careful with every field.", content=rule, reason=reason,
                tasks=["tests/test_invoices.py::test_field[0-supplier-nordwind]"], support=3,
                step=1 + i, status="accepted")
        for i, (rule, reason) in enumerate(RULES)
    ]  # fmt: skip
    rows += [
        EditRow(op="append", content="Think step by step.", reason="Answers were hasty.", step=2,
                status="rejected", why="no task improved beyond chance"),
        EditRow(op="insert_after", target="## Totals", content="Use euros.", step=3,
                status="refused", why="the target was not found"),
    ]  # fmt: skip
    if hostile:
        rows += [
            EditRow(op="append", target=text, content=text, reason=text, tasks=[text], why=text)
            for text in HOSTILE
        ]
    return rows


@pytest.fixture
def make_result() -> MakeResult:
    return build


def build(
    *,
    mode: str = "train",
    status: str = "accepted",
    tasks: int = 40,
    steps: int = 6,
    hostile: bool = False,
    skills: int = 1,
    simulated: bool = False,
    **fields: Any,
) -> Result:
    rng = random.Random(tasks)
    compared = mode in ("train", "check", "compare") and status not in ("unmeasured",)
    rows = [task_row(rng, i, compared=compared, hostile=hostile) for i in range(tasks)]
    accepted = status == "accepted"
    change = patch() if accepted else ""
    if hostile and change:
        change += "@@ -9 +9 @@\n" + "".join(f"+{t}\n" for t in HOSTILE)
    evil = " ".join(HOSTILE) if hostile else None
    reason = (
        evil
        or {
            "accepted": "the suite's pass rate rose on fresh samples",
            "rejected": "on fresh samples the suite's pass rate did not rise",
            "unchanged": "no candidate passed the gate in 6 steps",
            "unmeasured": "7 of 40 rollouts met a rate limit; 12 samples are missing",
            "interrupted": "interrupted after 3 steps",
            "measured": "every task was measured",
        }[status]
    )
    skill = SkillResult(
        path=PATH,
        name="invoice-extraction",
        before="a" * 64,
        after=("b" if accepted else "a") * 64,
        status=status,  # type: ignore[arg-type]
        reason=reason,
        written=accepted,
        patch=change,
        suite=comparison([row for row in rows if row.split != "test"]),
        val=comparison([row for row in rows if row.split == "val"]),
        test=comparison([row for row in rows if row.split == "test"]),
        noise_floor=0.019,
        verdict={"decision": status, "gate": "sequential", "validated": True, "alpha": 0.05},
        steps=step_rows(steps, evil) if mode == "train" else [],
        edits=edit_rows(hostile) if mode == "train" else [],
        tasks=rows,
    )
    return Result(
        mode=mode,
        run="20260102-030405-ab12",
        started="2026-01-02T03:04:05Z",
        seconds=192.4,
        status=status,  # type: ignore[arg-type]
        reason=reason,
        command=["pytest", "--skillopt-train", "-n", "2", "-k", "invoice and not slow"],
        skills=[skill.model_copy(update={"path": f"skills/s{i}/SKILL.md"} if i else {})
                for i in range(skills)],
        models={"target": "openai:gpt-5-mini", "optimizer": "openai:gpt-5"},
        simulated=simulated,
        versions={"python": "3.11.2", "pytest": "9.2.0", "pytest-skillopt": "0.1.0"},
        settings={"rollouts": 3, "gate": "sequential", "seed": 0, "skill": ""},
        usage=[
            UsageRow(role="target", stage="rollout", calls=1120, cached=310, input_tokens=780_000,
                     output_tokens=60_000, cost=1.61),
            UsageRow(role="optimizer", stage="reflect", calls=24, input_tokens=90_000,
                     output_tokens=18_000, cost=0.32),
        ],
        rollouts=1430,
        errors=3,
        notes=[evil] if evil else ["2 tasks were moved so that no split is empty."],
        **fields,
    )  # fmt: skip


def with_skill(result: Result, **fields: Any) -> Result:
    """Return the result with other fields of its first skill, and without its other skills."""
    return result.model_copy(update={"skills": [result.skills[0].model_copy(update=fields)]})
