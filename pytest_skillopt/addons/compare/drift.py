"""Mode ``--skillopt-drift``: the skill on disk against none, on today's model."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt import __version__
from pytest_skillopt.addons import receipts
from pytest_skillopt.addons.compare.comparison import compared, only_skill
from pytest_skillopt.addons.compare.gates import DriftGate
from pytest_skillopt.addons.receipts import Receipt, TaskCounts
from pytest_skillopt.errors import UserError
from pytest_skillopt.search.extensions import gate_options, gate_tasks
from pytest_skillopt.skill.document import NO_SKILL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt import Result, SkillTask
    from pytest_skillopt.report.live import Display
    from pytest_skillopt.run.openrun import Run


def drift(run: Run, display: Display) -> Result:
    """Measure the skill and none, and compare the gain with that of an earlier receipt.

    The samples belong to the latest receipt, so a repeated command takes up what was paid for until
    there is a new receipt, and then draws afresh: a model may change under its name.

    Raises:
        pytest.UsageError: several skills, or a damaged history.
    """
    skill = only_skill(run, "measures")
    document = run.documents[skill]
    display.begin("comparison")
    tasks = run.tasks_of(skill)
    try:
        known = receipts.read(run.root, skill)
    except UserError as error:
        raise pytest.UsageError(str(error)) from None
    then = receipts.earlier(known, document.version)
    hashes = {task.id: _hash(task) for task in tasks}
    rows = then.tasks if then else []
    gate = DriftGate(
        gate_tasks(tasks),
        gate_options(run.settings),
        decision=known[-1].run if known else "first",
        then={row.id: row.counts for row in rows if hashes.get(row.id) == row.sha256},
    )
    found = compared(run, skill, gate, NO_SKILL, document)
    said: dict[str, Any] = {"verdict": {**(found.verdict or {}), "drift": gate.word}}
    if gate.word is None:
        said = {"reason": f"{found.reason}; repeat the same command to go on"}
    found = found.model_copy(update={"patch": "", **said})
    result = run.result(found.status, found.reason, [found])
    if gate.word is None:
        return result
    used = then.run if then and gate.then.keys() >= set(gate.tasks) else ""
    receipt = _receipt(run, result, gate, hashes, known, used)
    path = receipts.write(run.root, receipt, known).relative_to(run.root)
    found = found.model_copy(update={"history": receipts.chart([*known, receipt])})
    notes = [*result.notes, f"the receipt is {path}: commit it"]
    return result.model_copy(update={"notes": notes, "skills": [found]})


def _hash(task: SkillTask) -> str:
    """Hash a test without the agent's version, which ``task.source`` includes."""
    return hashlib.sha256(task.text.encode("utf-8", "surrogatepass")).hexdigest()


def _receipt(
    run: Run,
    result: Result,
    gate: DriftGate,
    hashes: dict[str, str],
    known: Sequence[Receipt],
    used: str,
) -> Receipt:
    (found,) = result.skills
    rows = [
        TaskCounts(
            id=row.id,
            sha256=hashes[row.id],
            with_passed=new.passed,
            with_n=new.n,
            without_passed=row.before.passed,
            without_n=row.before.n,
        )
        for row in found.tasks
        if (new := row.after) and new.n and row.before.n
    ]
    assert gate.word is not None, "it has decided, so both arms were measured"
    assert found.suite is not None
    assert found.suite.after is not None
    agents = sorted({task.agent for task in run.tasks if task.agent})
    costs = [row.cost for row in result.usage if row.calls]
    suite = json.dumps(sorted(hashes.items()))
    return Receipt(
        verdict=gate.word,
        changed=gate.word not in ("cannot tell", receipts.told(known)),
        reason=found.reason,
        date=result.started,
        run=result.run,
        skill=found.path,
        skill_sha256=found.after,
        suite_sha256=hashlib.sha256(suite.encode()).hexdigest(),
        model=", ".join(filter(None, [result.models.get("target", ""), *agents])),
        fingerprint=run.fingerprint,
        k=max(max(row.with_n, row.without_n) for row in rows),
        with_skill=found.suite.after,
        without=found.suite.before,
        compared_with=used,
        cost=None if None in costs else sum(cost for cost in costs if cost is not None),
        version=__version__,
        tasks=rows,
    )
